"""Dials with grpcio's C-core: each attempt is a separate C-core channel, which READY calls then use directly.

The core dials on a schedule of its own, so most of this module limits each channel to one attempt:

* `grpc.use_local_subchannel_pool` keeps a channel from sharing a subchannel, and so a backoff, with others.
* After a failure the core would dial again on its own schedule. The options set its next dial after the attempt's
  limit; by then the machine has long dropped the channel.
* A dropped channel closes its sockets at once, except while it waits for SETTINGS: then only the core's own limit
  closes them. That limit is a little later than ours. So the socket is closed soon after the attempt is abandoned
  (CB-3), but never before that, because at its own limit the core would dial again immediately.

Inner channels come from the real constructors, not from the public names that tracing libraries replace. Tracing
belongs in front of pending calls, where it sees each call once and as a whole (`front.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import math
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import lru_cache
from typing import Any

import grpc
import grpc.aio

from grpc_backoff.aio.core_channel import CoreChannel, complete
from grpc_backoff.aio.grpcio import READY_NUMBER, own_channel
from grpc_backoff.calls.core_words import Link
from grpc_backoff.config.pairs import first_values
from grpc_backoff.config.target import core_target
from grpc_backoff.connection.clock import Clock
from grpc_backoff.connection.connector import ConnectError, Loss
from grpc_backoff.connection.core_options import (
    CORE_LIMIT_SLACK,
    attempt_options,
    resolver_configures,
    spreads_calls,
)
from grpc_backoff.connection.core_reason import reason_in, stage_of
from grpc_backoff.connection.events import Failure
from grpc_backoff.policy.connect import ConnectPolicy

Options = Sequence[tuple[str, Any]]

try:
    _observability: Any = importlib.import_module("grpc._observability")
except ImportError:  # a release of grpcio that does not count calls
    _observability = None

_READY = grpc.ChannelConnectivity.READY
_IDLE = grpc.ChannelConnectivity.IDLE
_CONNECTING = grpc.ChannelConnectivity.CONNECTING
_TRANSIENT_FAILURE = grpc.ChannelConnectivity.TRANSIENT_FAILURE
_SHUTDOWN = grpc.ChannelConnectivity.SHUTDOWN

# The time limits that coordinate this module with the core; their relative order matters.

_SETTLE = 0.001
"""How long a new connection is observed before calls may use it, in seconds, if the previous one was not short-lived.

If a connection breaks just as a call is assigned to it, the core redials at once by itself (CB-7). A peer that hangs up
right after its SETTINGS has done so by the end of this time.
"""
_LOOKS = (0.001, 0.002)
"""The pauses before an attempt is polled, in seconds. After the last one, polling stops, and the core must notify."""
_LOOKS_IN_USE = (0.003, 0.007)
"""The pauses before an attempt is polled if a call was made on it, in seconds; the call's end also shows the outcome.
"""
_BEGINS_WITHIN = 0.25
"""How long a core that was told to dial may stay IDLE, in seconds. If it is still IDLE then, it has connected and
disconnected."""
_CALLS_BREAK_WITHIN = 0.02
"""How soon the calls of a broken connection have ended, in seconds. Calls that run longer have survived a GOAWAY."""
_CALLS_ARE_REFUSED_WITHIN = 0.1
"""How long a GOAWAY can still end calls after a late loop has noticed the end of the connection, in seconds."""
_SHORT_LIFE = 0.1
"""The lifetime below which a connection counts as short-lived, in seconds. The connection that follows a short-lived
one is observed for this long."""
_IDLE_SHARE = 0.9
"""The fraction of the idle timeout that counts as all of it, because a late loop notices a call's end after the core.
"""
_EXPLAIN_TIMEOUT = 0.25

_MOST_DERIVED = 256
"""The maximum number of cached entries, each with the values derived from one target and its options."""

_NO_ANSWER = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED}
"""The status codes with which a call can end without an answer from the server."""
_BROKEN = "the peer closed it, or the network failed"
_EXPLAIN_SERVICE = "grpc_backoff.WhyIsThereNoConnection"
_EXPLAIN_METHOD = f"/{_EXPLAIN_SERVICE}/Ask"
_MORE_THAN_THE_RETRY_BUFFER = bytes(256 * 1024 + 1)
with contextlib.suppress(AttributeError):  # a release of grpcio that does this differently, or not at all
    _observability._SERVICES_TO_EXCLUDE.append(_EXPLAIN_SERVICE.encode())  # noqa: SLF001


class CoreConnection:
    """One connection of a C-core channel, from SETTINGS to its end."""

    def __init__(self, core: CoreChannel, since: float, owner: CoreConnector, limit: float) -> None:
        """Store the arguments. SETTINGS arrived at `since`; `limit` was the attempt's time limit, in seconds."""
        self.core = core
        self.retire = core.retire
        self._limit = limit
        self._since = since
        self._owner = owner
        self._now = owner.clock.now
        self._state = core.state
        self._stable_after = owner.policy.stable_after
        self._served = False
        self._loss: Loss | None = None
        self._seen_ended = math.inf
        self._state_after: grpc.ChannelConnectivity | None = None

    def alive(self) -> bool:
        """Return whether the connection is up in the core right now."""
        return self.core.check(False) == READY_NUMBER

    def just_ended(self) -> bool:
        """Return whether the connection has ended only just now, as far as this loop can tell."""
        if self.alive():
            return False
        self._see_ended()
        return self._now() - self._seen_ended < _CALLS_ARE_REFUSED_WITHIN

    def _see_ended(self) -> None:
        self._seen_ended = min(self._seen_ended, self._now())

    def redialled_in_vain(self) -> bool:
        """Return whether the core has redialled, without success, for a call assigned just as this connection broke.

        Call this at the moment when such a call ends. If the call was answered, on any connection, the core is in
        another state.
        """
        return (self.core.last_state or self._state()) is _TRANSIENT_FAILURE

    def link(self) -> Link:
        """Return the connection's state. Call this at the moment when a call ends."""
        if self.redialled_in_vain():
            return Link.UNREACHABLE
        return Link.BROKEN if self.just_ended() else Link.OPEN

    def last_used(self) -> float:
        """Return when a call last used the connection, in seconds on the channel's clock: now, if a call is running."""
        return self._now() if self.core.running else self.core.left

    @property
    def on_end(self) -> Callable[[grpc.aio.Call], None] | None:
        """The function to call when a call on this connection has ended; None without a `stable_after`."""
        return self._ended if self._stable_after else None

    def _ended(self, call: grpc.aio.Call) -> None:
        if not self._served and self._on_probation():
            self._owner.spawn(self._judge(call))

    async def _judge(self, call: grpc.aio.Call) -> None:
        """Record whether the server answered a call: any answer shows that the connection is usable (CB-8)."""
        self._served = self._served or await call.code() not in _NO_ANSWER

    def _on_probation(self) -> bool:
        return self._now() - self._since < self._stable_after

    def loss(self) -> Loss | None:
        """Return how the connection ended; None while that is unknown."""
        if self._loss is None and not self.alive() and (self._served or not self._on_probation()):
            self._loss = self._describe()
        return self._loss

    def _describe(self) -> Loss:
        self._note_state()
        unused = self._now() - max(self.last_used(), self._since)
        if unused >= _IDLE_SHARE * self._owner.policy.idle_timeout:
            return Loss("it reached the idle timeout", graceful=True)  # the core closes it then (CB-14)
        return Loss(_BROKEN, served=self._served)

    def _note_state(self) -> None:
        if self._state_after is None:
            self._state_after = self._state()
            self.core.watch(self._state_after)  # from now on: the core may dial before the next check

    async def lost(self) -> Loss:
        """Wait until the core has seen the connection end; return how it ended.

        Any change away from READY means that it has ended, even if a call has made the core READY again by the time of
        the check.
        """
        if self.alive():
            await self.core.leaves(_READY)
        self._see_ended()
        self._owner.note_life(self._now() - self._since)
        loss = self.loss() or self._describe()
        if loss is not self._loss and self._on_probation():
            loss = await self._look_for_goaway(loss)
        self._loss = loss
        return loss

    async def _look_for_goaway(self, loss: Loss) -> Loss:
        """Return the loss, marked as graceful if calls are still running a moment later (CB-8).

        The core does not distinguish a GOAWAY from a broken connection, but calls survive only a GOAWAY. If the core
        has left IDLE, running calls prove nothing, because they may be waiting for a connection that the core is
        dialling.
        """
        await asyncio.sleep(_CALLS_BREAK_WITHIN)
        stayed_idle = self._state() is _IDLE
        return loss._replace(graceful=self.core.running > 0 and stayed_idle, served=self._served)

    async def watch_redials(self, tell: Callable[[], None]) -> None:
        """Call `tell` each time that the core redials by itself; see `Connection.watch_redials`.

        The core redials if the connection ends just as a call is assigned to it, and for a call that the core itself
        repeats. If that fails while calls from before a GOAWAY are still running, the core continues on its own
        schedule until they end.
        """
        core, every = self.core, self._limit + CORE_LIMIT_SLACK
        before, state = _READY, self._state_after or self._state()
        due = math.inf
        while state is not _SHUTDOWN:
            if _has_dialled(before, state):
                due = self._now() + every
                tell()
            before = state
            while not await core.leaves(before, due - self._now() if before is _TRANSIENT_FAILURE else None):
                due += every
                tell()
            state = self._state()
        if core.last_state is not before and _has_dialled(before, core.last_state):
            tell()  # and its call has ended since the last check


def _has_dialled(before: grpc.ChannelConnectivity, after: grpc.ChannelConnectivity | None) -> bool:
    """Return whether the core started to dial between two checks, given the state that each check found.

    The second check came after the core had left the first state. In TRANSIENT_FAILURE, the core dials again without a
    change of state, when its own backoff is over.
    """
    if after is _CONNECTING:
        return True
    if after is _READY:
        return before not in (_CONNECTING, _TRANSIENT_FAILURE)
    if after is _IDLE:
        return before is _IDLE
    return after is _TRANSIENT_FAILURE and before is not _CONNECTING


@lru_cache(_MOST_DERIVED)
def _derived(target: str, options: Options) -> tuple[str, bool, bool]:
    """Return the target for the core, the result of `spreads_calls`, and whether there is a service config.

    They are cached, because a program may create a channel with the same target and options for each request.
    """
    named = first_values(options)
    dialled = target if resolver_configures(target, named) else core_target(target)
    return dialled, spreads_calls(target, named), "grpc.service_config" in named


class CoreConnector:
    """Creates one C-core channel for each attempt."""

    def __init__(
        self,
        target: str,
        credentials: grpc.ChannelCredentials | None,
        options: Options,
        compression: grpc.Compression | None,
        policy: ConnectPolicy,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Store the arguments for every attempt's channel; `options` are grpcio's own."""
        self._credentials = credentials
        self._options = tuple(options)
        self._compression = compression
        self.policy = policy
        self.clock = clock
        self.loop = loop
        self._target = target
        try:
            derived = _derived(target, self._options)
        except TypeError:  # the value of an option is not hashable
            derived = _derived.__wrapped__(target, self._options)
        self._core_target, self._spreads, self._has_service_config = derived
        self._last_life = math.inf
        self._failed = False
        """Whether the last attempt with an outcome failed."""
        self._attempt: CoreChannel | None = None
        self._begun: CoreChannel | None = None
        self._open: set[CoreChannel] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def connect(self, limit: float, *, proven: bool = False) -> CoreConnection:
        """Make one attempt; see `Connector.connect`.

        This uses a new channel, which is not reused once its attempt has failed or its connection is lost. After a
        failure, a core channel would dial by itself (CB-1), and only the addresses that it already knows (CH-8).
        """
        begun, self._begun = self._begun, None
        core = self._attempt = begun or self._dial(limit)
        end = self.clock.now() + limit
        try:
            await self._until_connected(core)
            since = self.clock.now()
            if not proven or self._last_life < _SHORT_LIFE:
                await self._look_at(core, within=end - since)
        except BaseException:
            await core.close()
            raise
        finally:
            if self._attempt is core:
                self._attempt = None
        self._open.add(core)
        return CoreConnection(core, since, self, limit)

    def begin(self, limit: float) -> None:
        """Begin to dial before `connect` is called; see `EarlyEntry.begin`."""
        with contextlib.suppress(Exception):  # raised again, and reported, when `connect` dials
            self._begun = self._dial(limit)

    def enter(self, limit: float) -> CoreChannel | None:
        """Return the attempt in flight for calls to enter; see `EarlyEntry.enter`."""
        if self.policy.stable_after or self._last_life < _SHORT_LIFE:
            return None  # calls may use the connection only after it has been observed
        core = self._attempt
        if core is None:
            core = self._begun = self._begun or self._dial(limit)
        elif core.state() not in (_CONNECTING, _READY):
            return None  # the core is IDLE once its connection has ended: a call would make it dial again
        return core

    def abandon(self) -> None:
        """Abandon an attempt that a call has entered, unless `connect` has taken it over."""
        core, self._begun = self._begun, None
        if core is not None:
            self.spawn(core.close())
        self._attempt = None

    def decided(self) -> bool:
        """Return whether the core has an outcome; see `Connector.decided`."""
        return self._attempt is not None and self._attempt.state() is not _CONNECTING

    async def close(self, grace: float | None) -> None:
        """Give all calls up to `grace` seconds to finish, and close every channel."""
        channels, self._open = self._open, set()
        if len(channels) == 1 and not self._tasks:  # the usual case; a task would take turns of the loop
            await channels.pop().close(grace)
        else:
            await asyncio.gather(*(core.close(grace) for core in channels), *self._tasks)

    async def end_calls(self, owner: object, grace: float | None) -> None:
        """Give one channel's calls up to `grace` seconds to finish, then cancel them; connections stay open (SH-7)."""
        await asyncio.gather(*(core.end_calls(owner, grace) for core in self._open))

    def note_life(self, seconds: float) -> None:
        """Record how many seconds the last connection lasted."""
        self._last_life = seconds

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to completion, unless the loop is closed: garbage-collected calls may end that late."""
        if self.loop.is_closed():
            work.close()
            return
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def drained(self, core: CoreChannel) -> None:
        """Close a retired channel whose calls have ended."""
        if core in self._open:
            self._open.discard(core)
            self.spawn(core.close())

    async def _until_connected(self, core: CoreChannel) -> None:
        first, *pauses = _LOOKS_IN_USE if core.running else _LOOKS
        idle = core.state() is _IDLE
        if idle and not (core.running or self._failed):
            # If the connection comes and goes before the first look, only a notification shows that the core has
            # started. In backoff, that is not worth the cost of a notification for every attempt.
            core.watch(_IDLE)
        await self._pause(core, first)
        state = core.state()
        if idle and state is _IDLE:
            # Either the core has not started yet, or it has connected and lost the connection again. In the second
            # case, it will not notify, unless it was watched from the start.
            await core.leaves(_IDLE, _BEGINS_WITHIN)
            state = core.state()
        core.forget_watch()  # it has seen this dial, and later watches are for the core's own redials
        if state is _CONNECTING:
            state = await self._look_for_outcome(core, pauses)
        while state is _CONNECTING:
            await core.leaves(state)
            state = core.state()
        self._failed = state is _TRANSIENT_FAILURE
        if self._failed:
            raise ConnectError(await self._explain(core))
        # The state is READY, or IDLE if the connection was lost before this check.

    async def _look_for_outcome(self, core: CoreChannel, pauses: Iterable[float]) -> grpc.ChannelConnectivity:
        """Poll for a nearby peer's outcome, because a notification would also wake the core's thread and the loop."""
        state = _CONNECTING
        for pause in pauses:
            await self._pause(core, pause)
            state = core.state()
            if state is not _CONNECTING:
                break
        return state

    async def _pause(self, core: CoreChannel, seconds: float) -> None:
        """Wait this many seconds, or until a call made on the attempt has ended, which also shows the outcome."""
        ended = core.first_end = self.loop.create_future()
        timer = self.loop.call_later(seconds, complete, ended)
        try:
            await ended
        finally:
            timer.cancel()
            core.first_end = None

    async def _look_at(self, core: CoreChannel, within: float) -> None:
        """Give a short-lived connection a moment to end, but not so long that a success would miss the limit."""
        # After a short-lived connection, wait long enough to see this one break too, even on a busy machine.
        look = _SHORT_LIFE if self._last_life < _SHORT_LIFE else _SETTLE
        await core.leaves(_READY, min(look, within / 2))

    def _dial(self, limit: float) -> CoreChannel:
        core = CoreChannel(self._make_channel(limit), self.loop, self.clock.now, self.drained)
        core.state(try_to_connect=True)
        return core

    def _make_channel(self, limit: float) -> grpc.aio.Channel:
        options = (
            ("grpc.use_local_subchannel_pool", 1),
            *attempt_options(self.policy, limit, spreads=self._spreads),
            *self._options,
        )
        # A grpcio plugin that counts calls receives this channel's target, so it must be the target that the user gave.
        target = self._core_target if getattr(_observability, "_OBSERVABILITY_PLUGIN", None) is None else self._target
        return own_channel(target, self._credentials, options, self._compression)

    async def _explain(self, core: CoreChannel) -> Failure:
        """Return the reason why a channel failed, which can only be read from the error of a call made on it.

        The call never leaves the process, and grpcio's own metrics do not count it. If there is a service config, the
        call's request is larger than the retry buffer, because a retry policy would otherwise retry the call.
        """
        request = _MORE_THAN_THE_RETRY_BUFFER if self._has_service_config else b""
        reason = "the core gave no reason"
        try:
            ask: Callable[..., Any] = core.channel.unary_unary(_EXPLAIN_METHOD)
            question = ask(request, wait_for_ready=False, timeout=_EXPLAIN_TIMEOUT)
            core.began(question, None)
            await question
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                reason = reason_in(error.details() or reason)
        return Failure(stage_of(reason), reason)
