"""What the calls of one channel share: time, chance, the retry budget, hooks, and where they wait."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Protocol

from grpc_backoff.calls.budget import RetryTokens
from grpc_backoff.calls.machine import ChannelClosing, Input
from grpc_backoff.config.remarks import doubts, warn_of
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.retry import RetryPolicy
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


class Resting(Protocol):
    """A call between two attempts."""

    def tell(self, given: Input) -> None:
        """Take in what its machine is to be given."""
        ...


class Calls:
    """The surroundings of one channel's calls: what their machine needs beside its inputs.

    Attributes:
        pending: the calls that wait for a connection.
        hooks: what the program does when calls fail.
        conductor: the thread that keeps the time of calls that are futures.
        now: the channel's clock.
        rng: where jitter comes from.
        tokens: what is left of the target's budget; None for no limit.
        replay_limit: how many bytes of a stream's requests are kept.
        stands_in: whether the core leaves calls that a GOAWAY refused to us (RT-10).
        listeners: the channel's.
        wall_clock: returns the seconds since the epoch, for servers that say a date.
        closing: whether the channel is closing.
    """

    def __init__(
        self,
        *,
        pending: PendingCalls,
        hooks: Hooks,
        conductor: Conductor,
        now: Any,
        rng: Random,
        tokens: RetryTokens | None,
        replay_limit: int,
        stands_in: bool,
        listeners: Listeners,
    ) -> None:
        """Keep them; no call is known yet."""
        self.pending = pending
        self.hooks = hooks
        self.conductor = conductor
        self.now = now
        self.rng = rng
        self.tokens = None if tokens is None else SharedTokens(tokens)
        self.replay_limit = replay_limit
        self.stands_in = stands_in
        self.listeners = listeners
        self.wall_clock = time.time
        self.closing = False
        self._between: dict[Resting, None] = {}
        self._doubted: set[tuple[str, str]] = set()

    @property
    def observed(self) -> bool:
        """Whether anybody but the log listens."""
        return len(self.listeners.given) > 0

    def warn_of(self, method: str, policy: RetryPolicy, *, bounded: bool) -> None:
        """Warn, once for each method, of what of a policy makes calls that go on and on (RT-1)."""
        told = [(method, doubt) for doubt in doubts(policy, bounded=bounded)]
        new = [doubt for doubt in told if doubt not in self._doubted]
        self._doubted.update(new)
        if new:
            warn_of([f"retries of {method}: {'; '.join(doubt for _, doubt in new)}"])

    def rests(self, call: Resting) -> None:
        """Keep a call, and keep it alive, while it is between two attempts."""
        self._between[call] = None
        if self.closing:  # it may have been too late to be told
            call.tell(ChannelClosing())

    def goes_on(self, call: Resting) -> None:
        """Forget a call that is not between two attempts any more."""
        self._between.pop(call, None)

    def close(self) -> None:
        """Repeat nothing any more: calls between two attempts end, and those that wait for a connection."""
        self.closing = True
        for call in tuple(self._between):
            call.tell(ChannelClosing())
        self.pending.cancel()
