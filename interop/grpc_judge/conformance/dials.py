"""Clauses about clients that report their dials: every connection that the server sees must have been reported.

A program may keep references to its calls, which can keep a failed channel alive inside the library. That channel must
not dial again: not in addition to the reported attempts, not to an address that the server has left, and not after the
client was closed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from grpc_judge.conformance.clause import Clause, Level
from grpc_judge.conformance.evidence import Evidence
from grpc_judge.conformance.scenario import Scenario
from grpc_judge.conformance.terms import Range
from grpc_judge.conformance.verdict import Measure, Unit

__all__ = ["DIALS"]

_LONG = 1.5
"""An attempt that lasts longer than this, in units of MIN_CONNECT_TIMEOUT, leaves less time for others."""
_FEWEST = 4
"""The fewest attempts in these scenarios: the first one, the one after the loss, and failing ones."""


def _announced(evidence: Evidence) -> Iterator[Measure]:
    said = evidence.announced
    attempts = 0 if said is None else len(said.attempts)
    fewest = 1 if evidence.own_limit > _LONG else _FEWEST  # `limit` judges how long attempts last
    yield Measure(what="attempts reported", seen=attempts, allowed=Range(fewest, math.inf), unit=Unit.ATTEMPTS)
    if said is None:
        return
    dials, after = evidence.timeline.dials(said.attempts, said.closed)
    cut_short = sum(said.closed - at < evidence.terms.tolerance for at in said.attempts)
    expected = attempts + len(said.redials)
    by_attempt = "+".join(str(count) for count in dials)
    yield _connections(
        f"for {attempts} attempts ({by_attempt}) and {len(said.redials)} redials reported",
        sum(dials),
        Range(expected - cut_short, expected),
    )
    yield _connections("after the channel was closed", after, Range(0, 0))


def _connections(what: str, seen: int, allowed: Range) -> Measure:
    return Measure(what=f"connections {what}", seen=seen, allowed=allowed, unit=Unit.CONNECTIONS)


def _clause(name: str, scenario: Scenario, when: str) -> Clause:
    says = (
        f"Every connection that the server sees {when} belongs to a reported attempt or redial, and no connection is "
        "made after the channel is closed."
    )
    return Clause(name=name, rule="CB-1", scenario=scenario, says=says, measure=_announced, level=Level.RECOMMENDED)


DIALS = (
    _clause("announced-outage", Scenario.HELD_OUTAGE, "during an outage"),
    _clause("announced-restart", Scenario.HELD_RESTART, "during restarts"),
    _clause("announced-move", Scenario.HELD_MOVE, "while its name moves to another address"),
)
"""The clauses in the order in which they are reported."""
