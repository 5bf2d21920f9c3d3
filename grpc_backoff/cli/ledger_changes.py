"""The commands of `grpc-backoff ledger` that change what is in a ledger."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
from click.core import ParameterSource

from grpc_backoff.cli.ledger_arguments import STATE, SUCH_AS, Time, filtering, read_filter, within
from grpc_backoff.cli.refusal import Refusal
from grpc_backoff.ledger import Filter, OperationState

if TYPE_CHECKING:
    from grpc_backoff.ledger import Ledger

_FILTERS = ("expired", "state", "target", "method", "older_than")

Change = Callable[..., Coroutine[object, object, list[str]]]
"""A method of a ledger that takes ids of operations and returns those of the operations that it has changed."""


@click.command(short_help="Retry failed operations.")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All failed operations that match the filters.")
@click.option("--expired", is_flag=True, help="With --all: the operations that have expired instead.")
@filtering
def replay(ids: tuple[str, ...], every: bool, expired: bool, **which: Any) -> None:
    """Retry operations that failed or expired: they get new attempts, keep their history and no longer expire."""
    state = OperationState.EXPIRED if expired else OperationState.FAILED
    _change(ids, every, read_filter((state.value,), **which), lambda opened: opened.replay, "replayed")


@click.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "every", is_flag=True, help="All operations that match the filters; requires --state.")
@STATE
@filtering
def discard(ids: tuple[str, ...], every: bool, **which: Any) -> None:
    """Abandon operations that have not succeeded."""
    if every and not ids and not which["state"]:
        raise Refusal("discard --all requires --state")
    _change(ids, every, read_filter(**which), lambda opened: opened.discard, "discarded")


def _change(ids: Sequence[str], every: bool, which: Filter, change: Callable[[Ledger], Change], done: str) -> None:
    """Change the operations with these ids, or those that match the filter, and say how many were changed."""
    if bool(ids) == every:
        raise Refusal("give either operation ids or --all")
    given = map(click.get_current_context().get_parameter_source, _FILTERS)
    if ids and ParameterSource.COMMANDLINE in given:
        raise Refusal("filters require --all")
    if every:
        click.echo(f"{within(lambda opened: _in_batches(opened, which, change(opened)))} {done}.")
        return
    changed = within(lambda opened: change(opened)(*ids))
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


@click.command(short_help="Resolve a conflict and retry the operation.")
@click.argument("id_", metavar="ID")
@click.option(
    "--request",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file that contains the new request in serialized form.",
)
def resolve(id_: str, request: Path | None) -> None:
    """Resolve a conflict: the operation is retried, with a new request if one is given."""
    content = None if request is None else request.read_bytes()
    within(lambda opened: opened.resolve(id_, request=content))
    click.echo("1 resolved.")


@click.command(short_help="Stop claiming operations for a target.")
@click.argument("target")
def pause(target: str) -> None:
    """Stop deliverers from claiming operations for TARGET until `resume`. Running attempts continue."""
    within(lambda opened: opened.pause(target))
    click.echo(f"{target} is paused.")


@click.command(short_help="End the pause of a target.")
@click.argument("target")
def resume(target: str) -> None:
    """Let deliverers claim operations for TARGET again."""
    if not within(lambda opened: opened.resume(target)):
        raise Refusal(f"{target} is not paused", 1)
    click.echo(f"{target} is no longer paused.")


@click.command(short_help="Move operations to another target.")
@click.argument("old")
@click.argument("new")
def retarget(old: str, new: str) -> None:
    """Move operations from the target OLD to the target NEW, unless they succeeded, expired or were discarded.

    An operation stays where it is if NEW has one with the same method and idempotency key.
    """
    click.echo(f"{within(lambda opened: opened.retarget(old, new))} moved.")


@click.command()
@click.option(
    "--older-than",
    type=Time(),
    metavar="TIME",
    help=f"Only operations that ended at least this long ago, {SUCH_AS}; default: the setting `keep`.",
)
@click.option("--failed", is_flag=True, help="Delete failed operations and conflicts as well.")
def prune(older_than: float | None, failed: bool) -> None:
    """Delete old operations that succeeded, were discarded or expired."""
    click.echo(f"{within(lambda opened: opened.prune(older_than, failed=failed))} pruned.")


@click.command()
def migrate() -> None:
    """Create the tables, or upgrade them to this library's version."""
    _, version = within(lambda opened: opened.migrate(), migrate=True)
    click.echo(f"The tables have version {version}.")
