"""What is known about a setting besides the field that it fills: one row, in the module of the policy that has it.

The rows are in `DIALLING`, `POOLING`, `RETRYING`, `HEDGING`, `BUDGETING` and `KEEPING`. Policies are checked by them,
`presets` takes defaults from them, and channel options, files and policy strings have the names that they say.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.policy.checks import Unit

if TYPE_CHECKING:
    from grpc_backoff.policy.checks import Check

PREFIX = "grpc_backoff."
"""The prefix of this library's own channel options."""

CONFIG = PREFIX + "config"
"""The channel option that names a file."""

ENVIRONMENT_VARIABLE = "GRPC_BACKOFF_CONFIG"
"""The environment variable that names a channel's file if neither an argument nor an option does."""


class Setting(NamedTuple):
    """One setting.

    Attributes:
        name: its key in the file and in a policy string.
        check: the check for its values.
        default: its value unless a preset sets another; `...` if each preset, or the policy's field, has one.
        option: its key among the channel options; None if it has none.
        unit: the unit of the channel option, if it is a time.
        part: the part of a policy that it sets; if None, the part called `name`.
    """

    name: str
    check: Check[Any]
    default: object = ...
    option: str | None = None
    unit: Unit = Unit.SECONDS
    part: str | None = None


def own(name: str, check: Check[Any], default: object = ...) -> Setting:
    """Return a setting whose channel option is this library's own."""
    return Setting(name, check, default, PREFIX + name)


def checks_of(table: Iterable[Setting], *but: str) -> dict[str, Check[Any]]:
    """Return the check for each part that the table sets, but these; the last of two settings for a part counts."""
    checks = {setting.part or setting.name: setting.check for setting in table}
    return {part: check for part, check in checks.items() if part not in but}


def defaults_of(table: Iterable[Setting]) -> dict[str, Any]:
    """Return the default for each part that has one."""
    return {setting.part or setting.name: setting.default for setting in table if setting.default is not ...}
