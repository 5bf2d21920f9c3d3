"""Computes a client's verdict in the official reconnect test from the client's gaps, without I/O.

The allowed range of a gap is that of the official server, [0.8 E - 100 ms, 1.2 E + 100 ms]. Two rules differ from those
of the official server (IO-2). E never exceeds the client's MAX_BACKOFF, not even in the first gap. A client that never
dials fails; the official server passes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from grpc_judge.conformance.terms import PROTOCOL, Range, Terms
from grpc_judge.conformance.verdict import Measure, Unit

STARTUP = 1.0
"""How long a client may take from the start of the test to its first attempt, in seconds."""

_TOO_SHORT = PROTOCOL.tolerance / (1 - PROTOCOL.jitter)
"""The backoff for which the lower bound of a gap is zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfficialVerdict:
    """What was observed of one client. Each figure has its allowed range.

    Attributes:
        gaps: the times between the starts of its attempts, in order.
        attempts: how many attempts it made.
        seconds: how long it was observed.
    """

    gaps: tuple[Measure, ...]
    attempts: Measure
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether all figures are inside their allowed ranges."""
        return not self.faults

    @property
    def faults(self) -> tuple[Measure, ...]:
        """The figures outside their allowed ranges, in order."""
        return tuple(each for each in (*self.gaps, self.attempts) if each.missed_by)


def terms_for(*, maximum: float | None = None, initial: float | None = None) -> Terms:
    """Return the terms for a client with these backoffs in seconds; None stands for the protocol's value.

    Raises:
        ValueError: a backoff is so short that the tolerance for network delay would hide it.
    """
    cap = PROTOCOL.cap if maximum is None else maximum
    first = PROTOCOL.initial if initial is None else initial
    if min(first, cap) <= _TOO_SHORT:
        raise ValueError(f"a backoff of {min(first, cap):g} s cannot be judged; allowed is more than {_TOO_SHORT:g} s")
    return replace(PROTOCOL, initial=min(first, cap), cap=cap)  # the official server does not cap the first gap


def judge(gaps: Sequence[float], *, attempts: int, seconds: float, terms: Terms) -> OfficialVerdict:
    """Return the verdict on a client with these gaps that was observed for this many seconds.

    The client must make at least as many attempts as the slowest client allowed. It must make at least two, because
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
