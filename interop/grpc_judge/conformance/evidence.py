"""What is known about a client in one scenario: the server's record, and the client's report about its calls."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from grpc_judge.conformance.fit import Fit
from grpc_judge.conformance.schedule import Schedule
from grpc_judge.conformance.terms import Range, Terms
from grpc_judge.timeline import Timeline, Visit

_NEAR = 0.02
"""How many seconds after a delay of the event loop the delayed events may still be recorded late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """How a client's calls ended.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What was observed of a client in one scenario. Times are in seconds on the timeline's clock.

    Attributes:
        terms: the client's settings.
        timeline: the server's record.
        wanted: when the client was about to make its first call or, if it gave no sign of that, when it had connected.
        began: when the client was told to begin: for one that gives no sign of its first call, when it was started.
        seconds: how long the client was supposed to make calls after that.
        calls: how its calls ended; None if it reports nothing.
        settled: when the trial was ended early because no verdict could change any more: there were far more
            connections than any clause looks at. Then `calls` has those until a moment later, or is zero throughout if
            the client cannot report before its time. None if the trial ran to its end.
        own: the client's actual schedule; None if its gaps were not examined.
        resets: whether SETTINGS reset its backoff, as far as was observed.
        own_limit: how long it lets an attempt last, in units of MIN_CONNECT_TIMEOUT: infinity if it was never seen to
            abandon an attempt, and 1 if no scenario tested this.
        doubted: the clauses that an earlier trial missed by too little to tell.
    """

    terms: Terms
    timeline: Timeline
    wanted: float
    seconds: float
    calls: Calls | None
    settled: float | None = None
    began: float = 0.0
    own: Fit | None = None
    resets: bool = True
    own_limit: float = 1.0
    doubted: tuple[str, ...] = ()

    @property
    def scheduled(self) -> bool:
        """Whether the client has a schedule, as far as was observed."""
        return self.own is None or self.own.scheduled

    @property
    def schedule(self) -> Schedule:
        """The client's own schedule or, if it has none or that is unknown, the schedule that its settings give.

        Clauses about other things compare gaps with this schedule, because separate clauses judge the schedule itself.
        """
        return Schedule.told(self.terms) if self.own is None or not self.scheduled else self.own.schedule

    @property
    def schedules(self) -> Sequence[Schedule]:
        """`schedule`, and all others that explain the client's gaps almost as well."""
        return (self.schedule, *(self.own.likely if self.own is not None and self.scheduled else ()))

    @property
    def slack(self) -> float:
        """How far a gap may deviate from `schedule`, as a fraction, beyond jitter and tolerance."""
        return 0.0 if self.own is None or not self.scheduled else self.own.slack

    def band(self, n: int, before: float | None = None) -> Range:
        """Return the allowed range of the client's n-th gap in a series; `before` is the length of the previous gap.

        The range covers both the client's own schedule and its settings, so a client that is right in this scenario is
        not judged by a mistake that it made in another scenario. The range also covers every other schedule that
        explains the client's gaps almost as well: a mistake that is too small to prove is not reported as a different
        one.
        """
        bands = [each.gap(n, before, self.terms, self.slack) for each in self.schedules]
        bands.append(self.terms.band(n))
        return Range(min(band.low for band in bands), max(band.high for band in bands))

    def late(self, since: float | None, lasting: float) -> float:
        """Return the largest delay with which the server may have recorded either end of a time span."""
        if since is None:
            return max((lag.by for lag in self.timeline.lags), default=0.0)
        return max(self._late_at(since), self._late_at(since + lasting))

    def _late_at(self, moment: float) -> float:
        """Return the largest delay with which the server may have recorded this moment; lags do not overlap."""
        lags, found = self.timeline.lags, 0.0
        for place in range(bisect_left(lags, moment - _NEAR, key=attrgetter("at")), len(lags)):
            if lags[place].at - lags[place].by > moment:
                break
            found = max(found, lags[place].by)
        return found

    def limit_seen(self) -> float:
        """Return the shortest time after which the client gave up on SETTINGS, in the unit of `own_limit`."""
        silent = [visit for visit in self.visits if visit.behaviour == "silent"]
        lasted = [
            visit.ended - visit.accepted for visit in silent if visit.ended is not None and visit.ended < self.over
        ]
        return min(lasted, default=math.inf if silent else 1.0) / self.terms.min_connect_timeout

    @property
    def visits(self) -> tuple[Visit, ...]:
        """The connections that the server accepted while the client made calls, in order."""
        return tuple(visit for visit in self.timeline.visits if visit.accepted < self.over)

    @property
    def served(self) -> tuple[Visit, ...]:
        """Those of `visits` that received SETTINGS."""
        return tuple(visit for visit in self.visits if visit.settings_sent is not None)

    def end_of(self, visit: Visit) -> float:
        """Return when a connection ended; for one that is still open, when the record was taken."""
        return self.timeline.taken if visit.ended is None else visit.ended

    @property
    def over(self) -> float:
        """When the client stopped making calls. Connections that are still open then end because it stops."""
        return self.wanted + self.seconds if self.settled is None else self.settled

    @property
    def lasted(self) -> float:
        """How long the client was observed, in seconds: `seconds` unless the trial was ended early."""
        return self.over - self.wanted


@dataclass(frozen=True, slots=True)
class Absent:
    """The reason why there is no evidence about a client in a scenario.

    Attributes:
        reason: why there is none, in words.
        fault: whether there should be evidence, so that the client fails the clauses that depend on it.
    """

    reason: str
    fault: bool = False
