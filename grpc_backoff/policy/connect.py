"""A channel's connect policy: a backoff and related limits, as one frozen value."""

from __future__ import annotations

import enum
from dataclasses import field

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.base.record import dataclass
from grpc_backoff.policy import checks
from grpc_backoff.policy.backoff import BackoffPolicy, Random, check_number, is_decorrelated
from grpc_backoff.policy.checks import Unit
from grpc_backoff.policy.exponential import Exponential
from grpc_backoff.policy.proportional import Jitter, Proportional, Window
from grpc_backoff.policy.setting import Setting, checks_of, defaults_of, own


class Reconnect(enum.Enum):
    """When a lost connection is replaced."""

    LAZY = "lazy"
    """On the next RPC, as in gRPC's pick_first."""
    EAGER = "eager"
    """At once, without waiting for an RPC."""


def _reconnect(key: str, value: object, _unit: Unit = Unit.SECONDS) -> Reconnect:
    return Reconnect(checks.choice(key, value, [when.value for when in Reconnect]))


def _jitter(key: str, value: object, unit: Unit = Unit.SECONDS) -> Jitter:
    from grpc_backoff.policy.jitter import parse_jitter  # noqa: PLC0415 - most channels have the default

    return parse_jitter(key, value, unit)


_MS = Unit.MILLISECONDS

DIALLING = (
    own("preset", checks.name),
    Setting("initial_backoff", checks.duration, ..., "grpc.initial_reconnect_backoff_ms", _MS, "delay"),
    Setting("max_backoff", checks.duration, ..., "grpc.max_reconnect_backoff_ms", _MS, "max_delay"),
    # Despite its name, this option is a timeout, as in C-core.
    Setting("min_connect_timeout", checks.attempt_limit, 20.0, "grpc.min_reconnect_backoff_ms", _MS),
    Setting("idle_timeout", checks.idle_timeout, 1800.0, "grpc.client_idle_timeout_ms", _MS),
    own("multiplier", checks.growth),
    own("jitter", _jitter),
    own("jitter_first", checks.flag, default=False),
    own("stable_after", checks.pause, 0.0),
    own("reconnect", _reconnect, Reconnect.LAZY),
)
"""All settings for a connect policy, in both options and files."""

_CHECKS = checks_of(DIALLING, "reconnect")  # which programs set to a member


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectPolicy:
    """The parameters of ConnectWithBackoff (gRPC's connection-backoff protocol), and related settings.

    The default policy is `grpc_backoff.policy.presets.CONNECT`; use `dataclasses.replace` to derive others from it.
    Times are in seconds.
    """

    backoff: BackoffPolicy
    min_connect_timeout: float
    """The minimum time limit of an attempt, which covers name resolution, TCP, TLS and SETTINGS together (CB-3)."""
    jitter_first: bool
    """Whether the first gap also has jitter, as in C-core and Java; the protocol's text gives it none (CB-2)."""
    stable_after: float
    """A connection that serves no call and ends within this time of becoming READY counts as a failed attempt; 0 turns
    this off (CB-8)."""
    reconnect: Reconnect
    idle_timeout: float
    """A channel stops dialling after this long without an RPC (CB-14); infinity means never."""
    initial_backoff: float = field(init=False, repr=False, compare=False)
    """INITIAL_BACKOFF: the first gap between the starts of two attempts, before jitter; it follows from `backoff`."""

    def __post_init__(self) -> None:
        """Apply the same checks as to channel options and files; OptionError if a value is invalid."""
        initial = self.backoff.first if isinstance(self.backoff, BackoffPolicy) else 0.0
        if initial <= 0:
            raise OptionError("ConnectPolicy.backoff", self.backoff, "a BackoffPolicy that waits after a failure")
        if not isinstance(self.reconnect, Reconnect):
            raise OptionError("ConnectPolicy.reconnect", self.reconnect, "Reconnect.LAZY or Reconnect.EAGER")
        object.__setattr__(self, "initial_backoff", initial)
        checks.hold(self, _CHECKS)

    def gap(self, attempt: int, rng: Random, previous: float | None = None) -> float:
        """Return the gap from the start of this attempt to the earliest start of the next one, in seconds.

        Args:
            attempt: the attempt's number in its series, from 1.
            rng: the source of random numbers (CB-11); one number is drawn.
            previous: the previous gap, in seconds, from which decorrelated backoff continues.
        """
        drawn = rng.random()
        if attempt == 1 and type(attempt) is int and not self.jitter_first:  # as in `window`, which costs more
            return self.initial_backoff
        return self.window(attempt, previous).at(drawn)

    def nominal(self, attempt: int) -> float:
        """Return the gap after an attempt, without jitter, in seconds."""
        check_number(attempt)
        return self.initial_backoff if attempt == 1 else self.backoff.nominal(attempt - self._drawn_later)

    def bounds(self, attempt: int) -> tuple[float, float]:
        """Return the smallest and largest values that `gap(attempt)` can return, in seconds."""
        window = self.window(attempt)
        return window.at(0.0), window.at(1.0)

    def expected(self, attempt: int) -> float:
        """Return the mean of the gap after an attempt, jitter included, in seconds."""
        if attempt == 1 or not is_decorrelated(self.backoff.strategy):
            return self.window(attempt).mean
        return self.nominal(attempt)

    def window(self, attempt: int, previous: float | None = None) -> Window:
        """Return the window from which the gap after an attempt is drawn, in seconds; `previous` is as in `gap`."""
        check_number(attempt)
        if attempt == 1 and not self.jitter_first:  # CB-2
            return Window(self.initial_backoff, 0.0, self.initial_backoff)
        return self.backoff.window(attempt - self._drawn_later, previous)

    @property
    def _drawn_later(self) -> int:
        """How many gaps are not drawn: 1 if decorrelated backoff starts after a fixed first gap, else 0."""
        return int(is_decorrelated(self.backoff.strategy) and not self.jitter_first)

    def limit(self, gap: float) -> float:
        """Return the time limit, in seconds, of an attempt that is followed by this gap (CB-3)."""
        return max(gap, self.min_connect_timeout)


GRPC_GROWTH = Exponential(1.0, 1.6)
GRPC = BackoffPolicy(GRPC_GROWTH, 120.0, Proportional(0.2))
"""gRPC's connection backoff, made of INITIAL_BACKOFF, MULTIPLIER, MAX_BACKOFF and JITTER."""

CONNECT = ConnectPolicy(backoff=GRPC, **defaults_of(DIALLING))
"""The connect policy for a channel with no settings of its own: the preset `grpc`."""
