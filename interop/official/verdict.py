"""The verdict of the official reconnect test on one client, computed from its gaps. No I/O.

The allowed range of a gap is the official server's, [0.8 E - 100 ms, 1.2 E + 100 ms]. Two rules differ: E is limited to
the client's maximum in the first gap too, and a client must make attempts, while the official server passes one that
never dials (IO-2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from interop.conformance.band import JITTER, TRANSMISSION
from interop.conformance.terms import PROTOCOL, Range, Terms
from interop.conformance.verdict import Measure, Unit

__all__ = ["STARTUP", "OfficialVerdict", "judge", "terms_for"]

STARTUP = 1.0
"""How long a client may take from the start of the test to its first attempt, in seconds."""

_TOO_SHORT = TRANSMISSION / (1 - JITTER)
"""The backoff whose lower bound is zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialVerdict:
    """What was seen of one client, each figure with its allowed range.

    Attributes:
        gaps: the times between the starts of its attempts, in order.
        attempts: how many attempts it made.
        seconds: how long it was watched.
    """

    gaps: tuple[Measure, ...]
    attempts: Measure
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether there are no faults."""
        return not self.faults

    @property
    def faults(self) -> tuple[Measure, ...]:
        """The figures outside their allowed ranges, in order."""
        return tuple(each for each in (*self.gaps, self.attempts) if each.missed_by)


def terms_for(*, maximum: float | None = None, initial: float | None = None) -> Terms:
    """Return the terms for a client with this MAX_BACKOFF and INITIAL_BACKOFF, in seconds; None for the protocol's.

    Raises:
        ValueError: one of them is so short that the tolerance for network delay would hide it.
    """
    cap = PROTOCOL.cap if maximum is None else maximum
    first = PROTOCOL.initial if initial is None else initial
    if min(first, cap) <= _TOO_SHORT:
        raise ValueError(f"a backoff of {min(first, cap):g} s cannot be judged; allowed is more than {_TOO_SHORT:g} s")
    return replace(PROTOCOL, initial=min(first, cap), cap=cap)  # the official server compares the first gap uncapped


def judge(gaps: Sequence[float], *, attempts: int, seconds: float, terms: Terms) -> OfficialVerdict:
    """Return the verdict on a client that made these gaps while it was watched for this many seconds.

    The minimum number of attempts is that of a client whose gaps are all as long as allowed, and at least two, since
    without a gap there is nothing to judge.
    """
    fewest = max(2, terms.fewest_starts(max(0.0, seconds - STARTUP)))
    return OfficialVerdict(
        gaps=tuple(
            Measure(what=f"gap {number}", seen=gap, allowed=terms.band(number)) for number, gap in enumerate(gaps, 1)
        ),
        attempts=Measure(what="attempts", seen=attempts, allowed=Range(fewest, math.inf), unit=Unit.ATTEMPTS),
        seconds=seconds,
    )
