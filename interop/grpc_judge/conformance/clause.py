"""Clauses: requirements on clients, each with a rule, a scenario and a function that measures the client there.

To add one, write a function and decorate it with `clause`. Its docstring says what the clause requires::

    @clause("CB-1", Scenario.SLOW_SETTINGS)
    def one_connection(evidence: Evidence) -> Iterator[Measure]:
        \"\"\"A client opens only one connection to a server that works.\"\"\"
        yield count_connections(len(evidence.visits), Range(1, 1))
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from grpc_judge.conformance.evidence import Absent, Evidence
from grpc_judge.conformance.fit import LATEST, fit
from grpc_judge.conformance.gaps import AT_ONCE, LATE, NO_SCHEDULE, resets_at_settings, series_of
from grpc_judge.conformance.scenario import SCHEDULE, Scenario
from grpc_judge.conformance.verdict import Measure, Outcome, Unit, Verdict


class Level(enum.Enum):
    """Whether a clause is a requirement or a recommendation."""

    PROTOCOL = "protocol"
    """What gRPC's documents and HTTP/2 require of every client."""
    RECOMMENDED = "recommended"
    """A rule of this project for a case that the protocol leaves open. No other client claims to follow it."""


_BACKOFF: Final = "https://github.com/grpc/grpc/blob/master/doc/connection-backoff.md"
_OURS: Final = "https://github.com/grpc-backoff/grpc-backoff/blob/main/docs/behaviour.md"
_SOURCES: Final = {
    "CH-3": "https://github.com/grpc/grpc/blob/master/doc/wait-for-ready.md",
    "CH-6": "https://www.rfc-editor.org/rfc/rfc9113.html#section-6.8",
    "CH-7": "https://github.com/grpc/proposal/blob/master/A6-client-retries.md#transparent-retries",
}


class NotApplicableError(Exception):
    """A clause does not apply to this evidence. The message gives the reason."""


class TooLateError(Exception):
    """The judge recorded too much of the evidence late, so there is no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One requirement on a client.

    Attributes:
        name: its name in tables and on the command line.
        rule: the rule that it tests.
        scenario: the scenario whose evidence it judges.
        needs: the scenarios that show what it takes for granted of the client, such as its own schedule.
        says: what it requires, in one sentence.
        measure: yields figures with their allowed ranges. If there is too little evidence, it yields the amount and the
            required minimum, which is then missed: a lack of evidence is not conformance.
        level: whether it is a requirement or a recommendation.
    """

    name: str
    rule: str
    scenario: Scenario
    says: str
    measure: Callable[[Evidence], Iterable[Measure]]
    level: Level = Level.PROTOCOL
    needs: tuple[Scenario, ...] = ()

    @property
    def scenarios(self) -> set[Scenario]:
        """The scenarios without which its verdict may be another one."""
        return {self.scenario, *self.needs}

    @property
    def source(self) -> str:
        """The address of the document that it follows: gRPC's protocol unless it is a recommendation."""
        return _OURS if self.level is Level.RECOMMENDED else _SOURCES.get(self.rule, _BACKOFF)

    def judge(self, evidence: Evidence | Absent) -> Verdict:
        """Return the verdict on this evidence: a pass if there is at least one measure, and all are in their ranges."""
        verdict = partial(Verdict, clause=self.name, rule=self.rule)
        if isinstance(evidence, Absent):
            return verdict(outcome=Outcome.FAIL if evidence.fault else Outcome.NOT_APPLICABLE, reason=evidence.reason)
        try:
            measures = tuple(self.measure(evidence))
        except NotApplicableError as error:
            return verdict(outcome=Outcome.NOT_APPLICABLE, reason=str(error))
        except TooLateError as error:
            return verdict(outcome=Outcome.INCONCLUSIVE, reason=str(error))
        if measures and not any(each.missed_by for each in measures):
            if all(each.asked for each in measures):
                return verdict(outcome=Outcome.PASS, measures=measures)
            return verdict(outcome=Outcome.NOT_APPLICABLE, measures=measures, reason=NO_SCHEDULE)
        found = verdict(outcome=Outcome.FAIL, measures=measures)
        return _inconclusive(found, evidence) or _close(found, evidence) or found


def clause(
    rule: str, scenario: Scenario, level: Level = Level.PROTOCOL, needs: tuple[Scenario, ...] = SCHEDULE
) -> Callable[[Callable[[Evidence], Iterable[Measure]]], Clause]:
    """Return a decorator that makes a clause of a function, which `Clause.measure` describes.

    The clause has the function's name, with hyphens. The first line of the docstring says what it requires.
    """

    def made(measure: Callable[[Evidence], Iterable[Measure]]) -> Clause:
        says = (measure.__doc__ or "").partition("\n")[0]
        name = measure.__name__.replace("_", "-")
        return Clause(name=name, rule=rule, scenario=scenario, says=says, measure=measure, level=level, needs=needs)

    return made


def _inconclusive(verdict: Verdict, evidence: Evidence) -> Verdict | None:
    """Return an inconclusive verdict if lateness of the judge may explain every miss; otherwise None."""
    if verdict.outcome is not Outcome.FAIL or not verdict.missed:
        return None
    if not all(_explained(each, evidence) for each in verdict.missed):
        return None
    late = max(evidence.late(each.since, each.seen) for each in verdict.missed)
    return replace(
        verdict, outcome=Outcome.INCONCLUSIVE, reason=f"the judge was {1000 * late:.0f} ms late; {verdict.missed[0]}"
    )


def _close(verdict: Verdict, evidence: Evidence) -> Verdict | None:
    """Return an inconclusive verdict if times miss their ranges, but by less than timers may be late; otherwise None.

    Counts that miss theirs follow from these times. If the same clause was as close in an earlier trial, it has failed.
    """
    spans = [each for each in verdict.missed if not math.isinf(each.hangs_on)]
    far = any(each.missed_by >= max(evidence.terms.tolerance, LATEST) for each in spans)
    if not spans or far or verdict.clause in evidence.doubted:
        return None
    reason = f"too close to tell from one trial; {spans[0]}"
    return replace(verdict, outcome=Outcome.INCONCLUSIVE, reason=reason, close=True)


def _explained(measure: Measure, evidence: Evidence) -> bool:
    """Return whether lateness of the judge may explain a miss."""
    late = evidence.late(measure.since, measure.seen)
    if measure.unit in {Unit.CONNECTIONS, Unit.CALLS}:  # a late server disturbs clients, whatever is counted
        return late > AT_ONCE * evidence.terms.initial
    return late > LATE * measure.hangs_on or late >= measure.missed_by


def with_own(evidence: Mapping[Scenario, Evidence | Absent]) -> dict[Scenario, Evidence | Absent]:
    """Add what all scenarios together show: the client's schedule and limit, and whether SETTINGS reset its backoff."""
    seen = {scenario: each for scenario, each in evidence.items() if isinstance(each, Evidence)}
    timed = [seen[scenario] for scenario in SCHEDULE if scenario in seen]
    own = fit(tuple(series for each in timed for series in series_of(each)), timed[0].terms) if timed else None
    found = {scenario: replace(each, own=own) for scenario, each in seen.items()}
    resets = Scenario.RESET not in found or resets_at_settings(found[Scenario.RESET])
    own_limit = found[Scenario.SILENT].limit_seen() if Scenario.SILENT in found else 1.0
    return {
        **evidence,
        **{scenario: replace(each, resets=resets, own_limit=own_limit) for scenario, each in found.items()},
    }


def judge(evidence: Mapping[Scenario, Evidence | Absent], clauses: Iterable[Clause]) -> tuple[Verdict, ...]:
    """Return a verdict for each clause whose scenario was run, including scenarios without evidence."""
    evidence = with_own(evidence)
    return tuple(clause.judge(evidence[clause.scenario]) for clause in clauses if clause.scenario in evidence)
