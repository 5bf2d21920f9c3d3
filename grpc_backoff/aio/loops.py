"""The event loop that a channel belongs to, and what happens when the channel is used on another one.

Like grpc's own channels, a channel belongs to the loop on which it was created: calls and waits work only there.
Closing works on any loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

from grpc_backoff.base.base_errors import WrongLoopError

_LOOK = 0.1
"""How often to check whether the other loop is still running, in seconds."""
_LATE = 90.0
"""How far a loop's time may lag behind, in seconds: uvloop's clock shows the time at which the loop's turn began."""


def is_here(home: asyncio.AbstractEventLoop) -> bool:
    """Return whether the calling code runs on the loop `home`."""
    try:
        return asyncio.get_running_loop() is home
    except RuntimeError:
        return False


def keeps_time(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether the loop's clock is the machine's monotonic clock, which different loops have in common."""
    return abs(loop.time() - time.monotonic()) < _LATE


def refuse_elsewhere(home: asyncio.AbstractEventLoop, target: str) -> None:
    """Raise WrongLoopError if a loop other than `home` is running here.

    If no loop is running, nothing is raised, because `home` may be about to run.
    """
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        return
    if here is not home:
        running = "runs in another thread" if home.is_running() else "is not running"
        condition = "is closed" if home.is_closed() else running
        raise WrongLoopError(
            f"the channel to {target} was created on another event loop, which {condition}. Create the channel "
            "inside the coroutine that uses it, not before asyncio.run(), and create one for each loop; or submit the "
            "call to the channel's loop with asyncio.run_coroutine_threadsafe()."
        )


if TYPE_CHECKING:

    class Closing(Protocol):
        """What is closed with its event loop at the latest."""

        async def close_at_last(self) -> None:
            """Close, while the loop still runs."""


_open: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[WeakSet[Closing], AsyncGenerator[None, None]]] = (
    WeakKeyDictionary()
)


def close_with(loop: asyncio.AbstractEventLoop, closing: Closing) -> None:
    """Have something closed before the running loop ends, as far as the loop ends like that of `asyncio.run`.

    What a program forgets to close would otherwise report to a closed loop: grpcio then shows a traceback on the next.
    """
    known = _open.get(loop)
    if known is None:
        for ended in [other for other in _open if other.is_closed()]:  # without the end of its generators
            del _open[ended]
        things: WeakSet[Closing] = WeakSet()
        known = _open[loop] = things, _close_at_last(things)
        with suppress(StopIteration):  # begun here, an asynchronous generator is the loop's to finish
            known[1].asend(None).send(None)
    known[0].add(closing)


async def _close_at_last(things: WeakSet[Closing]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        _open.pop(asyncio.get_running_loop(), None)  # the generator refers to its loop, which would live on
        await asyncio.gather(*(thing.close_at_last() for thing in tuple(things)), return_exceptions=True)


async def until_done(*awaited: asyncio.Future[Any], within: float | None = None) -> None:
    """Wait until all of these futures are done, up to `within` seconds; neither cancel them nor raise their errors.

    Those of another loop, which may stand still, are not waited for.

    This replaces `asyncio.wait`: since Python 3.14, a task that is cancelled in that refers to itself, so that whatever
    its frames hold, such as a channel of the core, is left to the garbage collector.
    """
    if not awaited:
        return
    loop = asyncio.get_running_loop()
    running = {future for future in awaited if future.get_loop() is loop}
    if not running:
        return
    over = loop.create_future()

    def end(ended: asyncio.Future[Any] | None = None) -> None:
        if ended is not None:
            running.discard(ended)
        if (ended is None or not running) and not over.done():
            over.set_result(None)

    for future in tuple(running):
        future.add_done_callback(end)
    limit = None if within is None else loop.call_later(within, end)
    try:
        await over
    finally:
        if limit is not None:
            limit.cancel()
        for future in awaited:
            future.remove_done_callback(end)


def raise_soon(error: BaseException, loop: asyncio.AbstractEventLoop) -> None:
    """Raise an error that should end `loop`, from one of the loop's own callbacks."""
    loop.call_soon(_raise, error)


def _raise(error: BaseException) -> None:
    raise error


async def ended_at_home(home: asyncio.AbstractEventLoop, work: Coroutine[object, object, None]) -> bool:
    """Run `work` on the loop `home` and return True once it has finished, or False if that loop stops first.

    Raises:
        Exception: any exception raised by `work`.
    """
    if not home.is_running():
        work.close()
        return False
    ended = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, home))
    while not ended.done() and home.is_running():
        await until_done(ended, within=_LOOK)
    if not ended.done() or ended.cancelled():
        return False
    ended.result()
    return True
