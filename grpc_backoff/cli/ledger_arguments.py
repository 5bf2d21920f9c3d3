"""What the commands of `grpc-backoff ledger` have in common: they open a ledger, and choose operations by filters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from grpc_backoff.base.base_errors import MissingExtra, OptionError, shown
from grpc_backoff.cli.refusal import Refusal, refusing
from grpc_backoff.config.policy_string import scalar
from grpc_backoff.ledger import Filter, LedgerError, OperationState
from grpc_backoff.policy import checks
from grpc_backoff.policy.checks import Unit

if TYPE_CHECKING:
    from grpc_backoff.ledger import Ledger

ResultT = TypeVar("ResultT")
CommandT = TypeVar("CommandT", bound=Callable[..., object])


class Time(click.ParamType):  # type: ignore[type-arg] # generic since click 8.2 only
    """A duration, as in the file: "10m", "7d" or a number of seconds."""

    name = "time"

    def convert(self, value: Any, _parameter: click.Parameter | None, _context: click.Context | None) -> float:
        """Return the duration in seconds."""
        try:
            return checks.pause("time", scalar(str(value)), Unit.WRITTEN)
        except OptionError as error:
            self.fail(f"{value}: expected {error.allowed}")


SUCH_AS = "such as 10m or 7d; a number alone is in seconds"
"""How a time is written."""

TARGET = click.option("--target", metavar="TARGET", help="Only operations for this target.")
STATE = click.option(
    "--state",
    multiple=True,
    type=click.Choice([state.value for state in OperationState]),
    help="Only operations in this state. Repeatable.",
)
_METHOD = click.option("--method", metavar="SERVICE/METHOD", help="Only operations for this method.")
_AGE = click.option(
    "--older-than",
    type=Time(),
    metavar="TIME",
    help=f"Only operations submitted at least this long ago, {SUCH_AS}.",
)


def filtering(command: CommandT) -> CommandT:
    """Add the options that every filter has to a command."""
    return TARGET(_METHOD(_AGE(command)))


def read_filter(state: Sequence[str], method: str | None, **which: Any) -> Filter:
    """Return the filter that the options of a command describe."""
    path = method if method is None or method.startswith("/") else f"/{method}"
    if method and "/" not in method:  # stored paths may have any form, but one slash at least
        raise Refusal(f"--method={shown(method)}: expected SERVICE/METHOD, such as shop.Orders/Place")
    with refusing():
        return Filter(states=tuple(OperationState(name) for name in state), method=path, **which)


def within(work: Callable[[Ledger], Coroutine[object, object, ResultT]], *, migrate: bool = False) -> ResultT:
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
