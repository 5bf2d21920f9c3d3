"""What is known of one client in one scenario: the server's record, and what the client says of its calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from interop.conformance.fit import Fit
from interop.conformance.schedule import Schedule
from interop.conformance.terms import Range, Terms
from interop.timeline import Timeline, Visit

__all__ = ["Absent", "Announced", "Calls", "Evidence"]


_NEAR = 0.02
"""How long after a lag ends what it held up is still being noted, in seconds."""


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
class Announced:
    """What a client said of its own dials, as it made them. Moments are on the timeline's clock.

    Attributes:
        attempts: when each attempt began.
        redials: when it said that something underneath it had dialled by itself.
        closed: when its channel was closed; it went on to hold what was left of its calls.
    """

    attempts: tuple[float, ...]
    redials: tuple[float, ...]
    closed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One client in one scenario. Times are on the timeline's clock.

    Attributes:
        terms: what the client was told.
        timeline: what the server saw.
        wanted: when the client was about to make its first call.
        seconds: for how long it was to call then.
        calls: what became of them.
        settled: when the trial was ended before its time, since nothing that followed could change a verdict: there
            were far more connections than any clause looks at. The client was not asked about its calls then, and
            `calls` counts none. None if it had all of its time.
        announced: what the client said of its dials; None for one that was not asked.
        own: what the client's schedule was found to be; None where its gaps were not looked at.
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
        """The client's own schedule as far as it was seen, which it is held to where another clause has judged it."""
        return Schedule.told(self.terms) if self.own is None else self.own.schedule

    @property
    def slack(self) -> float:
        """By how much of itself a gap may miss that schedule, beside jitter and tolerance."""
        return 0.0 if self.own is None else self.own.slack

    def band(self, n: int, before: float | None = None) -> Range:
        """Return what the n-th gap of a series of this client's may be, after one that was so long.

        That is what its own schedule has, or what it was told: who does right here is not held to a wrong habit.
        """
        schedule, told = self.schedule, self.terms.band(n)
        own = schedule.band(schedule.after(n, before, self.terms), self.terms, self.slack)
        return Range(min(own.low, told.low), max(own.high, told.high))

    def late(self, since: float | None, lasting: float) -> float:
        """Return by how much the server noted a moment too late at most, around the two ends of a time span."""
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
        """When the client stopped calling; what ends then ends for that reason."""
        return self.wanted + self.seconds if self.settled is None else self.settled

    @property
    def lasted(self) -> float:
        """For how long it was watched, in seconds: `seconds`, unless the trial was ended before."""
        return self.over - self.wanted


@dataclass(frozen=True, slots=True)
class Absent:
    """Why there is no evidence of a client in a scenario.

    Attributes:
        reason: why, in words.
        fault: whether it should have been there. Then the client fails what it would have been judged by.
    """

    reason: str
    fault: bool = False
