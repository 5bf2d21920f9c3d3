"""What the calls of one channel share, whichever face makes them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from grpc_backoff.calls.budget import RetryTokens, tokens_of
from grpc_backoff.calls.machine import ChannelClosing, Input
from grpc_backoff.channel.settings import ChannelSetup
from grpc_backoff.config.remarks import doubts, warn_of
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.retry import RetryPolicy

__all__ = ["ChannelCalls", "Resting"]


class Resting(Protocol):
    """A call between two attempts."""

    def feed(self, given: Input) -> None:
        """Step the call's machine."""
        ...


class ChannelCalls:
    """The surroundings of one channel's calls: what their machine needs beside its inputs.

    Attributes:
        pending: the calls that wait for a connection.
        hooks: what the program does when calls fail.
        emit: logs an event of a call, and passes it to the channel's listeners.
        now: the channel's clock.
        rng: where jitter comes from.
        tokens: what is left of the target's budget; None for no limit.
        replay_limit: how many bytes of a stream's requests are kept.
        stands_in: whether the core leaves calls that a GOAWAY refused to us (RT-10).
        wall_clock: returns the seconds since the epoch, for servers that name a date.
        closing: whether the channel is closing.
    """

    emit: Callable[[Any], None]

    def __init__(
        self, setup: ChannelSetup, *, pending: Any, hooks: Any, listeners: Any, now: Callable[[], float], rng: Random
    ) -> None:
        """Keep them; no call is known yet."""
        policies = setup.call_policies
        self.pending = pending
        self.hooks = hooks
        self.listeners = listeners
        self.now = now
        self.rng = rng
        self.tokens: RetryTokens | None = tokens_of(setup.target, policies.budget) if policies.budget else None
        self.replay_limit = policies.replay_limit
        self.stands_in = policies.stand_in()
        self.wall_clock = time.time
        self.closing = False
        self._between: dict[Resting, None] = {}
        self._doubted: set[tuple[str, str]] = set()

    @property
    def observed(self) -> bool:
        """Whether the channel has any listeners, beside the log."""
        return len(self.listeners.given) > 0

    def warn_of(self, method: str, policy: RetryPolicy, *, bounded: bool) -> None:
        """Warn, once for each method, of what of a policy makes calls that go on and on (RT-1)."""
        found = [(method, doubt) for doubt in doubts(policy, bounded=bounded)]
        new = [doubt for doubt in found if doubt not in self._doubted]
        self._doubted.update(new)
        if new:
            warn_of([f"retries of {method}: {'; '.join(doubt for _, doubt in new)}"])

    def rests(self, call: Resting) -> None:
        """Keep a call, and keep it alive, while it is between two attempts."""
        self._between[call] = None

    def goes_on(self, call: Resting) -> None:
        """Forget a call that is not between two attempts any more."""
        self._between.pop(call, None)

    def close(self) -> None:
        """Repeat nothing any more: calls between two attempts end."""
        self.closing = True
        for call in tuple(self._between):
            call.feed(ChannelClosing())
