"""What is known of one client in one scenario: the server's record, and what the client says of its calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from interop.conformance.terms import Terms
from interop.timeline import Timeline, Visit

__all__ = ["Absent", "Calls", "Evidence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """What became of a client's calls.

    Attributes:
        made: how many there were.
        ok: how many were answered.
        failed: how many were not, by the name of their status code.
        unfinished: how many had neither an answer nor an error when time was up.
    """

    made: int = 0
    ok: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    unfinished: int = 0

    @property
    def lost(self) -> int:
        """How many were made and not answered."""
        return self.made - self.ok


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One client in one scenario. Times are on the timeline's clock.

    Attributes:
        terms: what the client was told.
        timeline: what the server saw.
        wanted: when the client was about to make its first call.
        seconds: for how long it then went on calling.
        calls: what became of them.
    """

    terms: Terms
    timeline: Timeline
    wanted: float
    seconds: float
    calls: Calls

    @property
    def visits(self) -> tuple[Visit, ...]:
        """The connections that the server accepted while calls were made, in order."""
        return tuple(visit for visit in self.timeline.visits if visit.accepted < self.over)

    @property
    def over(self) -> float:
        """When the client stopped calling; what ends then ends for that reason."""
        return self.wanted + self.seconds


@dataclass(frozen=True, slots=True)
class Absent:
    """Why there is no evidence of a client in a scenario.

    Attributes:
        reason: why, in words.
        fault: whether it should have been there. Then the client fails what it would have been judged by.
    """

    reason: str
    fault: bool = False
