"""What is known about one client in one scenario: the server's record, and the client's report on its calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from interop.conformance.fit import Fit
from interop.conformance.schedule import Schedule
from interop.conformance.terms import Range, Terms
from interop.timeline import Timeline, Visit

__all__ = ["Absent", "Announced", "Calls", "Evidence"]


_NEAR = 0.02
"""How long after a lag ends delayed events are still being recorded, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The outcomes of a client's calls.

    Attributes:
        made: how many calls were made.
        ok: how many were answered.
        failed: how many failed, by the name of their status code.
        unfinished: how many had neither an answer nor an error when the time was up.
    """

    made: int = 0
    ok: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    unfinished: int = 0

    @property
    def lost(self) -> int:
        """How many were made but not answered."""
        return self.made - self.ok


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """What a client reported about its own dials. Times are on the timeline's clock.

    Attributes:
        attempts: when each attempt began.
        redials: when it reported that the library underneath had redialled by itself.
        closed: when its channel was closed; it then still held the remains of its calls.
    """

    attempts: tuple[float, ...]
    redials: tuple[float, ...]
    closed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One client in one scenario. Times are on the timeline's clock, in seconds.

    Attributes:
        terms: the client's settings.
        timeline: what the server saw.
        wanted: when the client was about to make its first call.
        seconds: how long it was to make calls from then on.
        calls: the outcomes of the calls.
        settled: when the trial was ended early because no verdict could change any more: there were far more
            connections than any clause looks at. The client did not report its calls then, and `calls` counts none.
            None if the trial ran to its end.
        announced: what the client reported about its dials; None if it reported nothing.
        own: the client's actual schedule; None if its gaps were not examined.
        resets: whether SETTINGS were found to reset its backoff.
    """

    terms: Terms
    timeline: Timeline
    wanted: float
    seconds: float
    calls: Calls
    settled: float | None = None
    announced: Announced | None = None
    own: Fit | None = None
    resets: bool = True

    @property
    def schedule(self) -> Schedule:
        """The client's own schedule as far as it was seen: the reference if another clause has judged it."""
        return Schedule.told(self.terms) if self.own is None else self.own.schedule

    @property
    def slack(self) -> float:
        """The fraction by which a gap may miss that schedule, in addition to jitter and tolerance."""
        return 0.0 if self.own is None else self.own.slack

    def band(self, n: int, before: float | None = None) -> Range:
        """Return the allowed range of the n-th gap of a series of this client, after a gap of this length.

        It follows its own schedule or its settings: a client that is right here is not held to a wrong habit.
        """
        schedule, told = self.schedule, self.terms.band(n)
        own = schedule.band(schedule.after(n, before, self.terms), self.terms, self.slack)
        return Range(min(own.low, told.low), max(own.high, told.high))

    def late(self, since: float | None, lasting: float) -> float:
        """Return the maximum delay with which the server may have recorded either end of a time span."""
        if since is None:
            return max((lag.by for lag in self.timeline.lags), default=0.0)
        ends = (since, since + lasting)
        found = (lag.by for lag in self.timeline.lags if any(lag.at - lag.by <= end <= lag.at + _NEAR for end in ends))
        return max(found, default=0.0)

    @property
    def visits(self) -> tuple[Visit, ...]:
        """The connections that the server accepted while calls were made, in order."""
        return tuple(visit for visit in self.timeline.visits if visit.accepted < self.over)

    @property
    def over(self) -> float:
        """When the client stopped making calls; connections that end later end for that reason."""
        return self.wanted + self.seconds if self.settled is None else self.settled

    @property
    def lasted(self) -> float:
        """How long the client was watched, in seconds: `seconds`, unless the trial was ended early."""
        return self.over - self.wanted


@dataclass(frozen=True, slots=True)
class Absent:
    """Why there is no evidence of a client in a scenario.

    Attributes:
        reason: a description.
        fault: whether there should have been evidence. Then the client fails the clauses that depend on it.
    """

    reason: str
    fault: bool = False
