"""The environment that one channel's calls share, for both APIs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextvars import Context
from functools import cached_property
from sys import modules
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import grpc

from grpc_backoff.base.process import CHANCE, after_fork
from grpc_backoff.config.channel_setup import ChannelSetup, Listener
from grpc_backoff.config.remarks import doubts, warn_of
from grpc_backoff.decide.calls.call_machine import ChannelClosing
from grpc_backoff.decide.calls.call_texts import says_calm
from grpc_backoff.engine.pending import Fed, PendingCalls
from grpc_backoff.grpcio.private import has_plugin
from grpc_backoff.policy.backoff import Random
from grpc_backoff.telemetry.log import logs_info
from grpc_backoff.telemetry.trace import OPENTELEMETRY

if TYPE_CHECKING:
    from grpc_backoff.connection.clock import Clock, TimerHandle
    from grpc_backoff.decide.calls.budget import RetryTokens
    from grpc_backoff.decide.calls.events import CallEvent
    from grpc_backoff.decide.calls.resets import Calm
    from grpc_backoff.engine.hooks import ChannelHooks
    from grpc_backoff.engine.losers import Copy, Losers
    from grpc_backoff.grpcio.call_counter import CallCounter
    from grpc_backoff.grpcio.call_errors import NoConnectionError
    from grpc_backoff.grpcio.private import Status
    from grpc_backoff.policy.retry import RetryPolicy

    class ListenersOfChannel(Protocol):
        """The listeners of one channel."""

        listeners: list[Listener]

        def hear_of_call(self, event: CallEvent) -> None:
            """Log an event of a call and pass it to the listeners."""
            ...


class CallEnvironment:
    """The environment that one channel's calls share: everything that their machines need besides inputs.

    Attributes:
        pending: the pending calls.
        hooks: runs the program's hooks; None if the channel has none.
        emit: logs an event of a call and passes it to the channel's listeners.
        clock: the channel's clock.
        now: returns the time on that clock, in seconds.
        rng: the source of jitter.
        tokens: the target's remaining retry budget; None for no limit.
        replay_limit: how many bytes of a stream's requests are buffered.
        stands_in: whether this library repeats calls that a GOAWAY rejected, because the core does not (RT-10).
        wall_clock: returns the seconds since the epoch, for server hints that are dates.
        closing: whether the channel is closing.
        losing: the copies of hedged calls that have lost and still run.
    """

    _doubted: frozenset[tuple[str, str]] = frozenset()
    _counting: ClassVar = threading.RLock()
    """Held while tokens are counted, because channels of several threads and event loops share them."""

    def __init__(
        self,
        setup: ChannelSetup,
        *,
        pending: PendingCalls,
        hooks: ChannelHooks | None,
        listeners: ListenersOfChannel,
        clock: Clock,
    ) -> None:
        policies = setup.call_policies
        self.pending = pending
        self.hooks = hooks
        self.listeners = listeners
        self.emit: Callable[[CallEvent], None] = listeners.hear_of_call
        self.clock = clock
        self.now = clock.now
        self.rng: Random = setup.rng or CHANCE
        self.tokens: RetryTokens | None = None
        if policies.budget:
            from grpc_backoff.decide.calls.budget import tokens_of  # noqa: PLC0415 - few channels have one

            guard = lambda: CallEnvironment._counting  # noqa: E731 - the child of a fork has another
            self.tokens = tokens_of(setup.target, policies.budget, guard)
        self.replay_limit = policies.replay_limit
        self.stands_in = policies.stand_in()
        self.wall_clock = time.time
        self.closing = False
        self.losing: set[Losers[Copy]] = set()
        self._calm_key = setup.target if setup.clock is None else None
        self._counter: CallCounter | None = None
        if has_plugin():
            from grpc_backoff.grpcio.call_counter import CallCounter  # noqa: PLC0415 - few programs have a plugin

            self._counter = CallCounter(setup.target)
        self._between: dict[Any, None] = {}  # calls of one API

    @property
    def observed(self) -> bool:
        """Whether the channel has any listeners besides the log."""
        return len(self.listeners.listeners) > 0

    @property
    def heard(self) -> bool:
        """Whether a listener, the log or a span receives events of calls that are repeated."""
        return len(self.listeners.listeners) > 0 or logs_info() or OPENTELEMETRY in modules

    @cached_property
    def calm(self) -> Calm:
        """Whether the target's server has asked for calm (HG-11)."""
        from grpc_backoff.decide.calls.resets import Calm, calm_of  # noqa: PLC0415 - few channels hedge calls

        if self._calm_key is None:
            return Calm()
        with CallEnvironment._counting:
            return calm_of(self._calm_key)

    def can_refresh(self, context: Context) -> bool:
        """Return whether credentials can be renewed for a call with this context (RT-4)."""
        return self.hooks is not None and self.hooks.can_refresh(context)

    def note(self, status: Status) -> None:
        """Note how a copy of a hedged call has failed."""
        if says_calm(status.code.name, status.details):
            self.calm.asked(self.now())

    def warn_of(self, method: str, policy: RetryPolicy, *, bounded: bool) -> None:
        """Warn, once per method, about a policy whose calls could be retried endlessly (RT-1)."""
        found = [(method, doubt) for doubt in doubts(policy, bounded=bounded)]
        new = [doubt for doubt in found if doubt not in self._doubted]
        self._doubted = self._doubted.union(new)
        if new:
            warn_of([f"retries of {method}: {'; '.join(doubt for _, doubt in new)}"])

    def no_connection(self, method: str, code: str) -> NoConnectionError:
        """Return the error of an attempt that got no connection, which grpcio's plugin, if there is one, counts."""
        if self._counter is not None:
            self._counter.count(method, code)
        return self.pending.error(grpc.StatusCode[code])

    def call_at(self, at: float, work: Callable[[], None]) -> TimerHandle:
        """Run `work` when the channel's clock reaches `at`, in seconds (CB-12)."""
        return self.clock.call_at(at, work)

    def rests(self, call: Fed[ChannelClosing]) -> None:
        """Keep a call alive while it is between two attempts."""
        self._between[call] = None

    def goes_on(self, call: Fed[ChannelClosing]) -> None:
        """Remove a call that is no longer between two attempts."""
        self._between.pop(call, None)

    def close(self) -> None:
        """Make no further attempts; calls between two attempts end."""
        self.closing = True
        for call in tuple(self._between):
            call.feed(ChannelClosing())
        if self._counter is not None:
            self._counter.close()


def _begin_anew() -> None:
    CallEnvironment._counting = threading.RLock()  # noqa: SLF001 - another thread of the parent may have held it


after_fork(_begin_anew)
