"""The results of a run: whether it passed, and what its JSON contains."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from grpc_judge.conformance import CLAUSES, Absent, Outcome, Scenario
from grpc_judge.matrix.results import Demands, Status, to_json, to_summary
from tests.interop_suite.conformance import made
from tests.interop_suite.matrix.results import MISSING, flooding_peer, peer, results, right_peer


@pytest.mark.parametrize(
    ("peers", "require_peers", "status"),
    [
        (lambda: (right_peer(), flooding_peer(), MISSING), False, Status.PASSED),
        (lambda: (right_peer(), flooding_peer(), MISSING), True, Status.FAILED),
        (lambda: (right_peer(), flooding_peer()), False, Status.PASSED),
        (lambda: (right_peer(), flooding_peer()), True, Status.FAILED),
        (lambda: (right_peer(), peer("calm", made.right_client())), True, Status.PASSED),
        (lambda: (replace(flooding_peer(), must_pass=True), right_peer()), False, Status.FAILED),
        (lambda: (replace(MISSING, must_pass=True), right_peer()), False, Status.NOT_JUDGED),
        (lambda: (flooding_peer(),), False, Status.PASSED),
        (
            lambda: (peer("unjudged", {each: Absent("no such option") for each in Scenario}, must_pass=True),),
            False,
            Status.NOT_JUDGED,
        ),
    ],
)
def test_only_those_that_must_pass_decide(peers, require_peers, status):
    """IO-4: only peers that must pass can fail a run; if all peers are required, so can missing or broken ones."""
    assert results(*peers()).status(require_peers=require_peers) is status


def test_what_does_not_apply_is_no_failure():
    """IO-4: a clause that does not apply to a peer does not make it fail."""
    evidence = dict(right_peer().evidence) | {Scenario.UNSTABLE: Absent("no such option")}
    assert results(peer("right", evidence, must_pass=True)).status(require_peers=True) is Status.PASSED


def test_named_peers_must_pass_what_the_protocol_asks():
    """IO-4: a peer that was named passes if it follows the protocol; a recommendation is asked only of our own."""
    floods = {Scenario.FLAPPING: made.flapping((0.01,) * 390)}
    ours, other = (peer("it", made.right_client() | floods, must_pass=must_pass) for must_pass in (True, False))
    assert results(other).status(require_peers=False, named=True) is Status.PASSED
    assert results(ours).status(require_peers=False) is Status.FAILED
    known = Demands(allowed={"no-flood", "goaway-backs-off", "CB-8"})
    assert results(ours).status(require_peers=False, demands=known) is Status.PASSED
    assert results(flooding_peer()).status(require_peers=False, named=True) is Status.FAILED


@pytest.mark.parametrize(
    ("required", "allowed", "status"),
    [
        (["CB-7"], [], Status.FAILED),
        (["no-flood"], [], Status.FAILED),
        (["CB-8", "lost-is-replaced"], [], Status.PASSED),
        (["CB-7"], ["no-flood", "goaway-backs-off"], Status.PASSED),
    ],
)
def test_a_recommendation_that_is_required(required, allowed, status):
    """IO-4: a recommendation counts for a client that was named if it is required and not allowed to fail."""
    other = peer("it", made.right_client() | {Scenario.FLAPPING: made.flapping((0.01,) * 390)})
    demands = Demands(allowed=allowed, required=required)
    assert results(other).status(require_peers=False, named=True, demands=demands) is status


def test_a_client_of_which_nothing_could_be_judged():
    """IO-4: if everything is not asked or late, nothing has failed and nothing has passed; a failure outweighs that."""
    unasked = peer("unasked", {each: Absent("no such option") for each in Scenario})
    late = replace(
        right_peer(), verdicts=tuple(replace(each, outcome=Outcome.INCONCLUSIVE) for each in right_peer().verdicts)
    )
    for one in (unasked, late, MISSING):
        assert results(right_peer(), one).status(require_peers=False, named=True) is Status.NOT_JUDGED
        assert results(one, flooding_peer()).status(require_peers=False, named=True) is Status.FAILED


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
