"""Runs a coroutine until it ends. Ctrl-C and SIGTERM cancel it, so that it can clean up."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import click

Result = TypeVar("Result")


def run_until_told(work: Coroutine[Any, Any, Result]) -> Result | None:
    """Run a coroutine and return its result, or None if Ctrl-C or SIGTERM stopped it."""
    return asyncio.run(_until_told(work))


def run_to_the_end(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine that does not return None and return its result.

    Raises:
        click.Abort: Ctrl-C or SIGTERM stopped it.
    """
    result = run_until_told(work)
    if result is None:
        raise click.Abort
    return result


async def _until_told(work: Coroutine[Any, Any, Result]) -> Result | None:
    task = asyncio.ensure_future(work)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        return await task
    return None


@contextlib.contextmanager
def one_line_for(*errors: type[Exception]) -> Iterator[None]:
    """Turn these errors into one line of output and the exit status 1.

    Raises:
        click.ClickException: one of the errors was raised.
    """
    try:
        yield
    except errors as error:
        raise click.ClickException(str(error)) from error
