"""What a channel is told about connecting: a backoff and the limits around it, as one frozen value."""

from __future__ import annotations

import enum

from grpc_backoff.errors import OptionError
from grpc_backoff.policy import checks
from grpc_backoff.policy.backoff import BackoffPolicy, Random, check_number
from grpc_backoff.policy.jitter import Window
from grpc_backoff.policy.strategy import Decorrelated
from grpc_backoff.record import value

__all__ = ["ConnectPolicy", "Reconnect"]


class Reconnect(enum.Enum):
    """When a lost connection is replaced."""

    LAZY = "lazy"
    """With the next RPC, as gRPC's pick_first does."""
    EAGER = "eager"
    """At once, without waiting for an RPC."""


@value(frozen=True, slots=True, kw_only=True)
class ConnectPolicy:
    """The parameters of ConnectWithBackoff (gRPC's connection-backoff protocol) and of what surrounds it.

    The values that a channel uses when nobody says otherwise are `grpc_backoff.policy.presets.CONNECT`;
    `dataclasses.replace` makes others from them. Times are seconds.
    """

    backoff: BackoffPolicy
    min_connect_timeout: float
    """The least time that an attempt is given, over name resolution, TCP, TLS and SETTINGS together."""
    jitter_first: bool
    """Whether the first gap is jittered too, as C-core and Java do; the protocol's text does not (CB-2)."""
    stable_after: float
    """A connection that ends sooner than this after READY, useless, counts as a failed attempt; 0 is off (CB-8)."""
    reconnect: Reconnect
    idle_timeout: float
    """A channel that no RPC asked anything of for this long stops dialling (CB-14); infinite is never."""

    def __post_init__(self) -> None:
        """Hold the values to what options and the file are held to; OptionError says which."""
        if not isinstance(self.backoff, BackoffPolicy) or self.initial_backoff <= 0:
            raise OptionError("ConnectPolicy.backoff", self.backoff, "a BackoffPolicy that waits after a failure")
        if not isinstance(self.reconnect, Reconnect):
            raise OptionError("ConnectPolicy.reconnect", self.reconnect, "Reconnect.LAZY or Reconnect.EAGER")
        checks.hold(self, "min_connect_timeout", "jitter_first", "stable_after", "idle_timeout")

    @property
    def initial_backoff(self) -> float:
        """INITIAL_BACKOFF: the first gap between two starts, before jitter."""
        strategy = self.backoff.strategy
        return min(strategy.base, self.backoff.cap) if isinstance(strategy, Decorrelated) else self.backoff.nominal(1)

    def gap(self, attempt: int, rng: Random, previous: float | None = None) -> float:
        """Return the seconds from the start of this attempt to the earliest start of the next; draws one number.

        Args:
            attempt: the attempt's number in its series, from 1.
            rng: where chance comes from (CB-11).
            previous: the gap before this one, in seconds, which a decorrelated backoff goes on from.
        """
        return self.window(attempt, previous).at(rng.random())

    def nominal(self, attempt: int) -> float:
        """Return the gap after an attempt without jitter, in seconds."""
        check_number(attempt)
        return self.initial_backoff if attempt == 1 else self.backoff.nominal(attempt - self._drawn_later)

    def bounds(self, attempt: int) -> tuple[float, float]:
        """Return the smallest and the largest value that `gap(attempt)` can have."""
        window = self.window(attempt)
        return window.at(0.0), window.at(1.0)

    def window(self, attempt: int, previous: float | None = None) -> Window:
        """Return what the gap after an attempt is drawn from; `previous` as for `gap`."""
        check_number(attempt)
        if attempt == 1 and not self.jitter_first:  # CB-2
            return Window(self.initial_backoff, 0.0, self.initial_backoff)
        return self.backoff.window(attempt - self._drawn_later, previous)

    @property
    def _drawn_later(self) -> int:
        """How many gaps a decorrelated backoff is behind: it goes on from the first gap if that was not drawn."""
        return int(isinstance(self.backoff.strategy, Decorrelated) and not self.jitter_first)

    def limit(self, gap: float) -> float:
        """Return how long an attempt may last that this gap follows, in seconds (CB-3)."""
        return max(gap, self.min_connect_timeout)
