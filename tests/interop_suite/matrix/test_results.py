"""The results of a run: whether it passed, and what its JSON contains."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from grpc_judge.conformance import CLAUSES, Absent, Outcome, Scenario
from grpc_judge.matrix.results import to_json, to_summary
from tests.interop_suite.conformance import made
from tests.interop_suite.matrix.results import MISSING, flooding_peer, peer, results, right_peer


@pytest.mark.parametrize(
    ("peers", "require_peers", "passed"),
    [
        (lambda: (right_peer(), flooding_peer(), MISSING), False, True),
        (lambda: (right_peer(), flooding_peer(), MISSING), True, False),
        (lambda: (right_peer(), flooding_peer()), False, True),
        (lambda: (right_peer(), flooding_peer()), True, False),
        (lambda: (right_peer(), peer("calm", made.right_client())), True, True),
        (lambda: (replace(flooding_peer(), must_pass=True), right_peer()), False, False),
        (lambda: (replace(MISSING, must_pass=True), right_peer()), False, False),
        (lambda: (flooding_peer(),), False, True),
        (
            lambda: (peer("unjudged", {each: Absent("no such option") for each in Scenario}, must_pass=True),),
            False,
            False,
        ),
    ],
)
def test_only_those_that_must_pass_decide(peers, require_peers, passed):
    """IO-4: only peers that must pass can fail a run; if all peers are required, so can missing or broken ones."""
    assert results(*peers()).passed(require_peers=require_peers) is passed


def test_what_does_not_apply_is_no_failure():
    """IO-4: a clause that does not apply to a peer does not make it fail."""
    evidence = dict(right_peer().evidence) | {Scenario.UNSTABLE: Absent("no such option")}
    assert results(peer("right", evidence, must_pass=True)).passed(require_peers=True)


def test_named_peers_must_pass_what_the_protocol_asks():
    """IO-4: a peer that was named passes if it follows the protocol; a recommendation is asked only of our own."""
    floods = {Scenario.FLAPPING: made.flapping((0.01,) * 390)}
    ours, other = (peer("it", made.right_client() | floods, must_pass=must_pass) for must_pass in (True, False))
    assert results(other).passed(require_peers=False, named=True)
    assert not results(ours).passed(require_peers=False)
    assert results(ours).passed(require_peers=False, allowed={"no-flood", "goaway-backs-off", "CB-8"})
    assert not results(flooding_peer()).passed(require_peers=False, named=True)


def test_a_client_that_dials_once_is_called_that():
    """IO-4: one sentence explains the failures of a client that never dials again."""
    once = {each: made.series(()) for each in (Scenario.HANG_UP, Scenario.STEADY)}
    absent = {each: Absent("no such option") for each in (Scenario.FAILURES, Scenario.HANDSHAKE)}
    assert "dials once and never again" in peer("once", made.right_client() | once | absent).headline
    assert (right_peer().headline, flooding_peer().headline) == ("", "")


def test_json_has_everything():
    """IO-4: the JSON has all clauses, verdicts, measures and timelines; a missing bound is null."""
    found = json.loads(json.dumps(to_json(results(right_peer(), flooding_peer(), MISSING)), allow_nan=False))
    assert [clause["name"] for clause in found["clauses"]] == [clause.name for clause in CLAUSES]
    right, flooding, missing = found["peers"]
    assert missing["missing"] == "the program far is missing"
    assert {verdict["outcome"] for verdict in right["verdicts"]} == {"pass"}
    by_name = {verdict["clause"]: verdict for verdict in flooding["verdicts"]}
    assert by_name["first-gap"]["outcome"] == Outcome.FAIL.value
    assert by_name["first-gap"]["says"] == "INITIAL_BACKOFF: 0.001 (0.001 to 0.001) s, expected 0.200"
    (attempts,) = by_name["keeps-trying"]["measures"]
    assert (attempts["seen"], attempts["allowed"], attempts["unit"]) == (501, {"low": 20, "high": None}, "attempts")
    hang_up = right["scenarios"]["hang_up"]
    assert (hang_up["pace"], hang_up["terms"]["initial"], hang_up["calls"]["made"]) == ("compressed", 0.2, 100)
    assert [visit["accepted"] for visit in hang_up["timeline"]["visits"]][:3] == [0.51, 0.71, 1.062]
    assert flooding["scenarios"]["handshake"] == {"pace": "real", "reason": "it ended with status 1", "fault": True}


def test_summary_is_small():
    """IO-4: the summary has versions and the deciding figure of each verdict, but no timelines."""
    found = json.loads(json.dumps(to_summary(results(right_peer(), flooding_peer(), MISSING)), allow_nan=False))
    right, flooding, _ = found["peers"]
    assert "scenarios" not in right
    assert right["versions"] == {"grpcio": "1.2.3"}
    by_name = {verdict["clause"]: verdict for verdict in flooding["verdicts"]}
    assert by_name["first-gap"]["figure"]["what"] == "INITIAL_BACKOFF"
    assert by_name["first-gap"]["figure"]["seen"] == pytest.approx(0.001, rel=0.3)
    assert by_name["stable-after"]["figure"] is None
    assert found["took"] == 200
