"""Clauses about a client that reports its dials: every connection that a server sees must be one of these.

A program may keep references to its calls, which can keep a failed channel alive underneath. That channel must not dial
again: not beside the real attempts, not at an address that the server has left, and not after the client has closed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from interop.conformance.clause import Clause
from interop.conformance.evidence import Evidence
from interop.conformance.scenario import Scenario
from interop.conformance.terms import Range
from interop.conformance.verdict import Measure, Unit

__all__ = ["DIALS"]

_FEWEST = 4
"""The fewest attempts in each of these scenarios: the first, the one after the loss, and those that fail."""


def _announced(evidence: Evidence) -> Iterator[Measure]:
    said = evidence.announced
    attempts = 0 if said is None else len(said.attempts)
    yield Measure(what="attempts announced", seen=attempts, allowed=Range(_FEWEST, math.inf), unit=Unit.ATTEMPTS)
    if said is None:
        return
    dials, after = evidence.timeline.dials(said.attempts, said.closed)
    expected = attempts + len(said.redials)
    by_attempt = "+".join(str(count) for count in dials)
    yield _connections(
        f"for {attempts} attempts ({by_attempt}) and {len(said.redials)} redials announced",
        sum(dials),
        Range(expected, expected),
    )
    yield _connections("after the channel was closed", after, Range(0, 0))


def _connections(what: str, seen: int, allowed: Range) -> Measure:
    return Measure(what=f"connections {what}", seen=seen, allowed=allowed, unit=Unit.CONNECTIONS)


def _clause(name: str, scenario: Scenario, when: str) -> Clause:
    says = (
        f"Each connection that the server sees is an announced attempt or redial, {when}, and none comes after close."
    )
    return Clause(name=name, rule="CB-1", scenario=scenario, says=says, measure=_announced)


DIALS = (
    _clause("announced-outage", Scenario.HELD_OUTAGE, "in an outage"),
    _clause("announced-restart", Scenario.HELD_RESTART, "over restarts"),
    _clause("announced-move", Scenario.HELD_MOVE, "when the server's name gets another address"),
)
"""In the order in which they are reported."""
