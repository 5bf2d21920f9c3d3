"""The event loop that a channel belongs to: its clock, what runs there, what ends with it, and what another may use.

Like grpc's own channels, a channel belongs to the loop on which it was created: calls and waits work only there.
Closing works on any loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

from grpc_backoff.base.base_errors import WrongLoopError
from grpc_backoff.base.clocks import monotonic

if TYPE_CHECKING:
    from grpc_backoff.connection.clock import TimerHandle

    class Closing(Protocol):
        """What is closed with its event loop at the latest."""

        async def on_loop_end(self) -> None:
            """Close, while the loop still runs."""


_LOOK = 0.1
"""How often to check whether the other loop is still running, in seconds."""
_LATE = 90.0
"""How far a loop's time may lag behind, in seconds: uvloop's clock shows the time at which the loop's turn began."""
_EARLY = 0.001
"""How many seconds a timer may be early: event loops that count in milliseconds round."""


def is_here(home: asyncio.AbstractEventLoop) -> bool:
    """Return whether the calling code runs on the loop `home`."""
    try:
        return asyncio.get_running_loop() is home
    except RuntimeError:
        return False


class LoopClock:
    """An asyncio event loop's clock, and the loop as a `Home`; each loop has one, which `clock_of` returns."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use the loop's own time and timers."""
        self.loop = loop
        # asyncio's own loops use `time.monotonic` as their clock. Call it directly, because every RPC reads the time
        # several times.
        own = getattr(loop.time, "__func__", None) is not asyncio.BaseEventLoop.time
        self.now = loop.time if own else monotonic
        self._punctual = getattr(loop.call_at, "__func__", None) is asyncio.BaseEventLoop.call_at

    @property
    def keeps_time(self) -> bool:
        """Whether the loop's clock is the machine's, which all loops have in common; one for tests may be stopped."""
        return abs(self.loop.time() - monotonic()) < _LATE

    def call_at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` once when the loop's clock reaches `when`, in seconds, or soon after."""
        # Use a new context, because the timer outlives the call that happened to arm it.
        if self._punctual:
            return self.loop.call_at(when, callback, context=Context())
        return _UnhurriedTimer(self.loop, when, callback)

    def post(self, work: Callable[[], None], /) -> None:
        """Run `work` on the loop soon; see `Home.post`."""
        # Use a new context, because the work must not keep the poster's context alive.
        self.loop.call_soon_threadsafe(work, context=Context())

    def is_here(self) -> bool:
        """Return whether the calling code runs on the loop."""
        return is_here(self.loop)

    def is_closed(self) -> bool:
        """Return whether the loop is closed."""
        return self.loop.is_closed()


_clocks: WeakValueDictionary[asyncio.AbstractEventLoop, LoopClock] = WeakValueDictionary()


def clock_of(loop: asyncio.AbstractEventLoop) -> LoopClock:
    """Return the clock of a loop, which is one home, however many channels it has."""
    clock = _clocks.get(loop)
    if clock is None:
        clock = _clocks[loop] = LoopClock(loop)
    return clock


class _UnhurriedTimer:
    """A timer on an event loop whose own timers may be early: Qt's are, by up to a twentieth of their time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, when: float, callback: Callable[[], None]) -> None:
        self._loop, self._when, self._callback, self._context = loop, when, callback, Context()
        self._arm()

    def _arm(self) -> None:
        self._handle: TimerHandle | None = self._loop.call_at(self._when, self._fired, context=self._context)

    def _fired(self) -> None:
        self._handle = None  # its callback refers to this object, which would be left to the collector
        if self._when - self._loop.time() > _EARLY:
            self._arm()
        else:
            self._callback()

    def cancel(self) -> None:
        """Cancel the callback; harmless if it has already run."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


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
        await asyncio.gather(*(thing.on_loop_end() for thing in tuple(things)), return_exceptions=True)


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


def start(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, None],
    kept: set[asyncio.Task[None]],
    context: Context | None = None,
) -> asyncio.Task[None]:
    """Run `work` in a task that is `kept` until it is done, by default in a new context."""
    # A task outlives the call that happened to start it, and must not keep the call's context alive.
    task = (context or Context()).run(loop.create_task, work)
    kept.add(task)
    task.add_done_callback(kept.discard)
    return task


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
