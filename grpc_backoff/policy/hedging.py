"""A call's hedging policy (gRFC A6), as one frozen value."""

from __future__ import annotations

from grpc_backoff.base.record import dataclass
from grpc_backoff.policy import checks
from grpc_backoff.policy.checks import Unit
from grpc_backoff.policy.retry import Retry, RetryPolicy
from grpc_backoff.policy.setting import Setting, checks_of

MOST_COPIES = 5
"""The most copies of one call, as in gRFC A6."""


_copies = checks.whole(2, MOST_COPIES)


def _non_fatal(key: str, value: object, unit: Unit = Unit.SECONDS) -> frozenset[str]:
    """Check the codes as those of a retry policy, except that there may be none."""
    nothing = value == "none" or (isinstance(value, list | tuple | frozenset | set) and not value)
    return frozenset() if nothing else checks.codes(key, value, unit)


HEDGE = "hedge"
"""The setting that makes a policy one for hedging."""

HEDGING = (
    Setting(HEDGE, checks.pause, part="hedging_delay"),
    Setting("attempts", _copies, part="max_attempts"),
    Setting("max_attempts", _copies),
    Setting("non_fatal_codes", _non_fatal),
    Setting("deadline", checks.limit),
)
"""All settings for a hedging policy, in both the file's `[methods]` and policy strings (HG-9)."""


@dataclass(frozen=True, slots=True, kw_only=True)
@checks.checked(checks_of(HEDGING))
class HedgingPolicy:
    """How copies of a call are sent before its first answer. Times are in seconds.

    The server may execute a hedged call several times, so hedge only calls for which that does no harm.
    """

    hedging_delay: float
    """How long the call goes without an answer before another copy is sent; 0 sends all copies at once."""
    max_attempts: int
    """The total number of copies, including the first: 2 to 5."""
    non_fatal_codes: frozenset[str] = frozenset({"UNAVAILABLE"})
    """The names of the status codes after which the next copy is sent at once; any other code ends the call."""
    deadline: float | None = None
    """The time limit for the whole call; None for no limit other than the caller's timeout."""


CallPolicy = RetryPolicy | HedgingPolicy
"""A method's policy: its calls are either retried or hedged."""
Repeats = Retry | HedgingPolicy
"""How a channel's calls are repeated: as for `Retry`, or hedged."""
