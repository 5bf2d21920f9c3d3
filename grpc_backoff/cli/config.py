"""`grpc-backoff config`: shows the effective values of a file, and where each value comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import click

from grpc_backoff.cli.refusal import refusing
from grpc_backoff.cli.texts import JSON, plain, seconds, show_table, write_json
from grpc_backoff.config.file import Section, read_config
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


class _Shown(NamedTuple):
    name: str
    value: object
    text: str
    origin: str


@click.group()
def config() -> None:
    """Check and show a configuration file."""


@config.command(short_help="Check FILE and show its effective values.")
@click.argument("file", type=click.Path())
@JSON
def check(file: str, as_json: bool) -> None:
    """Check FILE and show its effective values and where each comes from.

    The exit status is 0 if the file is valid, 1 if it is not, and 2 for a usage error.
    """
    with refusing(status=1):
        read = read_config(file)
        sections = {name: _rows(section) for name, section in read.sections()}
        warn_of(f"{file}: {remark}" for remark in read.lost_deadlines())
    _show(sections, as_json=as_json)
    if not as_json:
        click.echo(f"{file} is valid.")


@config.command(short_help="Show the effective values for one target or method.")
@click.argument("file", type=click.Path())
@click.option("--target", metavar="TARGET", help="Show the settings for connections to this target.")
@click.option("--method", metavar="SERVICE/METHOD", help="Show the settings for calls to this method.")
@click.option("--ledger", is_flag=True, help="Show the settings for the ledger.")
@JSON
def show(file: str, target: str | None, method: str | None, ledger: bool, as_json: bool) -> None:
    """Show the effective values for one target, one method or the ledger, and where each comes from."""
    with refusing():
        read = read_config(file)
        sections = {}
        if ledger:
            sections["ledger"] = _rows(read.ledger_settings())
        if target is not None or (method is None and not ledger):
            sections[f"connections to {target or 'any target'}"] = _rows(read.connect_policy(target or ""))
        retrying = None if method is None else read.retry_policy(method)
        if method is not None:
            sections[f"calls of {method}"] = [] if retrying is None else _rows(retrying)
        if retrying is not None and read.retry_budget is not None:
            sections[f"retry budget of {target or 'each target'}"] = _rows(read.retry_budget)
    _show(sections, as_json=as_json)
    if method is not None and retrying is None and not as_json:
        click.echo(f"calls of {method}: no table in the file matches, so the default applies: no retries.")


def _show(sections: Mapping[str, Sequence[_Shown]], *, as_json: bool) -> None:
    if as_json:
        document = {
            title: {row.name: {"value": row.value, "from": row.origin} for row in rows}
            for title, rows in sections.items()
        }
        write_json(document)
        return
    for title, rows in sections.items():
        if rows:
            texts = [(row.name, row.text, row.origin) for row in rows]
            show_table(title, ("setting", "value", "from"), texts, numbers=False)


def _rows(section: Section) -> Sequence[_Shown]:
    settings = _SETTINGS[type(section.policy)]
    # If two settings set a part, it is shown as the one that has its name.
    known = {setting.part: setting for setting in reversed(settings)} | {setting.name: setting for setting in settings}
    return [_row(effective, known.get(effective.part)) for effective in section.effective]


def _row(effective: Effective, setting: Setting | None) -> _Shown:
    name, value = effective.part if setting is None else setting.name, plain(effective.value)
    if value is None:
        text = "unlimited" if effective.part == "max_attempts" else "none"
    elif isinstance(effective.value, float) and setting is not None and setting.check not in _NUMBERS:
        text = seconds(effective.value)
    elif isinstance(value, list):
        text = " ".join(str(item) for item in value) or "none"
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    return _Shown(name, value, text, effective.origin)
