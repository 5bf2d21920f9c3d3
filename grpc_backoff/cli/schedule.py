"""`grpc-backoff schedule`: shows the waits of a policy as a table."""

from __future__ import annotations

import math
import os
from dataclasses import asdict
from pathlib import Path

import click

from grpc_backoff.cli.refusal import refusing
from grpc_backoff.cli.texts import JSON, plural, rounded, seconds, show_table, span, write_json
from grpc_backoff.config.file import read_config
from grpc_backoff.config.policy_string import parse_policy
from grpc_backoff.config.remarks import warn_of
from grpc_backoff.config.resolving import resolve_connect
from grpc_backoff.config.sources import begin_with
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.presets import CONNECT_PRESET, PRESETS
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.schedule import Row, schedule, usual_length

_MOST_WAITS = 10_000
_COLUMNS = ("after failure", "wait", "smallest", "largest", "expected so far", "total so far")


Policy = ConnectPolicy | RetryPolicy


def named_policies(text: str) -> list[tuple[str, Policy]]:
    """Return the policies that a text names; for a whole file, all its policies for connections and calls.

    Each comes with the name under which it is shown.

    Raises:
        OptionError, ConfigError: the text names no policy, or has an invalid value.
    """
    path, name = file_of(text)
    if path and not name:
        sections = [(title, resolved.policy) for title, resolved in read_config(path).sections()]
        return [(title, policy) for title, policy in sections if isinstance(policy, Policy)]
    if path:
        resolved = read_config(path).policy(name)
        warn_of(resolved.remarks)
        return [(text, resolved.policy)]
    if text.strip() == CONNECT_PRESET:
        return [(CONNECT_PRESET, resolve_connect([begin_with(CONNECT_PRESET)], {})[0].policy)]
    return [(text, parse_policy(text))]


def file_of(text: str) -> tuple[str, str]:
    """Split a text into the path of a file and the name of one of its policies; either is empty if it is missing."""
    path, _, policy = text.rpartition("#")
    if path and not Path(text).is_file() and _is_file(path):
        return path, policy
    return (text, "") if _is_file(text) else ("", "")


def _is_file(text: str) -> bool:
    return text.endswith(".toml") or (os.sep in text and ":" not in text) or Path(text).is_file()


@click.command("schedule", short_help="Show the waits in a policy.")
@click.argument("policy")
@click.option("--attempts", type=click.IntRange(1, _MOST_WAITS), metavar="N", help="Show this many waits.")
@JSON
def schedule_command(policy: str, attempts: int | None, as_json: bool) -> None:
    """Show each wait in POLICY, its smallest and largest values, and the running total.

    POLICY is a preset (PRESETS), a FILE.toml, a single policy from a file, as FILE.toml#NAME, or a policy string such
    as "retry: 5, delay: 1s, jitter: full". For connections, the waits are the gaps between the starts of attempts.
    Without --attempts, the table ends where the waits stop changing, where the screen is full, or with the last wait
    that may fit before the policy's deadline.
    """
    with refusing():
        tables = [(name, found, _rows(found, attempts)) for name, found in named_policies(policy)]
    if as_json:
        write_json([_document(*table) for table in tables])
        return
    for name, found, rows in tables:
        show_table(_title(name, found), _COLUMNS, [_cells(row) for row in rows])
        click.echo(_ending(found, rows) + "\n")


schedule_command.help = (schedule_command.help or "").replace("PRESETS", ", ".join(PRESETS))


def _rows(policy: Policy, attempts: int | None) -> list[Row]:
    if attempts is not None:
        return schedule(policy, attempts)
    most, deadline = _limits(policy)
    rows = schedule(policy, usual_length(policy, most))
    return [row for row in rows if row.number == 1 or row.total_low <= deadline]


def _limits(policy: Policy) -> tuple[int | None, float]:
    """Return how many attempts a policy allows, None for any number, and how many seconds."""
    if isinstance(policy, ConnectPolicy):
        return None, math.inf
    return policy.max_attempts, math.inf if policy.deadline is None else policy.deadline


def _title(name: str, policy: Policy) -> str:
    waits = "waits before retries" if isinstance(policy, RetryPolicy) else "gaps between the starts of attempts"
    return f"{name!r}: {waits}" if ":" in name else f"{name}: {waits}"


def _cells(row: Row) -> tuple[str, ...]:
    times = map(seconds, (row.wait, row.low, row.high, row.total))
    return (str(row.number), *times, span(row.total_low, row.total_high))


def _ending(policy: Policy, rows: list[Row]) -> str:
    """Return a line that says when the policy gives up, because the table may show waits after its last attempt."""
    attempts, deadline = _limits(policy)
    if attempts is None:
        return _without_last(policy, rows[-1], deadline)
    if (early := _before_the_end(policy, attempts, deadline)) is not None:
        return early
    if attempts == 1:
        return "One attempt, no retries."
    waits = plural(attempts - 1, "wait")
    last = _last(policy, attempts)
    if last is None:
        return f"Gives up after {attempts} attempts, with {waits} between them."
    expected = "" if last.total_low == last.total_high else f" ({seconds(last.total)} expected)"
    total = f"{span(last.total_low, last.total_high)} in total{expected}"
    whole = f"Gives up after {attempts} attempts, with {waits} between them, {total}."
    if len(rows) < attempts:
        return whole
    unused = "The last row is" if len(rows) == attempts else f"Rows {attempts} to {len(rows)} are"
    return f"{whole} {unused} not used, because attempt {attempts} is the last."


def _without_last(policy: Policy, shown: Row, deadline: float) -> str:
    """Return the line of a policy without a limit on attempts, of which this is the last row that is shown."""
    low, high = policy.bounds(shown.number + 1)
    settled = (low, high) == (shown.low, shown.high)
    if deadline == math.inf:
        return "Continues indefinitely, like the last row." if settled else "Continues indefinitely."
    if shown.total_low + low <= deadline:
        return f"Continues{' like the last row' if settled else ''}, and gives up {_out_of_time(deadline)}."
    return f"Gives up {_out_of_time(deadline)}."


def _before_the_end(policy: Policy, attempts: int, deadline: float) -> str | None:
    """Return the line of a policy whose deadline may end a call before its attempts are used up; None otherwise."""
    if deadline == math.inf or attempts == 1:
        return None
    last = _last(policy, attempts)
    if last and last.total_low > deadline:
        return f"Gives up {_out_of_time(deadline)}, which is before attempt {attempts}."
    if last is None or last.total_high > deadline:
        return f"Gives up after {attempts} attempts, or {_out_of_time(deadline)}."
    return None


def _out_of_time(deadline: float) -> str:
    return f"when the next wait would end after the deadline of {seconds(deadline)}"


def _last(policy: Policy, attempts: int) -> Row | None:
    """Return the row of the last wait before the policy gives up; None if there are too many waits to add up."""
    return schedule(policy, attempts - 1)[-1] if attempts <= _MOST_WAITS else None


def _document(name: str, policy: Policy, rows: list[Row]) -> dict[str, object]:
    attempts, deadline = _limits(policy)
    last = _last(policy, attempts) if attempts and attempts > 1 else None
    if last and last.total_high > deadline:  # the deadline may come first
        last = None
    bounds = (last.total_low, last.total_high) if last else (0.0, 0.0) if attempts == 1 else None
    return {
        "policy": name,
        "max_attempts": attempts,
        "deadline": None if deadline == math.inf else rounded(deadline),
        "exhausted_after": bounds and [rounded(total) for total in bounds],
        "expected_total": rounded(last.total) if last else 0.0 if attempts == 1 else None,
        "rows": [{name: rounded(value) for name, value in asdict(row).items()} for row in rows],
    }
