"""`grpc-backoff config`: shows the effective values of a file, and where each value comes from."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

from grpc_backoff.cli.policies import refusing
from grpc_backoff.cli.tables import seconds, show_table, write_json
from grpc_backoff.config.file import Section as ResolvedPolicy
from grpc_backoff.config.file import read_config
from grpc_backoff.config.remarks import warn_of
from grpc_backoff.config.settings import CONNECTING
from grpc_backoff.config.sources import Effective
from grpc_backoff.policy import checks
from grpc_backoff.policy.budget import BUDGETING, RetryBudget
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.hedging import HEDGING, HedgingPolicy
from grpc_backoff.policy.ledger_settings import KEEPING, LedgerSettings
from grpc_backoff.policy.retry import RETRYING, RetryPolicy
from grpc_backoff.policy.setting import Setting

_NUMBERS = {checks.growth, *(setting.check for setting in BUDGETING)}
"""The checks for fractions of a number; all others that return a float are for times."""

_SETTINGS: Mapping[type, Sequence[Setting]] = {
    ConnectPolicy: CONNECTING,
    RetryPolicy: RETRYING,
    HedgingPolicy: HEDGING,
    RetryBudget: BUDGETING,
    LedgerSettings: KEEPING,
}


@dataclass(frozen=True, slots=True)
class Section:
    """The effective values of one policy, and the settings that supply their display names."""

    title: str
    settings: Sequence[Setting]
    effective: Sequence[Effective]


@click.group()
def config() -> None:
    """Check and show a configuration file."""


@config.command(short_help="Check FILE and show its effective values.")
@click.argument("file", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def check(file: str, as_json: bool) -> None:
    """Check FILE and show its effective values and where each comes from.

    The exit status is 0 if the file is valid, 1 if it is not, and 2 for a usage error.
    """
    with refusing(status=1):
        read = read_config(file)
        sections = [_section(name, resolved) for name, resolved in read.sections()]
        warn_of(f"{file}: {remark}" for remark in read.lost_deadlines())
    _show(sections, as_json=as_json)
    if not as_json:
        click.echo(f"{file} is valid.")


@config.command(short_help="Show the effective values for one target or method.")
@click.argument("file", type=click.Path())
@click.option("--target", metavar="TARGET", help="Show the settings for connections to this target.")
@click.option("--method", metavar="SERVICE/METHOD", help="Show the settings for calls to this method.")
@click.option("--ledger", is_flag=True, help="Show the settings for the ledger.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show(file: str, target: str | None, method: str | None, ledger: bool, as_json: bool) -> None:
    """Show the effective values for one target, one method or the ledger, and where each comes from."""
    with refusing():
        read = read_config(file)
        sections = []
        if ledger:
            sections.append(_section("ledger", read.ledger_settings()))
        if target is not None or (method is None and not ledger):
            sections.append(_section(f"connections to {target or 'any target'}", read.connect_policy(target or "")))
        retrying = None if method is None else read.retry_policy(method)
        if retrying is not None:
            sections.append(_section(f"calls of {method}", retrying))
            budget = read.budget()
            if budget is not None:
                sections.append(_section(f"retry budget of {target or 'each target'}", budget))
        elif method is not None:
            sections.append(Section(f"calls of {method}", RETRYING, ()))
    _show(sections, as_json=as_json)
    if method is not None and retrying is None and not as_json:
        click.echo(f"calls of {method}: no table in the file matches, so the default applies: no retries.")


def _section(title: str, resolved: ResolvedPolicy) -> Section:
    return Section(title, _SETTINGS[type(resolved.policy)], resolved.effective)


def _show(sections: Sequence[Section], *, as_json: bool) -> None:
    if as_json:
        write_json({section.title: _document(section) for section in sections})
        return
    for section in filter(lambda section: section.effective, sections):
        rows = [(_name(section, value), _text(section, value), value.origin) for value in section.effective]
        show_table(section.title, ("setting", "value", "from"), rows, numbers=False)


def _document(section: Section) -> dict[str, object]:
    return {
        _name(section, setting): {"value": _bare(setting.value), "from": setting.origin}
        for setting in section.effective
    }


def _setting(section: Section, effective: Effective) -> Setting | None:
    """Return the setting for a part; if two settings set it, the one with the same name as the part."""
    fitting = [setting for setting in section.settings if effective.part in (setting.part, setting.name)]
    return next((setting for setting in fitting if setting.name == effective.part), fitting[0] if fitting else None)


def _name(section: Section, effective: Effective) -> str:
    setting = _setting(section, effective)
    return effective.part if setting is None else setting.name


def _text(section: Section, effective: Effective) -> str:
    value = _bare(effective.value)
    setting = _setting(section, effective)
    if value is None:
        return "unlimited" if effective.part == "max_attempts" else "none"
    if isinstance(value, float) and setting is not None and setting.check not in _NUMBERS:
        return seconds(value)
    if isinstance(value, tuple | list):
        return " ".join(str(item) for item in value) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _bare(value: object) -> object:
    """Return a value as it would be written in the file."""
    match value:
        case enum.Enum():
            return value.value
        case frozenset():
            return sorted(value)
        case bool() | int() | float() | str() | tuple() | None:
            return value
        case _:
            return str(value)
