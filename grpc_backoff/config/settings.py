"""The settings that a source may have, and how they are read from it.

The tables of settings are in the modules of the policies. `CONNECTING` covers connections: the channel options and the
file's `[connection]` and `[targets]`. `RETRYING` covers calls: the file's `[policies]` and `[methods]`, and policy
strings. `HEDGING` takes its place for calls that are hedged. `BUDGETING` covers the file's `[retry_budget]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grpc_backoff.base.base_errors import OptionError, unknown
from grpc_backoff.config.sources import Source, SourceValue
from grpc_backoff.policy.checks import Unit
from grpc_backoff.policy.connect import DIALLING
from grpc_backoff.policy.hedging import HEDGE, HEDGING
from grpc_backoff.policy.pooling import POOLING
from grpc_backoff.policy.retry import RETRYING
from grpc_backoff.policy.setting import Setting, checks_of

_SYNONYMS = {"backoff_factor": "multiplier", "policy": "preset"}
"""Names of settings in other libraries, which no spelling would lead to the right name."""

CONNECTING = (*DIALLING, *POOLING)
"""All settings for a connect policy and a pool policy, in both options and files."""

POOLED = tuple(checks_of(POOLING))
"""The parts of a pool policy that have settings."""


def read_source(
    table: Sequence[Setting] | None, values: Mapping[str, tuple[str, object]], origin: str, unit: Unit | None = None
) -> Source:
    """Check the settings from one source and return the source.

    Args:
        table: the settings that are allowed; None for those of a channel's calls, which are either retried or hedged.
        values: for each setting's name, the key as the user knows it, and the value.
        origin: a description of the source.
        unit: the unit of times; None for the unit of each setting's option.

    Raises:
        OptionError: a value is invalid, two values contradict each other, or a name is unknown.
    """
    if table is None:
        table = HEDGING if HEDGE in values else RETRYING
    settings = {setting.name: setting for setting in table}
    if HEDGE in values:
        _check_hedging(table, settings, values)
    source: dict[str, SourceValue] = {}
    for name, (key, written) in values.items():
        setting = settings.get(name)
        if setting is None:
            prefix = key.removesuffix(f'"{name}"').removesuffix(name)
            raise unknown("setting", key, written, name, _words(table, prefix), prefix)
        part = setting.part or name
        if part in source:
            others = source[part].key
            problem = f"{others!r} and {key!r} set the same value: give only one of them"
            raise OptionError(key, written, f"no {key} besides {others}", problem=problem)
        source[part] = SourceValue(setting.check(key, written, unit or setting.unit), key, written, origin)
    _check_order(source)
    return source


def _check_hedging(
    table: Sequence[Setting], settings: Mapping[str, Setting], values: Mapping[str, tuple[str, object]]
) -> None:
    """Reject hedging where calls can only be retried, and beside a setting for retries (HG-9)."""
    key, written = values[HEDGE]
    if table is RETRYING:
        problem = (
            f"{key!r} is only for the calls of a channel: named policies, subscriptions, ledgers and `grpc-backoff "
            "schedule` take retry policies"
        )
        raise OptionError(key, written, "a retry policy", problem=problem)
    for other in RETRYING:
        if table is HEDGING and other.name in values and other.name not in settings:
            problem = f"{values[other.name][0]!r} besides {key!r}: a method is either retried or hedged"
            raise OptionError(*values[other.name], f"no setting for retries besides {key}", problem=problem)


def _check_order(source: Source) -> None:
    """Reject a maximum below the first wait if both come from the same source (CH-10)."""
    if "delay" in source and "max_delay" in source:
        least, most = source["delay"], source["max_delay"]
        if most.value < least.value:
            raise OptionError(most.key, most.written, f"at least {least.key} ({least.written})")


def _words(table: Sequence[Setting], prefix: str) -> dict[str, str]:
    """Map every word that may be meant as a setting to the setting's key: its name, its option and its part."""
    options = {setting.option.partition(".")[2]: setting.name for setting in table if setting.option}
    parts = {setting.part: setting.name for setting in table if setting.part}
    parts |= {word: name for word, name in _SYNONYMS.items() if any(name == setting.name for setting in table)}
    words = {setting.name: setting.name for setting in table}  # added first: suggestions list all names in this order
    words |= {word: name for word, name in (parts | options).items() if word not in words}
    return {word: prefix + name for word, name in words.items()}
