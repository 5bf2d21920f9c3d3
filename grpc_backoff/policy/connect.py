"""How a channel connects: a backoff and its surrounding limits, as one frozen value."""

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
    """On the next RPC, as in gRPC's pick_first."""
    EAGER = "eager"
    """At once, without waiting for an RPC."""


@value(frozen=True, slots=True, kw_only=True)
class ConnectPolicy:
    """The parameters of ConnectWithBackoff (gRPC's connection-backoff protocol), and related settings.

    The defaults are `grpc_backoff.policy.presets.CONNECT`; use `dataclasses.replace` to derive others. Times are in
    seconds.
    """

    backoff: BackoffPolicy
    min_connect_timeout: float
    """The minimum time limit of an attempt, which covers name resolution, TCP, TLS and SETTINGS together (CB-3)."""
    jitter_first: bool
    """Whether the first gap is jittered as well, as in C-core and Java; the protocol's text says it is not (CB-2)."""
    stable_after: float
    """A connection lost this soon after READY, and never of use, counts as a failed attempt; 0 is off (CB-8)."""
    reconnect: Reconnect
    idle_timeout: float
    """After this long without an RPC, a channel stops dialling (CB-14); infinite means never."""

    def __post_init__(self) -> None:
        """Apply the same checks as to options and the file; OptionError names the wrong value."""
        if not isinstance(self.backoff, BackoffPolicy) or self.initial_backoff <= 0:
            raise OptionError("ConnectPolicy.backoff", self.backoff, "a BackoffPolicy that waits after a failure")
        if not isinstance(self.reconnect, Reconnect):
            raise OptionError("ConnectPolicy.reconnect", self.reconnect, "Reconnect.LAZY or Reconnect.EAGER")
        checks.hold(self, "min_connect_timeout", "jitter_first", "stable_after", "idle_timeout")

    @property
    def initial_backoff(self) -> float:
        """INITIAL_BACKOFF: the first gap between the starts of two attempts, before jitter, in seconds."""
        strategy = self.backoff.strategy
        return min(strategy.base, self.backoff.cap) if isinstance(strategy, Decorrelated) else self.backoff.nominal(1)

    def gap(self, attempt: int, rng: Random, previous: float | None = None) -> float:
        """Return the seconds from the start of this attempt to the earliest start of the next; draws one random number.

        Args:
            attempt: the attempt's number in its series, from 1.
            rng: the source of random numbers (CB-11).
            previous: the previous gap, in seconds, from which decorrelated backoff continues.
        """
        return self.window(attempt, previous).at(rng.random())

    def nominal(self, attempt: int) -> float:
        """Return the gap after an attempt, without jitter, in seconds."""
        check_number(attempt)
        return self.initial_backoff if attempt == 1 else self.backoff.nominal(attempt - self._drawn_later)

    def bounds(self, attempt: int) -> tuple[float, float]:
        """Return the smallest and the largest value that `gap(attempt)` can return, in seconds."""
        window = self.window(attempt)
        return window.at(0.0), window.at(1.0)

    def window(self, attempt: int, previous: float | None = None) -> Window:
        """Return the window from which the gap after an attempt is drawn, in seconds; `previous` as for `gap`."""
        check_number(attempt)
        if attempt == 1 and not self.jitter_first:  # CB-2
            return Window(self.initial_backoff, 0.0, self.initial_backoff)
        return self.backoff.window(attempt - self._drawn_later, previous)

    @property
    def _drawn_later(self) -> int:
        """How many gaps decorrelated backoff lags behind: it continues from the first gap if that was not drawn."""
        return int(isinstance(self.backoff.strategy, Decorrelated) and not self.jitter_first)

    def limit(self, gap: float) -> float:
        """Return the time limit, in seconds, of an attempt that is followed by this gap (CB-3)."""
        return max(gap, self.min_connect_timeout)
