"""What a clause is: a rule, the scenario in which it shows, and a function that measures it there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from interop.conformance.evidence import Absent, Evidence
from interop.conformance.fit import fit
from interop.conformance.gaps import LATE, resets_at_settings, series_of
from interop.conformance.scenario import Scenario
from interop.conformance.verdict import Measure, Outcome, Verdict

__all__ = ["Clause", "NotApplicableError", "TooLateError", "judge", "verdict_on"]


class NotApplicableError(Exception):
    """A clause says nothing about this evidence, and why."""


class TooLateError(Exception):
    """The judge was too late to measure anything, so that there is no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One thing that a client has to do.

    Attributes:
        name: what it is called in tables and on the command line.
        rule: the rule that it stands for.
        scenario: the scenario in whose evidence it shows.
        says: what it demands, in one sentence.
        measure: yields what is to be held against what is allowed. Where there is too little to measure it yields how
            much there was, and how much there has to be: silence is no conformance.
    """

    name: str
    rule: str
    scenario: Scenario
    says: str
    measure: Callable[[Evidence], Iterable[Measure]]

    def judge(self, evidence: Evidence | Absent) -> Verdict:
        """Return the verdict on this evidence."""
        if isinstance(evidence, Absent):
            outcome = Outcome.FAIL if evidence.fault else Outcome.NOT_APPLICABLE
            return Verdict(clause=self.name, rule=self.rule, outcome=outcome, reason=evidence.reason)
        verdict = verdict_on(self.name, self.rule, lambda: self.measure(evidence))
        return _inconclusive(verdict, evidence) or verdict


def verdict_on(name: str, rule: str, measure: Callable[[], Iterable[Measure]]) -> Verdict:
    """Return the verdict by what this measures: all has to be inside its band, and nothing measured is a failure."""
    try:
        measures = tuple(measure())
    except NotApplicableError as error:
        return Verdict(clause=name, rule=rule, outcome=Outcome.NOT_APPLICABLE, reason=str(error))
    except TooLateError as error:
        return Verdict(clause=name, rule=rule, outcome=Outcome.INCONCLUSIVE, reason=str(error))
    holds = len(measures) > 0 and not any(each.missed_by for each in measures)
    return Verdict(clause=name, rule=rule, outcome=Outcome.PASS if holds else Outcome.FAIL, measures=measures)


def _inconclusive(verdict: Verdict, evidence: Evidence) -> Verdict | None:
    """Return that there is no verdict, if all that was missed hangs on times that the judge may have noted late."""
    if verdict.outcome is not Outcome.FAIL or not verdict.missed:
        return None
    lates = [(evidence.late(each.since, each.seen), each.hangs_on) for each in verdict.missed]
    if any(late <= LATE * hangs_on for late, hangs_on in lates):
        return None
    late = max(late for late, _ in lates)
    return replace(
        verdict, outcome=Outcome.INCONCLUSIVE, reason=f"the judge was {1000 * late:.0f} ms late; {verdict.missed[0]}"
    )


def with_own(evidence: Mapping[Scenario, Evidence | Absent]) -> dict[Scenario, Evidence | Absent]:
    """Return the evidence with what all of it says of the client: its own schedule, and whether SETTINGS reset it."""
    seen = {scenario: each for scenario, each in evidence.items() if isinstance(each, Evidence)}
    timed = [seen[scenario] for scenario in (Scenario.HANG_UP, Scenario.STEADY) if scenario in seen]
    own = fit(tuple(series for each in timed for series in series_of(each)), timed[0].terms) if timed else None
    found = {scenario: replace(each, own=own) for scenario, each in seen.items()}
    resets = Scenario.RESET not in found or resets_at_settings(found[Scenario.RESET])
    return {**evidence, **{scenario: replace(each, resets=resets) for scenario, each in found.items()}}


def judge(evidence: Mapping[Scenario, Evidence | Absent], clauses: Iterable[Clause]) -> tuple[Verdict, ...]:
    """Return the verdict for each clause whose scenario there is evidence of, be it that there is none."""
    evidence = with_own(evidence)
    return tuple(clause.judge(evidence[clause.scenario]) for clause in clauses if clause.scenario in evidence)
