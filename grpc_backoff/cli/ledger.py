"""`grpc-backoff ledger`: shows what is in a ledger, and changes it on request (LG-7).

Payloads are never shown, unless `--proto` says how to decode them. The exit status is 0 on success, 1 if the database
cannot be used or nothing was changed, and 2 for a usage error.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import click

from grpc_backoff.base.base_errors import MissingExtra, OptionError
from grpc_backoff.cli.operations import (
    ATTEMPT_COLUMNS,
    OPERATION_COLUMNS,
    attempt_row,
    operation_document,
    operation_row,
    part_text,
    queue_document,
    queue_lines,
)
from grpc_backoff.cli.refusal import Refusal, refusing
from grpc_backoff.cli.tables import JSON, show_table, write_json
from grpc_backoff.ledger import Filter, LedgerError, Operation, OperationAttempt, OperationState, Queue
from grpc_backoff.policy import checks
from grpc_backoff.policy.checks import Unit

if TYPE_CHECKING:
    from grpc_backoff.ledger import Ledger

ResultT = TypeVar("ResultT")
CommandT = TypeVar("CommandT", bound=Callable[..., object])
Change = Callable[..., Coroutine[object, object, list[str]]]
"""A method of a ledger that takes ids of operations and returns those of the operations that it has changed."""

_TARGET = click.option("--target", metavar="TARGET", help="Only operations for this target.")


class _Time(click.ParamType):  # type: ignore[type-arg] # generic since click 8.2 only
    """A duration, as in the file: "10m", "7d" or a number of seconds."""

    name = "time"

    def convert(self, value: Any, _parameter: click.Parameter | None, _context: click.Context | None) -> float:
        try:
            return checks.pause(
                "time", float(value) if str(value).replace(".", "", 1).isdigit() else value, Unit.WRITTEN
            )
        except OptionError as error:
            self.fail(f"{value}: expected {error.allowed}")


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


def _within(work: Callable[[Ledger], Coroutine[object, object, ResultT]], *, migrate: bool = False) -> ResultT:
    """Run a function on the ledger that the command line names and return its result."""
    context = click.get_current_context()
    url, config = context.obj
    if not url:  # reported here, because --help works without it
        hint = "It can also be given in the environment variable GRPC_BACKOFF_LEDGER."
        raise click.MissingParameter(hint, ctx=context.parent, param_hint="'--db'", param_type="option")

    from grpc_backoff.ledger import Ledger  # noqa: PLC0415 - after GRPC_VERBOSITY is set

    async def run() -> ResultT:
        async with await Ledger.open(url, config=config, migrate=migrate) as opened:
            return await work(opened)

    with refusing():
        try:
            return asyncio.run(run())
        except (LedgerError, MissingExtra) as error:
            raise Refusal(str(error), 1) from error


def _filter(state: Sequence[str], method: str | None, **which: Any) -> Filter:
    path = method if method is None or method.startswith("/") else f"/{method}"
    with refusing():
        return Filter(states=tuple(OperationState(name) for name in state), method=path, **which)


_STATE = click.option(
    "--state",
    multiple=True,
    type=click.Choice([state.value for state in OperationState]),
    help="Only operations in this state. Repeatable.",
)


def _filtering(only: str = "Only", example: str = ", such as 10m or 7d") -> Callable[[CommandT], CommandT]:
    """Return a decorator that adds the filter options to a command; their texts begin with `only`."""

    def add(command: CommandT) -> CommandT:
        ago = f"{only} operations submitted at least this long ago{example}."
        command = click.option("--older-than", type=_Time(), metavar="TIME", help=ago)(command)
        of_method = f"{only} operations for this method."
        command = click.option("--method", metavar="SERVICE/METHOD", help=of_method)(command)
        return click.option("--target", metavar="TARGET", help=f"{only} operations for this target.")(command)

    return add


@ledger.command(short_help="Count the operations in each state.")
@_TARGET
@JSON
def status(target: str | None, as_json: bool) -> None:
    """Show how many operations are in each state, and how long an unfinished one has waited at most."""
    queue = _within(lambda opened: opened.queue(target))
    if as_json:
        write_json(queue_document(queue))
    else:
        _show_queue(queue)


def _show_queue(queue: Queue) -> None:
    rows = [(state.value, str(queue.counts.get(state, 0))) for state in OperationState]
    show_table("operations", ("state", "number"), rows)
    for line in queue_lines(queue):
        click.echo(line)


@ledger.command("list")
@_STATE
@_filtering()
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
    chosen = _filter(code=code and code.upper(), **which)
    found = _within(lambda opened: opened.find(chosen, limit=limit, newest_first=newest_first, after=after))
    if as_json:
        write_json([operation_document(operation) for operation in found])
    elif found:
        now = time.time()  # this host's clock, for display only
        rows = [operation_row(operation, now) for operation in found]
        show_table("operations", OPERATION_COLUMNS, rows, numbers=False)
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

    operation, attempts = _within(look)
    document = operation_document(operation)
    if proto is not None:
        document["request"] = _decoded(proto, operation.request)
    document["attempts_made"] = [dataclasses.asdict(attempt) for attempt in attempts]
    if as_json:
        write_json(document)
        return
    rows = [(name, part_text(name, value)) for name, value in document.items() if name != "attempts_made"]
    show_table(f"operation {operation.id}", ("part", "value"), rows, numbers=False)
    show_table("attempts", ATTEMPT_COLUMNS, [*map(attempt_row, attempts)], numbers=False)


def _decoded(proto: str, request: bytes) -> str:
    """Return a request as text, after parsing it with a generated class."""
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


@ledger.command(short_help="Retry failed operations.")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All failed operations that match the filters.")
@click.option("--expired", is_flag=True, help="With --all: the operations that have expired instead.")
@_filtering("With --all: only", "")
def replay(ids: tuple[str, ...], every: bool, expired: bool, **which: Any) -> None:
    """Retry operations that failed or expired: they get new attempts, keep their history and no longer expire."""
    state = OperationState.EXPIRED if expired else OperationState.FAILED
    _change(ids, every, _filter((state.value,), **which), lambda opened: opened.replay, "replayed")


@ledger.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All operations that match the filters; requires --state.")
@_STATE
@_filtering()
def discard(ids: tuple[str, ...], every: bool, **which: Any) -> None:
    """Abandon operations that have not succeeded."""
    if every and not ids and not which["state"]:
        raise Refusal("discard --all requires --state")
    _change(ids, every, _filter(**which), lambda opened: opened.discard, "discarded")


def _change(ids: Sequence[str], every: bool, which: Filter, change: Callable[[Ledger], Change], done: str) -> None:
    """Change the operations with these ids, or those that match the filter, and say how many were changed."""
    if bool(ids) == every:
        raise Refusal("give either operation ids or --all")
    if every:
        click.echo(f"{_within(lambda opened: _in_batches(opened, which, change(opened)))} {done}.")
        return
    changed = _within(lambda opened: change(opened)(*ids))
    click.echo(f"{len(changed)} {done}.")
    left = [id_ for id_ in ids if str(UUID(id_)) not in changed]  # in the ledger's form
    if left:
        raise Refusal(f"these operations do not exist, or their state does not allow it: {', '.join(left)}", 1)


async def _in_batches(opened: Ledger, which: Filter, change: Change) -> int:
    """Change all operations that match a filter, one batch at a time; an interrupted command can be rerun."""
    counts = (await opened.queue(which.target)).counts  # of which the filter may leave some out
    changed = 0
    length = sum(counts.get(state, 0) for state in which.states)
    with click.progressbar(length=length, file=sys.stderr) as bar:
        async for ids in opened.pages(which):
            changed += len(await change(*ids))
            bar.update(len(ids))
    return changed


@ledger.command(short_help="Resolve a conflict and retry the operation.")
@click.argument("id_", metavar="ID")
@click.option(
    "--request",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file that contains the new request in serialized form.",
)
def resolve(id_: str, request: Path | None) -> None:
    """Resolve a conflict: the operation is retried, with a new request if one is given."""
    content = None if request is None else request.read_bytes()
    _within(lambda opened: opened.resolve(id_, request=content))
    click.echo("1 resolved.")


@ledger.command(short_help="Stop claiming operations for a target.")
@click.argument("target")
def pause(target: str) -> None:
    """Stop deliverers from claiming operations for TARGET until `resume`. Running attempts continue."""
    _within(lambda opened: opened.pause(target))
    click.echo(f"{target} is paused.")


@ledger.command(short_help="End the pause of a target.")
@click.argument("target")
def resume(target: str) -> None:
    """Let deliverers claim operations for TARGET again."""
    if not _within(lambda opened: opened.resume(target)):
        raise Refusal(f"{target} is not paused", 1)
    click.echo(f"{target} is no longer paused.")


@ledger.command(short_help="Move operations to another target.")
@click.argument("old")
@click.argument("new")
def retarget(old: str, new: str) -> None:
    """Move operations from the target OLD to the target NEW, unless they succeeded, expired or were discarded.

    An operation stays where it is if NEW has one with the same method and idempotency key.
    """
    click.echo(f"{_within(lambda opened: opened.retarget(old, new))} moved.")


@ledger.command()
@click.option(
    "--older-than",
    type=_Time(),
    metavar="TIME",
    help="Only operations that ended at least this long ago; default: the setting `keep`.",
)
@click.option("--failed", is_flag=True, help="Delete failed operations and conflicts as well.")
def prune(older_than: float | None, failed: bool) -> None:
    """Delete old operations that succeeded, were discarded or expired."""
    click.echo(f"{_within(lambda opened: opened.prune(older_than, failed=failed))} pruned.")


@ledger.command()
def migrate() -> None:
    """Create the tables, or upgrade them to this library's version."""
    _, version = _within(lambda opened: opened.migrate(), migrate=True)
    click.echo(f"The tables have version {version}.")


@ledger.command(short_help="Show the operation counts repeatedly.")
@_TARGET
@click.option(
    "--every", type=_Time(), default="1", show_default=True, metavar="TIME", help="How often to query the ledger."
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
                click.echo(json.dumps({"at": time.time(), **queue_document(queue)}))
            else:
                click.clear()
                _show_queue(queue)
            if number == times:
                return
            await asyncio.sleep(every)

    _within(look)
