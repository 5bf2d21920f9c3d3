"""The environment that one channel's calls share: time, randomness, retry budget, hooks and pending calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from grpc_backoff.config.channel_setup import ChannelSetup
from grpc_backoff.decide.calls.call_machine import ChannelClosing
from grpc_backoff.engine import environment
from grpc_backoff.engine.pending import Fed
from grpc_backoff.sync.conductor import Conductor
from grpc_backoff.sync.listeners import Listeners
from grpc_backoff.sync.pending import PendingCalls

if TYPE_CHECKING:
    from contextvars import Context

    from grpc_backoff.config.hooks import FailedCall
    from grpc_backoff.connection.clock import TimerHandle
    from grpc_backoff.decide.calls.call_machine import Hook, Metadata
    from grpc_backoff.engine.hooks import Done
    from grpc_backoff.sync.hooks import Hooks


class CallEnvironment(environment.CallEnvironment):
    """The environment that one channel's calls share, in any thread.

    Attributes:
        conductor: the thread that steps the machines of connections and runs the timers of futures.
    """

    pending: PendingCalls
    hooks: Hooks | None
    listeners: Listeners

    def __init__(self, setup: ChannelSetup, *, conductor: Conductor, **parts: Any) -> None:
        """Take the arguments of the base class, and the conductor."""
        super().__init__(setup, **parts)
        self.conductor = conductor

    def call_at(self, at: float, work: Callable[[], object]) -> TimerHandle:
        """Run `work` on the conductor when the channel's clock reaches `at`, in seconds (CB-12)."""
        clock, conductor = self.clock, self.conductor
        if clock is conductor:
            return conductor.call_at(at, work)
        return clock.call_at(at, lambda: conductor.post(work))  # such a clock may call back on any thread

    def nudge_at(self, at: float, nudge: Callable[[], None]) -> TimerHandle | None:
        """Wake a thread that sleeps until `at` on a clock that the program supplied; None if it wakes by itself."""
        if self.clock is self.conductor:
            return None  # its seconds are the system's
        return self.clock.call_at(at, nudge)

    def ask(self, hook: Hook, failed: FailedCall, began: float, context: Context) -> Metadata | None:
        """Run a hook, if there is such a one, and return the renewed metadata; see `Hooks.ask`."""
        return None if self.hooks is None else self.hooks.ask(hook, failed, began, context)

    def start(self, hook: Hook, failed: FailedCall, began: float, context: Context, done: Done) -> None:
        """Run a hook in a thread of its own, then call `done`; at once if there is no such hook. See `Hooks.start`."""
        if self.hooks is None:
            done(None)
        else:
            self.hooks.start(hook, failed, began, context, done, self.listeners.call)

    def rests(self, call: Fed[ChannelClosing]) -> None:
        """Keep a call alive while it is between two attempts."""
        super().rests(call)
        if self.closing:  # `close` may have run before the call was stored
            call.feed(ChannelClosing())

    def abandon(self) -> None:
        """End the calls without an attempt in the child of a fork, where nothing would end them."""
        for call in tuple(self._between):
            call.abandon()
        self.pending.abandon()

    def close(self) -> None:
        """Make no further attempts: calls between two attempts end, and so do pending ones."""
        super().close()
        self.pending.cancel()
        if self.losing:
            self.conductor.post(self._cancel_losers)

    def _cancel_losers(self) -> None:
        for losers in tuple(self.losing):
            losers.cancel()
