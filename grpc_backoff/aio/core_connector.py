"""Dials with grpcio's C-core: each attempt is a separate C-core channel, which READY calls then use directly.

The core dials on a schedule of its own, so most of this module limits each channel to one attempt:

* `grpc.use_local_subchannel_pool` keeps a channel from sharing a subchannel, and so a backoff, with others.
* After a failure the core would dial again on its own schedule. The options set its next dial to two thirds of its own
  limit or later; by then, the connection's machine has long dropped the channel, unless this process is late.
* A dropped channel closes its sockets at once, except while it waits for SETTINGS: then only the core's own limit
  closes them. That limit is a little later than ours. So the socket is closed soon after the attempt is abandoned
  (CB-3), but never before that, because at its own limit the core would dial again immediately.

When to look at the core, and what its states mean, is decided by `dial_machine`; here its effects are executed.

Inner channels come from the real constructors, not from the public names that tracing libraries replace. Tracing
belongs in front of pending calls, where it sees each call once and as a whole (`interceptor_channel.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import TYPE_CHECKING
from weakref import WeakSet

import grpc
import grpc.aio

from grpc_backoff.aio.core_channel import NO_CHANNEL, CoreChannel
from grpc_backoff.aio.loops import LoopClock, close_with, is_here, start, until_done
from grpc_backoff.base.status import Loss
from grpc_backoff.config.core_options import CoreArguments
from grpc_backoff.decide.calls.call_texts import pays, says_goaway, shows_life
from grpc_backoff.decide.connections import dial_machine as m
from grpc_backoff.decide.connections.dial_texts import EXPLAIN_METHOD, EXPLAIN_SERVICE
from grpc_backoff.decide.connections.dial_times import EXPLAIN_TIMEOUT
from grpc_backoff.engine.core_connector import BaseConnector, Tell
from grpc_backoff.engine.core_dial import CoreDial, LateDial
from grpc_backoff.engine.gate import unheard
from grpc_backoff.engine.spares import SPARES, SpareChannel
from grpc_backoff.grpcio import aio_private
from grpc_backoff.grpcio.private import exclude_service, has_plugin

if TYPE_CHECKING:
    from grpc_backoff.connection.connector import AttemptInFlight
    from grpc_backoff.engine.setup import PoolSetup

exclude_service(EXPLAIN_SERVICE)

connections: WeakSet[CoreConnection] = WeakSet()
"""The dials of this process that are complete, and so all of its connections."""


class CoreConnection(CoreChannel, CoreDial):
    """One dial of a C-core channel, and the connection that it makes."""

    _connector: CoreConnector

    def __init__(self, owner: CoreConnector, limit: float, tell: Tell[CoreConnection]) -> None:
        """Start to dial; `limit` is the attempt's time limit, in seconds. `tell` is called with the outcome."""
        CoreDial.__init__(self, owner, tell)
        channel, made, self._spare_key = owner.channel_for(limit)
        CoreChannel.__init__(self, channel, owner.loop, owner.setup.clock.now)
        self._closing = False
        self._explaining: grpc.aio.Call | None = None
        close_with(owner.loop, self)  # otherwise, the core would go on dialling after the loop's end
        self.check(True)
        self.begin(limit, made)
        connections.add(self)  # last, because another thread may fork at any point

    # The connection.

    def last_used(self) -> float:
        """Return when a call last used the connection, in seconds on the channel's clock: now, if a call is running."""
        return self.clock_now() if self.running else self.used

    def _judge(self, call: grpc.aio.Call) -> bool:
        status = aio_private.status_of(call)
        code, details = status.code().name, status.details() or ""
        if pays(code, details) and not aio_private.is_stand_in(status):
            return True
        self._dropped = self._dropped or shows_life(code)
        self._refused = self._refused or says_goaway(code, details)
        return False

    @property
    def times_calls(self) -> bool:
        """Whether the ends of calls are to be recorded with the times when they began (LV-2)."""
        return self.unanswered is not unheard

    def timed_call_ended(self, began: float, call: grpc.aio.Call) -> None:
        """Record the end of a call that began at the time `began`, in seconds on the channel's clock (LV-2)."""
        if shows_life(aio_private.code_of(call)):
            self.hear()
        else:
            self.unanswered(began, self.heard)

    def loss(self) -> Loss | None:
        """Return how the connection ended; None while that is unknown."""
        if not self.alive():
            self.look()
        return self._loss

    def retire(self) -> None:
        """Accept no new calls; close once the running ones have ended."""
        self.feed(m.Retire())
        super().retire()

    async def close(self, grace: float | None) -> None:
        """Give the calls up to `grace` seconds to finish, then close the channel."""
        self._closing = True
        self._abandon_connection(used=self.is_used() or not is_here(self._loop))
        if self.channel is NO_CHANNEL:  # it has become a spare one
            return
        try:
            await self.close_channel(grace)
        except asyncio.CancelledError:
            self._connector.spawn(self.close_channel())  # each await of a cancelled scope of anyio is cancelled
            raise

    def leave_alone(self) -> object:
        """Do not touch the core any more, because it belongs to another process; return what to keep (FK-1)."""
        self._cancel_timer()
        self._state = self._state._replace(phase=m.DialPhase.CLOSED)
        return super().leave_alone()

    # Driving the machine.

    def look(self, *, left: bool = False) -> None:
        """Step the machine with what the core shows; `left` is as in `Looked`."""
        if self._loop.is_closed():
            return  # garbage-collected calls may end that late
        unused = self.clock_now() - self.last_used()
        self.feed(m.Looked(self.shown(), self.running, unused, self.served, self._refused, self._dropped, left))

    def _notify_on(self, shown: int) -> None:
        self._watch.begin(self.channel, shown, self.shown(), self._left_state)

    def _left_state(self) -> None:
        if self.last_state is None:
            self.look(left=True)

    def _explain(self) -> None:
        ask: Callable[..., grpc.aio.Call] = self.channel.unary_unary(EXPLAIN_METHOD)
        question = ask(self._connector.traits.question, wait_for_ready=False, timeout=EXPLAIN_TIMEOUT)
        self.began(question, None)
        question.add_done_callback(self._explained)
        self._explaining = question  # if nothing refers to a call, grpcio cancels it

    def _explained(self, question: grpc.aio.Call) -> None:
        self._explaining = None  # a call that is referenced keeps the closed channel alive
        status = aio_private.status_of(question)
        self.feed(m.Explained(status.code().name, status.details() or ""))

    def _dispose(self, *, spare: bool) -> None:
        if spare and self._spare_key is not None and self.last_state is None:  # it has not been closed
            SPARES.keep(self._spare_key, LoopSpare(self.give_up(), self._state.since, self._loop))
        elif not self._closing:
            self._connector.spawn(self.close_channel(lost=True))


class PingingConnection(CoreConnection):
    """A connection with keepalive, whose server may complain about pings: only its calls pay for a look at that."""

    def ended(self) -> None:
        """Look for a complaint, then record the end of a call."""
        if self.last_state is None:
            self._read_complaints()
        super().ended()

    def _read_complaints(self) -> None:
        if not self._complained and not self.alive():
            for call, _ in self.calls():
                if call.done():
                    self._heed(aio_private.details_of(call))


class LoopSpare(SpareChannel):
    """A spare channel of an event loop, where it is freed."""

    def __init__(self, channel: grpc.aio.Channel, made: float, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(channel, made, aio_private.state_check, aio_private.close_unused)
        self._loop = loop

    def close(self) -> None:
        """Close the channel; any thread may do so."""
        super().close()
        if self._loop.is_running() and not is_here(self._loop):  # grpcio's poller ends with its last channel there
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._free)
        else:
            self._free()

    def _free(self) -> None:
        del self.channel


class SoonDial(LateDial[CoreConnection]):
    """An attempt that begins in the loop's next turn: until then, a listener may still stop the channel."""

    def __init__(self, owner: CoreConnector, limit: float, tell: Tell[CoreConnection]) -> None:
        """Take the arguments of `CoreConnection`."""
        super().__init__(owner, tell)
        # Use a new context, because the connection outlives the call that happened to ask for it.
        self._waits = owner.loop.call_soon(self._begin, limit, context=Context())


class CoreConnector(BaseConnector[CoreConnection]):
    """Creates one C-core channel for each attempt."""

    notifies = True

    def __init__(self, setup: PoolSetup, endpoint: str, home: LoopClock) -> None:
        """Take the arguments of `BaseConnector`."""
        super().__init__(setup, endpoint, home)
        self.loop = home.loop
        self._tasks: set[asyncio.Task[None]] = set()

    def connect(self, limit: float, tell: Tell[CoreConnection]) -> AttemptInFlight:
        """Start one attempt in the loop's next turn; see `BaseConnector.connect`."""
        return SoonDial(self, limit, tell) if self._source is None else super().connect(limit, tell)

    def dial(self, limit: float, tell: Tell[CoreConnection]) -> CoreConnection:
        """Start one attempt; see `BaseConnector.dial`."""
        return (PingingConnection if self.traits.pings else CoreConnection)(self, limit, tell)

    async def close(self, grace: float | None) -> None:
        """Give all calls up to `grace` seconds to finish, then close every channel."""
        connections = tuple(self.open)  # each stays there until its own closing has begun
        if len(connections) == 1:  # the usual case; a task would take turns of the loop
            await connections[0].close(grace)
        else:
            await asyncio.gather(*(connection.close(grace) for connection in connections))
        await until_done(*self._tasks)  # which, unlike `gather`, does not cancel them

    async def end_calls(self, owner: object, grace: float | None) -> None:
        """Give one channel's calls up to `grace` seconds to finish, then cancel them; connections stay open (SH-7)."""
        await asyncio.gather(*(connection.end_calls(owner, grace) for connection in self.open))

    # For its connections.

    def make_channel(self, arguments: CoreArguments) -> grpc.aio.Channel:
        """Return a new channel of the core for one attempt."""
        target, options, compression = arguments
        # A grpcio plugin that counts calls receives this channel's target, so it must be the target that the user gave.
        target = target if has_plugin() else self.traits.target
        return aio_private.core_channel(target, self.credentials, options, compression)

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run a coroutine to completion, unless the loop is closed: garbage-collected calls may end that late."""
        if self.loop.is_closed():
            work.close()
        else:
            start(self.loop, work, self._tasks)
