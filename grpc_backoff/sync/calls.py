"""What the calls of one channel share: time, chance, the retry budget, hooks, and where they wait."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from grpc_backoff.calls.budget import RetryTokens
from grpc_backoff.calls.machine import ChannelClosing
from grpc_backoff.channel.calls import ChannelCalls, Resting
from grpc_backoff.channel.settings import ChannelSetup
from grpc_backoff.policy.backoff import Random
from grpc_backoff.sync.conductor import Conductor
from grpc_backoff.sync.hooks import Hooks
from grpc_backoff.sync.listeners import Listeners
from grpc_backoff.sync.pending import PendingCalls

__all__ = ["Calls", "SharedTokens"]


class _OneAtATime:
    """A lock that a fork leaves free: another thread of the parent's may have held it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def begin_anew(self) -> None:
        self.lock = threading.RLock()


_TOKENS = _OneAtATime()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_TOKENS.begin_anew)


class SharedTokens(RetryTokens):
    """A target's retry budget as threads use it: one of them at a time."""

    def __init__(self, tokens: RetryTokens) -> None:
        """Stand in front of those that the channels of a target share."""
        self._tokens = tokens

    @property
    def left(self) -> float:
        """How many tokens are left."""
        return self._tokens.left

    @property
    def spent(self) -> bool:
        """Whether no more than half is left."""
        return self._tokens.spent

    def failed(self) -> None:
        """Pay for a failure."""
        with _TOKENS.lock:
            self._tokens.failed()

    def succeeded(self) -> None:
        """Get back what a success brings."""
        with _TOKENS.lock:
            self._tokens.succeeded()


class Calls(ChannelCalls):
    """The surroundings of one channel's calls, in any thread.

    Attributes:
        conductor: the thread that keeps the time of calls that are futures.
    """

    pending: PendingCalls
    hooks: Hooks
    listeners: Listeners

    def __init__(
        self,
        setup: ChannelSetup,
        *,
        pending: PendingCalls,
        hooks: Hooks,
        listeners: Listeners,
        conductor: Conductor,
        now: Callable[[], float],
        rng: Random,
    ) -> None:
        """Keep them; no call is known yet."""
        super().__init__(setup, pending=pending, hooks=hooks, listeners=listeners, now=now, rng=rng)
        self.emit = listeners.hear
        self.conductor = conductor
        if self.tokens is not None:
            self.tokens = SharedTokens(self.tokens)

    def rests(self, call: Resting) -> None:
        """Keep a call, and keep it alive, while it is between two attempts."""
        super().rests(call)
        if self.closing:  # `close` may have come before it was here
            call.feed(ChannelClosing())

    def close(self) -> None:
        """Repeat nothing any more: calls between two attempts end, and those that wait for a connection."""
        super().close()
        self.pending.cancel()
