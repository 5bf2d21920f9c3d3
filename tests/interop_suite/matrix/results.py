"""Results made by hand: a peer that passes, one that floods and fails, and one that is missing.

The judge takes seconds for them, so a test that needs none of them does not wait for it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache

from grpc_judge.clients.findings import Finding
from grpc_judge.conformance import CLAUSES, Absent, Scenario, judge
from grpc_judge.matrix.results import PeerResult, Results
from grpc_judge.matrix.scenarios import Pace
from tests.interop_suite.conformance import made

NO_PAUSE = Finding(
    clauses=("first-gap", "growth", "recovery"), means="It dials again at once.", issues=("some/where#12",)
)


def peer(name, evidence, *, pace=Pace.COMPRESSED, must_pass=False, findings=()):
    return PeerResult(
        name=name,
        must_pass=must_pass,
        versions={"grpcio": "1.2.3"},
        evidence=evidence,
        paces=dict.fromkeys(Scenario, pace),
        verdicts=judge(evidence, CLAUSES),
        findings=findings,
    )


@cache
def right_peer():
    return peer("right", made.right_client(), must_pass=True)


@cache
def flooding_peer():
    evidence = made.right_client() | {
        Scenario.FLAPPING: made.flapping((0.01,) * 390),
        Scenario.HANG_UP: made.series((0.001,) * 500),
        Scenario.STEADY: made.series((0.001,) * 500, terms=made.STEADY),
        Scenario.UNSTABLE: Absent("the client has no such option"),
        Scenario.HANDSHAKE: Absent("it ended with status 1", fault=True),
    }
    return peer("flooding client", evidence, pace=Pace.REAL, findings=(NO_PAUSE,))


MISSING = PeerResult(name="far away", must_pass=False, missing="the program far is missing")


def results(*peers, clauses=CLAUSES):
    return Results(
        began=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), took=200.0, full=False, clauses=tuple(clauses), peers=peers
    )
