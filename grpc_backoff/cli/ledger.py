"""`grpc-backoff ledger`: shows what is in a ledger; `ledger_changes.py` changes it on request (LG-7).

Payloads are never shown, unless `--proto` says how to decode them. The exit status is 0 on success, 1 if the database
cannot be used or nothing was changed, and 2 for a usage error. Ctrl-C ends `watch` as the signal does.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from grpc_backoff.cli.interrupt import end_by_interrupt, interruptible
from grpc_backoff.cli.ledger_arguments import STATE, TARGET, Time, filtering, read_filter, within
from grpc_backoff.cli.ledger_changes import discard, migrate, pause, prune, replay, resolve, resume, retarget
from grpc_backoff.cli.refusal import Refusal
from grpc_backoff.cli.texts import JSON, json_text, seconds, show_table, write_json
from grpc_backoff.ledger import Operation, OperationAttempt, OperationState, Queue

if TYPE_CHECKING:
    from grpc_backoff.ledger import Ledger

_OPERATION_COLUMNS = ("id", "state", "target", "method", "attempts", "last code", "next in", "age")
_ATTEMPT_COLUMNS = ("number", "started", "took", "code", "then wait", "from")
_MOMENTS = {"last_attempted_at", "next_attempt_at", "lease_until", "created", "began", "finished", "not_after"}
"""The parts of an operation that are times, in seconds since the epoch."""


@click.group()
@click.option(
    "--db",
    "url",
    metavar="URL",
    envvar="GRPC_BACKOFF_LEDGER",
    help="The database: a path, or postgresql://...  [required]",
)
@click.option(
    "--config", metavar="FILE", type=click.Path(), help="The TOML file; default: the file named by GRPC_BACKOFF_CONFIG."
)
@click.pass_context
def ledger(context: click.Context, url: str | None, config: str | None) -> None:
    """Inspect a ledger, and replay, discard or prune operations.

    URL is the path of an SQLite file, or a postgresql:// URL. It can also be given in the environment variable
    GRPC_BACKOFF_LEDGER.
    """
    context.obj = url, config


@ledger.command(short_help="Count the operations in each state.")
@TARGET
@JSON
def status(target: str | None, as_json: bool) -> None:
    """Show how many operations are in each state, and how long an unfinished one has waited at most."""
    queue = within(lambda opened: opened.queue(target))
    if as_json:
        write_json(_queue_document(queue))
    else:
        _show_queue(queue)


def _show_queue(queue: Queue) -> None:
    rows = [(state.value, str(queue.counts.get(state, 0))) for state in OperationState]
    show_table("operations", ("state", "number"), rows)
    oldest = f"{queue.length} unfinished; the longest wait so far is {seconds(queue.oldest)}."
    click.echo(oldest if queue.length else "No operation is unfinished.")
    if queue.estimated:
        click.echo("These numbers are estimates, because there are many operations.")
    if queue.held_keys:
        click.echo(f"Order keys held by an operation that failed or is in conflict: {queue.held_keys}.")
    if queue.paused:
        click.echo(f"Paused: {', '.join(queue.paused)}.")


@ledger.command("list")
@STATE
@filtering
@click.option(
    "--limit", default=100, show_default=True, type=click.IntRange(1), help="List at most this many operations."
)
@click.option("--key", "idempotency_key", metavar="KEY", help="Only operations with this idempotency key.")
@click.option("--order-key", metavar="KEY", help="Only operations with this order key.")
@click.option("--code", metavar="CODE", help="Only operations whose last failure had this status code, or LOST.")
@click.option("--newest-first", is_flag=True, help="List the newest operations first.")
@click.option("--after", metavar="ID", help="Begin after this operation, the last one of the previous page.")
@JSON
def list_command(
    limit: int, code: str | None, newest_first: bool, after: str | None, as_json: bool, **which: Any
) -> None:
    """List operations, oldest first."""
    chosen = read_filter(code=code and code.upper(), **which)
    found = within(lambda opened: opened.find(chosen, limit=limit, newest_first=newest_first, after=after))
    if as_json:
        write_json([_operation_document(operation) for operation in found])
    elif found:
        now = time.time()  # this host's clock, for display only
        rows = [_operation_row(operation, now) for operation in found]
        show_table("operations", _OPERATION_COLUMNS, rows, numbers=False)
    else:
        click.echo("No operation matches.")


@ledger.command()
@click.argument("id_", metavar="ID")
@click.option(
    "--proto", metavar="MODULE:MESSAGE", help="Decode the request with this generated class, such as shop_pb2:Order."
)
@JSON
def show(id_: str, proto: str | None, as_json: bool) -> None:
    """Show one operation with all its attempts.

    The request is shown only as a number of bytes, unless --proto names its message class.
    """

    async def look(opened: Ledger) -> tuple[Operation, list[OperationAttempt]]:
        return await opened.get(id_), await opened.attempts(id_)

    operation, attempts = within(look)
    document = _operation_document(operation)
    if proto is not None:
        document["request"] = _decoded(proto, operation.request)
    document["attempts_made"] = [dataclasses.asdict(attempt) for attempt in attempts]
    if as_json:
        write_json(document)
        return
    rows = [(name, _part_text(name, value)) for name, value in document.items() if name != "attempts_made"]
    show_table(f"operation {operation.id}", ("part", "value"), rows, numbers=False)
    show_table("attempts", _ATTEMPT_COLUMNS, [*map(_attempt_row, attempts)], numbers=False)


def _decoded(proto: str, request: bytes) -> str:
    import importlib  # noqa: PLC0415 - not needed by most commands

    module, _, name = proto.partition(":")
    sys.path.insert(0, "")
    try:
        message = getattr(importlib.import_module(module), name)
        return str(message.FromString(request)).strip()
    except Exception as error:
        raise Refusal(
            f"--proto {proto}: expected a generated message class that can parse this request ({error})"
        ) from error
    finally:
        sys.path.remove("")


@ledger.command(short_help="Show the operation counts repeatedly.")
@TARGET
@click.option(
    "--every", type=Time(), default="1", show_default=True, metavar="TIME", help="How often to query the ledger."
)
@click.option(
    "--times", type=click.IntRange(1), help="Query this many times, then exit; by default, continue until Ctrl-C."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object per line; `at` is in seconds since 1970 (UTC)."
)
def watch(target: str | None, every: float, times: int | None, as_json: bool) -> None:
    """Show the operation counts repeatedly; with --json, print one line each time."""

    async def look(opened: Ledger) -> None:
        number = 0
        while True:
            queue = await opened.queue(target)
            number += 1
            if as_json:
                click.echo(json_text({"at": time.time(), **_queue_document(queue)}))
            else:
                click.clear()
                _show_queue(queue)
            if number == times:
                return
            await asyncio.sleep(every)

    with interruptible():
        try:
            within(look)
        except KeyboardInterrupt:  # how a watch is meant to end
            end_by_interrupt()


def _queue_document(queue: Queue) -> dict[str, object]:
    """Return the counts of a queue for JSON; times are in seconds."""
    return {
        "states": {state.value: queue.counts.get(state, 0) for state in OperationState},
        "length": queue.length,
        "oldest_age": queue.oldest,
        "held_keys": queue.held_keys,
        "paused": list(queue.paused),
        "estimated": queue.estimated,
    }


def _operation_row(operation: Operation, now: float) -> tuple[str, ...]:
    """Return an operation's texts for `_OPERATION_COLUMNS`; `now` is in seconds since the epoch."""
    due = "" if operation.next_attempt_at is None else seconds(max(0.0, operation.next_attempt_at - now))
    return (
        operation.id,
        operation.state.value,
        operation.target,
        operation.method,
        str(operation.attempts),
        operation.code or "",
        due,
        seconds(max(0.0, now - operation.created)),
    )


def _operation_document(operation: Operation) -> dict[str, object]:
    """Return an operation without its payload and without its metadata's values."""
    without = {"metadata": [key for key, _ in operation.metadata], "request": {"bytes": len(operation.request)}}
    return dataclasses.asdict(operation) | without


def _attempt_row(attempt: OperationAttempt) -> tuple[str, ...]:
    return (
        str(attempt.number),
        _moment(attempt.started),
        "" if attempt.started is None else seconds(attempt.ended - attempt.started),
        attempt.code,
        "" if attempt.delay is None else seconds(attempt.delay),
        attempt.source or "",
    )


def _part_text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name in _MOMENTS:
        return _moment(value)
    if name == "request" and isinstance(value, dict):
        return f"{value['bytes']} bytes"
    if name == "keep_response":
        return f"{value} bytes"
    return ", ".join(value) if isinstance(value, list) else str(value)


def _moment(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


for command in (replay, discard, resolve, pause, resume, retarget, prune, migrate):
    ledger.add_command(command)
