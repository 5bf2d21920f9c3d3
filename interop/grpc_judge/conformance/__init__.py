"""Judges from a server's records whether a client connects as gRPC's connection-backoff protocol requires.

    evidence = {Scenario.HANG_UP: Evidence(terms=..., timeline=..., wanted=..., seconds=..., calls=...), ...}
    for verdict in judge(evidence, CLAUSES):
        print(verdict.clause, verdict.outcome.value, verdict)

`CLAUSES` lists all clauses. Each names its rule and the scenario whose evidence it reads. Everything here computes with
the records of servers (`grpc_judge.timeline`); nothing opens a socket or reads a clock.
"""

from __future__ import annotations

from grpc_judge.conformance import connections, limits, requests, series
from grpc_judge.conformance.clause import Clause, Level, judge
from grpc_judge.conformance.evidence import Absent, Calls, Evidence
from grpc_judge.conformance.scenario import Scenario
from grpc_judge.conformance.terms import CLOSE_WITHIN, PROTOCOL, Range, Terms
from grpc_judge.conformance.verdict import Measure, Outcome, Unit, Verdict

__all__ = [
    "CLAUSES",
    "CLOSE_WITHIN",
    "PROTOCOL",
    "Absent",
    "Calls",
    "Clause",
    "Evidence",
    "Level",
    "Measure",
    "Outcome",
    "Range",
    "Scenario",
    "Terms",
    "Unit",
    "Verdict",
    "judge",
]

_MODULES = (series, limits, connections, requests)
CLAUSES = tuple(
    sorted(
        (each for module in _MODULES for each in vars(module).values() if isinstance(each, Clause)),
        key=lambda clause: (clause.rule[:2], int(clause.rule[3:])),
    )
)
"""All clauses, ordered by rule."""
