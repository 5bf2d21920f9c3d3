"""The environment that one channel's calls share: time, randomness, retry budget, hooks and pending calls."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import ClassVar

from grpc_backoff.calls.budget import RetryTokens
from grpc_backoff.calls.machine import ChannelClosing
from grpc_backoff.channel.environment import CallEnvironment
from grpc_backoff.channel.pending import AnyCall
from grpc_backoff.config.channel import ChannelSetup
from grpc_backoff.policy.backoff import Random
from grpc_backoff.sync.conductor import Conductor
from grpc_backoff.sync.hooks import Hooks
from grpc_backoff.sync.listeners import Listeners
from grpc_backoff.sync.pending import PendingCalls


class SharedTokens(RetryTokens):
    """A target's retry budget, safe to use from several threads."""

    _lock: ClassVar = threading.RLock()  # one for all, so that the child of a fork can replace it

    def __init__(self, tokens: RetryTokens) -> None:
        self._tokens = tokens

    @property
    def left(self) -> float:
        """The number of tokens left."""
        return self._tokens.left

    @property
    def spent(self) -> bool:
        """Whether at most half of the tokens are left."""
        return self._tokens.spent

    def failed(self) -> None:
        """Pay the tokens that a failure costs."""
        with self._lock:
            self._tokens.failed()

    def succeeded(self) -> None:
        """Add the tokens for a success."""
        with self._lock:
            self._tokens.succeeded()


def _begin_anew() -> None:
    SharedTokens._lock = threading.RLock()  # noqa: SLF001 - another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


class Calls(CallEnvironment):
    """The environment that one channel's calls share, in any thread.

    Attributes:
        conductor: the thread that runs the timers of futures.
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
        super().__init__(setup, pending=pending, hooks=hooks, listeners=listeners, now=now, rng=rng)
        self.emit = listeners.hear
        self.conductor = conductor
        if self.tokens is not None:
            self.tokens = SharedTokens(self.tokens)

    def rests(self, call: AnyCall) -> None:
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
