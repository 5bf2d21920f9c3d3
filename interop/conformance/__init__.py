"""Judges from a server's records whether a client connects as gRPC's connection-backoff protocol requires.

    evidence = {Scenario.HANG_UP: Evidence(terms=..., timeline=..., wanted=..., seconds=..., calls=...), ...}
    for verdict in judge(evidence, CLAUSES):
        print(verdict.clause, verdict.outcome.value, verdict)

`CLAUSES` lists all clauses. Each names its rule and the scenario whose evidence it reads. Everything here computes with
the records of servers (`interop.timeline`); nothing opens a socket or reads a clock.
"""

from __future__ import annotations

from interop.conformance.clause import Clause, judge
from interop.conformance.connections import CONNECTIONS
from interop.conformance.dials import DIALS
from interop.conformance.evidence import Absent, Announced, Calls, Evidence
from interop.conformance.limits import LIMITS
from interop.conformance.requests import REQUESTS
from interop.conformance.scenario import Scenario
from interop.conformance.series import SERIES
from interop.conformance.terms import CLOSE_WITHIN, PROTOCOL, Range, Terms
from interop.conformance.verdict import Measure, Outcome, Unit, Verdict

__all__ = [
    "CLAUSES",
    "CLOSE_WITHIN",
    "PROTOCOL",
    "Absent",
    "Announced",
    "Calls",
    "Clause",
    "Evidence",
    "Measure",
    "Outcome",
    "Range",
    "Scenario",
    "Terms",
    "Unit",
    "Verdict",
    "judge",
]

CLAUSES = tuple(
    sorted(
        (*SERIES, *LIMITS, *CONNECTIONS, *REQUESTS, *DIALS), key=lambda clause: (clause.rule[:2], int(clause.rule[3:]))
    )
)
"""All clauses, ordered by rule."""
