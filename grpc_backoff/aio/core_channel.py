"""What asyncio's connections have in common: one channel of grpcio's C-core, its calls, and the watch on its state."""

from __future__ import annotations

import asyncio
import math
import weakref
from abc import abstractmethod
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from grpc_backoff.aio.finished import fail_call, release_core, release_cores, wait_for_calls
from grpc_backoff.aio.loops import start, until_done
from grpc_backoff.aio.peer_calls import ask_peer, watch_health
from grpc_backoff.engine.gate import GatedConnection
from grpc_backoff.grpcio import aio_private
from grpc_backoff.grpcio.aio_private import STATES
from grpc_backoff.grpcio.private import CANCELLED_DETAILS

if TYPE_CHECKING:
    from grpc_backoff.engine.gate import LivenessReply
    from grpc_backoff.grpcio.shapes import AsyncioCoreCall


class StateWatch:
    """Notices when a channel of the core leaves a state.

    A cancelled watch would remain in the core, which would later report to a loop that may no longer exist. So watches
    are never cancelled; closing the channel ends them.

    Attributes:
        notices: what the core is still to notify.
    """

    __slots__ = ("_loop", "_number", "_state", "notices")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.notices: set[asyncio.Future[object]] = set()
        self._loop = loop
        self._state: int | None = None
        self._number = 0
        """How many states have been watched; only the end of the latest one is told."""

    def begin(self, channel: grpc.aio.Channel, state: int, shown: int, left: Callable[[], None]) -> None:
        """Call `left` when the core has left this state, instead of one that was passed before.

        Both states are the core's integers; `shown` is the current one.
        """
        if self._state == state:
            return
        self._state = state
        self._number += 1
        leave = partial(self._leave, self._number, left)
        if shown == state:
            # Without a task, which a loop that ends would cancel.
            self._advance(channel.wait_for_state_change(STATES[state]), leave)
        else:
            # There is nothing to wait for. A channel without a valid target would never notify, even when it is closed.
            self._loop.call_soon(leave, context=Context())

    def _advance(self, waiting: Any, leave: Callable[[], None], notice: asyncio.Future[object] | None = None) -> None:
        """Go on with `waiting`, a coroutine, after the notice for which it has waited."""
        if notice is not None:
            self.notices.discard(notice)
        try:
            notice = waiting.send(None)
        except (StopIteration, grpc.aio.UsageError):  # the core has left it, or the channel was closed
            self._loop.call_soon(leave, context=Context())
            return
        assert notice is not None, "the core notifies through a future"
        setattr(notice, "_asyncio_future_blocking", False)  # noqa: B010 - as a task does with what it waits for
        self.notices.add(notice)
        notice.add_done_callback(partial(self._advance, waiting, leave), context=Context())

    def _leave(self, number: int, left: Callable[[], None]) -> None:
        if number == self._number:
            self._state = None
            left()


_LAST_NOTICE = 1.0
"""How long to wait for the core's notifications about a closed channel, in seconds; they take a millisecond."""


def _shut_down(_try_to_connect: bool) -> int:
    return aio_private.SHUTDOWN_NUMBER


def _refuse(*_: object, **_named: object) -> object:
    raise grpc.aio.UsageError("the channel was created before a fork")


class _NoChannel:
    """Stands for a channel that belongs to another: to the parent, in the child of a fork, or to a later connection."""

    def unary_unary(self, _method: str) -> Callable[..., Any]:
        return _refuse

    unary_stream = stream_unary = unary_unary

    async def wait_for_state_change(self, _state: object) -> None:
        _refuse()

    async def close(self) -> None:
        """Do nothing."""


NO_CHANNEL: Any = _NoChannel()


class CoreChannel(GatedConnection):
    """One C-core channel, with its calls and the watch on its state: a connection, as far as calls use it."""

    running = 0
    """How many calls are running."""
    served = False
    """Whether the server has answered a call (CB-7). Until then, calls do not take the shortest path, so that answers
    are noticed, and from then on, this costs them nothing."""

    def __init__(self, channel: Any, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        """Take ownership of a new channel; `now` returns the time of the end of a call, in seconds."""
        self.channel: grpc.aio.Channel = channel
        self.check = aio_private.state_check(channel)
        self.used = -math.inf
        """When a call on this channel last ended, in seconds on the connector's clock."""
        self.heard = -math.inf
        """When the peer last showed that it is alive, by an answer or a message; only noted if the peer is watched."""
        self.retired = False
        self.last_state: int | None = None
        """The channel's last state, as the core's integer, once it is closed or given up; None while it is open."""
        self._loop = loop
        self.clock_now = now
        self.owners: dict[weakref.ref[grpc.aio.Call], object] = {}
        """The owners of the calls; a plain dictionary, because the methods of weak ones are written in Python."""
        self.forget = self.owners.pop
        self._unread: list[tuple[weakref.ref[grpc.aio.Call], AsyncioCoreCall]] = []
        """The calls that ended with a status of grpcio's own, and the core's. The core keeps each of them, and so its
        channel, until its responses have been read or it is cancelled, also if the program has dropped the call."""
        self._watch = StateWatch(loop)
        self._tasks: set[asyncio.Task[None]] = set()
        self._liveness_call: asyncio.Task[None] | None = None

    # For subclasses to implement. Both are called until the channel is closed or given up.

    @abstractmethod
    def look(self) -> None:
        """Draw conclusions from a change.

        Changes are the first answer of the server, the end of each call before that, and the end of the last call on a
        retired channel, which is to be closed then.
        """

    @abstractmethod
    def _judge(self, call: grpc.aio.Call) -> bool:
        """Return whether the server has answered a call that has just ended."""

    def _changed(self) -> None:
        if self.last_state is None:
            self.look()

    # Its calls.

    def began(self, call: grpc.aio.Call, owner: object) -> None:
        """Record a call that was just made on this channel, and its owner.

        `multicallables.py` repeats this inline for calls with one request.
        """
        self.running += 1
        self.owners[weakref.ref(call, self.forget)] = owner
        ended = self.ended if self.served else partial(self._first_ended, weakref.ref(call))
        core, writes = aio_private.core_call(call), hasattr(call, "write")
        core.add_done_callback(_once(ended) if writes else ended)
        if writes:
            core.add_done_callback(partial(self._stream_ended, weakref.ref(call)))
        if self.room is not None:
            token = object()
            self.room.add(token)
            core.add_done_callback(partial(self.room.leave, token))

    def ended(self) -> None:
        """Record the end of a call."""
        self.running -= 1
        self.used = self.clock_now()
        if self.retired and not self.running:
            self._changed()

    def _stream_ended(self, reference: weakref.ref[grpc.aio.Call]) -> None:
        """Keep the core's call if its write has failed, so that closing the channel can cancel it."""
        call = reference()
        if call is not None and aio_private.has_stand_in(core := aio_private.core_call(call)):
            self._unread = [pair for pair in self._unread if aio_private.has_stand_in(pair[1])]
            self._unread.append((reference, core))

    def _first_ended(self, reference: weakref.ref[grpc.aio.Call]) -> None:
        """Record the end of a call that began before the server had answered one."""
        call, served = reference(), self.served
        if call is not None and not served and self.last_state is None:
            self.served = self._judge(call)
        self.ended()
        if not served:
            self._changed()

    def note_answer(self) -> None:
        """Record that the server has answered a call."""
        if not self.served:
            self.served = True
            self._changed()

    def calls(self) -> list[tuple[grpc.aio.Call, object]]:
        """Return every call made on this channel that is still referenced, finished or not, with its owner."""
        owners = self.owners.copy()  # as garbage, calls may disappear at any time
        return [(call, owner) for reference, owner in owners.items() if (call := reference()) is not None]

    def retire(self) -> None:
        """Accept no new calls; `look` once the running ones have ended."""
        if not self.retired:
            self.retired = True
            if not self.running:
                self._changed()

    def shown(self) -> int:
        """Return the channel's state, or its last one if it is closed, as the integer that grpcio's core uses."""
        return (self.gated or self.check)(False) if self.last_state is None else self.last_state

    def quiet(self) -> float:
        """Return for how many seconds nothing has arrived from the peer; infinity if nothing has, or if unwatched."""
        return self.clock_now() - self.heard

    def hear(self) -> None:
        """Note that something has arrived from the peer."""
        self.heard = self.clock_now()

    def ask(self, within: float, tell: Callable[[LivenessReply], object]) -> None:
        """Ask whether the peer is alive; see `GatedConnection.ask` (LV-1)."""
        self._liveness_call = start(self._loop, ask_peer(self.channel, within, self.clock_now, tell), self._tasks)

    def listen(self, request: bytes, hear: Callable[[Any], object]) -> Callable[[], object]:
        """Begin a health Watch; see `GatedConnection.listen` (RO-1)."""
        return start(self._loop, watch_health(self.channel, request, hear), self._tasks).cancel

    def fail(self, details: str) -> None:
        """End every call with UNAVAILABLE, because the peer is dead (PO-2)."""
        for call, _ in self.calls():
            fail_call(call, details)

    def leave_alone(self) -> object:
        """Accept no calls and do not touch the core any more: it belongs to another process; return what to keep."""
        kept = self._let_go(), self._tasks, self.calls(), self._unread
        self._tasks, self.owners, self._unread, self._liveness_call, self.running = set(), {}, [], None, 0
        return kept

    def is_used(self) -> bool:
        """Return whether calls or watches use the channel now."""
        return bool(self.running or self._unread or self._tasks or self._watch.notices)

    def give_up(self) -> grpc.aio.Channel:
        """Leave the open channel to another owner, and take it for closed; finished calls release it."""
        for call, _ in self.calls():
            release_core(call)
        return self._let_go()

    def _let_go(self) -> grpc.aio.Channel:
        """Take the channel for closed, and return it to be kept or used by another owner."""
        self.retired, self.gated, self.last_state = True, None, aio_private.SHUTDOWN_NUMBER
        self.check = _shut_down
        channel, self.channel = self.channel, NO_CHANNEL
        return channel

    async def close_channel(self, grace: float | None = None, *, lost: bool = False) -> None:
        """Give the calls up to `grace` seconds to finish, then close the channel; nothing of it stays in the core.

        If the connection was `lost`, a call whose write has failed may still wait for the server's status.

        Cancelling this ends the grace period but still closes the channel, because nothing else would close it.
        """
        running = [call for call, _ in self.calls() if not call.done()] if grace else []
        try:
            if grace and running:  # before 1.8x, grpcio's own grace period misses some calls
                await wait_for_calls(running, grace)
        finally:
            self.last_state = self.shown()
            await self.channel.close()
            if self.running:  # before 1.8x, grpcio does not cancel calls that no task is waiting for
                for call, _ in self.calls():
                    call.cancel()
            while self._unread:  # keep none of them, because each keeps the core's channel
                reference, core = self._unread.pop()
                if not lost or reference() is None:
                    core.cancel(CANCELLED_DETAILS)
            if self.owners:
                await release_cores([call for call, _ in self.calls()])
            if self._liveness_call is not None:  # before 1.8x, grpcio does not end a call that waits for its connection
                self._liveness_call.cancel()
            await until_done(*self._tasks, *self._watch.notices, within=_LAST_NOTICE)

    async def on_loop_end(self) -> None:
        """Close the channel because its event loop ends, so that the core reports nothing to the loop after that."""
        await self.close_channel()
        self.last_state = aio_private.SHUTDOWN_NUMBER

    async def end_calls(self, owner: object, grace: float | None) -> None:
        """Give one owner's calls up to `grace` seconds to finish, then cancel them; the channel stays open."""
        own = [call for call, whose in self.calls() if whose is owner]
        running = [call for call in own if not call.done()]
        try:
            if running:
                await wait_for_calls(running, grace or 0.0)
        finally:
            for call in running:
                call.cancel()
            await release_cores(own)


def _once(callback: Callable[[], None]) -> Callable[[], None]:
    """Let a callback run once: grpcio 1.63 calls back twice if a write fails before the server's status arrives."""
    left = [callback]
    return lambda: left.pop()() if left else None
