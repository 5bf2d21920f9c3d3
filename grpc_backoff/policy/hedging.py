"""A call's hedging policy (gRFC A6), as one frozen value."""

from __future__ import annotations

from dataclasses import dataclass

from grpc_backoff.base_errors import OptionError
from grpc_backoff.policy import checks

_NUMBERS = range(2, 6)
"""The possible numbers of copies of one call, as in gRFC A6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgingPolicy:
    """How copies of a call are sent before its first answer. Times are in seconds.

    The server may execute a hedged call several times.
    """

    hedging_delay: float
    """How long the call goes without an answer before another copy is sent; 0 sends all copies at once."""
    max_attempts: int
    """The total number of copies, including the first: 2 to 5."""
    non_fatal_codes: frozenset[str] = frozenset({"UNAVAILABLE"})
    """The names of the status codes after which the next copy is sent at once; any other code ends the call."""
    deadline: float | None = None
    """The time limit for the whole call; None for no limit other than the caller's timeout."""

    def __post_init__(self) -> None:
        """Check the values; OptionError if one is invalid."""
        checks.hold(self, "max_attempts", "deadline", hedging_delay="no_delay")
        if self.max_attempts not in _NUMBERS:
            raise OptionError("HedgingPolicy.max_attempts", self.max_attempts, "a whole number from 2 to 5")
        if self.non_fatal_codes not in (frozenset(), (), []):
            checks.hold(self, non_fatal_codes="codes")
