"""What a run has found out: whether that is good, and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from interop.conformance import CLAUSES, Absent, Outcome, Scenario
from interop.results import to_json
from tests.interop_suite.results import FLOODING, MISSING, RIGHT, peer, results


@pytest.mark.parametrize(
    ("peers", "require_peers", "passed"),
    [
        ((RIGHT, FLOODING, MISSING), False, True),
        ((RIGHT, FLOODING, MISSING), True, False),
        ((RIGHT, FLOODING), True, True),
        ((replace(FLOODING, must_pass=True), RIGHT), False, False),
        ((replace(MISSING, must_pass=True), RIGHT), False, False),
        ((FLOODING,), False, True),
    ],
)
def test_only_those_that_must_pass_decide(peers, require_peers, passed):
    """IO-4: what others fail is a result; a missing peer is a failure where peers are required."""
    assert results(*peers).passed(require_peers=require_peers) is passed


def test_what_does_not_apply_is_not_shown():
    """IO-4: a peer that must pass is held to every clause; one that could not be judged has not passed."""
    evidence = dict(RIGHT.evidence) | {Scenario.UNSTABLE: Absent("no such option")}
    assert peer("right", evidence, must_pass=True).passed is False


def test_json_has_everything():
    """IO-4: clauses, verdicts with all their measures, and timelines; what has no bound is null."""
    found = json.loads(json.dumps(to_json(results(RIGHT, FLOODING, MISSING)), allow_nan=False))
    assert [clause["name"] for clause in found["clauses"]] == [clause.name for clause in CLAUSES]
    right, flooding, missing = found["peers"]
    assert missing["missing"] == "the program far"
    assert {verdict["outcome"] for verdict in right["verdicts"]} == {"pass"}
    by_name = {verdict["clause"]: verdict for verdict in flooding["verdicts"]}
    assert by_name["first-gap"]["outcome"] == Outcome.FAIL.value
    assert by_name["first-gap"]["says"] == "gap 1: 0.001 s, allowed 0.110 to 0.290, missed by 0.109 s"
    assert by_name["keeps-trying"]["measures"] == [
        {"what": "attempts seen", "seen": 501, "allowed": {"low": 9, "high": None}, "unit": "attempts", "since": None}
    ]
    hang_up = right["scenarios"]["hang_up"]
    assert (hang_up["pace"], hang_up["terms"]["initial"], hang_up["calls"]["made"]) == ("compressed", 0.2, 100)
    assert [visit["accepted"] for visit in hang_up["timeline"]["visits"]][:3] == [0.51, 0.71, 1.06]
    assert flooding["scenarios"]["handshake"] == {"pace": "real", "reason": "it ended with status 1", "fault": True}
