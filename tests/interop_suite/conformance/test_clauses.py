"""Each clause on evidence made by hand: the right client passes all, and each fault is seen by one clause alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from interop.conformance import CLAUSES, Absent, Calls, Outcome, Scenario, judge
from interop.timeline import Ending, Window
from tests.interop_suite.conformance import made

NAMES = [clause.name for clause in CLAUSES]


def changed(position, length):
    """Return the right gaps, but for one."""
    gaps = list(made.GAPS)
    gaps[position - 1] = length
    return gaps


def beyond_the_cap():
    return [*made.GAPS[:5], 2.2, 2.2, 1.9]


def drifting():
    """Return gaps that are each right beside the one before, and ever farther from where they belong."""
    return [0.2, 0.37, 0.70, 1.31, 1.75, 1.7, 1.5, 1.75]


def open_to_the_end(visit):
    return replace(visit, ended=None, ending=Ending.OPEN)


def never_gives_up():
    return made.evidence([open_to_the_end(made.failing(0.51))], seconds=5.6)


def overlapping():
    """Return one attempt a second on which the next one does not wait."""
    return made.silent(gaps=(1.0, 1.0, 0.6, 1.0, 1.4))


FAULTS = [
    ("keeps-trying", Scenario.HANG_UP, made.series(made.GAPS[:6])),
    ("first-gap", Scenario.HANG_UP, made.series(changed(1, 0.1))),
    ("first-gap", Scenario.HANG_UP, made.series(changed(1, 0.3))),
    ("growth", Scenario.HANG_UP, made.series(changed(3, 0.32))),
    ("growth", Scenario.HANG_UP, made.series(changed(4, 1.2))),
    ("cap", Scenario.HANG_UP, made.series(beyond_the_cap())),
    ("cap", Scenario.HANG_UP, made.series(changed(7, 0.2))),
    ("jitter", Scenario.HANG_UP, made.series(made.NOMINAL)),
    ("jitter", Scenario.HANG_UP, made.series([length + 0.02 for length in made.NOMINAL])),
    ("jitter-does-not-compound", Scenario.HANG_UP, made.series(drifting())),
    ("start-to-start", Scenario.SLOW_FAILURE, made.series([length + 0.15 for length in made.NOMINAL], 0.15)),
    ("accept-does-not-reset", Scenario.HANDSHAKE, made.series([0.2] * 40)),
    ("clients-disperse", Scenario.HERD, made.herd(second=[length + 0.01 for length in made.GAPS])),
    ("clients-disperse", Scenario.HERD, made.herd(clients=("a",))),
    ("limit", Scenario.SILENT, made.silent(lasting=(0.2, 1.0, 1.0, 1.0, 1.4))),
    ("limit", Scenario.SILENT, made.silent(lasting=(1.0, 1.0, 1.0, 1.0, 0.9))),
    ("one-at-a-time", Scenario.SILENT, overlapping()),
    ("no-pause-after-the-limit", Scenario.SILENT, made.silent(gaps=(1.2, 1.3, 1.5, 1.8, 2.3))),
    ("waits-for-settings", Scenario.SLOW_SETTINGS, made.evidence([made.failing(0.51, 0.4), made.served(0.92)])),
    ("waits-for-settings", Scenario.SLOW_SETTINGS, made.evidence([made.served(0.51)], calls=Calls(made=9))),
    ("settings-reset", Scenario.RESET, made.reset(after=(0.9, 1.3, 1.6))),
    ("settings-reset", Scenario.RESET, made.reset(after=())),
    ("no-flood", Scenario.FLAPPING, made.flapping((0.01,) * 390)),
    ("no-flood", Scenario.FLAPPING, made.flapping((0.2, 0.2, 0.01, 0.01, 0.2, 0.2))),
    ("no-flood", Scenario.FLAPPING, made.flapping((0.2,))),
    ("stable-after", Scenario.UNSTABLE, made.flapping((0.2,) * 40)),
    ("recovery", Scenario.OUTAGE, made.outage(back=1.9)),
    ("recovery", Scenario.OUTAGE, made.outage(requests=())),
    ("first-attempt", Scenario.RESTART, made.restart(first=made.WANTED + 1.0)),
    ("lost-is-replaced", Scenario.RESTART, made.restart(pause=1.0)),
    ("rolling-restart", Scenario.RESTART, made.restart(calls=Calls(made=9, ok=8, failed={"UNAVAILABLE": 1}))),
    ("rolling-restart", Scenario.RESTART, made.restart(calls=Calls(made=9, ok=8, unfinished=1))),
    ("announced-outage", Scenario.HELD_OUTAGE, made.held(beside=(2.0, 3.15, 4.3))),
    ("announced-outage", Scenario.HELD_OUTAGE, made.held(announced=[*made.GAPS, 1.6])),
    ("announced-outage", Scenario.HELD_OUTAGE, replace(made.held(), announced=None)),
    ("announced-restart", Scenario.HELD_RESTART, made.held(beside=(2.0,), redials=(1.0, 2.5))),
    ("announced-move", Scenario.HELD_MOVE, made.held(after=(0.5,))),
]


def outcomes(evidence):
    return {verdict.clause: verdict.outcome for verdict in judge(evidence, CLAUSES)}


def test_right_client_passes():
    """IO-4: a client that does all as the protocol says passes every clause."""
    assert outcomes(made.right_client()) == dict.fromkeys(NAMES, Outcome.PASS)


def test_the_right_client_is_judged_by_each_clause():
    """IO-4: every clause measures something of it: none passes for want of a figure."""
    assert all(verdict.measures for verdict in judge(made.right_client(), CLAUSES))


@pytest.mark.parametrize(("clause", "scenario", "evidence"), FAULTS, ids=[f"{f[0]}-{n}" for n, f in enumerate(FAULTS)])
def test_each_fault_is_seen_by_its_clause_alone(clause, scenario, evidence):
    """IO-4: a client with one fault fails the clause that stands for it, and no other."""
    found = outcomes(made.right_client() | {scenario: evidence})
    assert found == dict.fromkeys(NAMES, Outcome.PASS) | {clause: Outcome.FAIL}


def test_each_clause_has_a_fault():
    """IO-4: no clause of the table is there that nothing can fail."""
    assert {fault[0] for fault in FAULTS} == set(NAMES)


def test_a_client_that_never_connects_fails_everything():
    """IO-2: silence is no conformance, whatever the official server says of it."""
    silence = {
        scenario: replace(right, timeline=replace(right.timeline, visits=()), calls=Calls())
        for scenario, right in made.right_client().items()
    }
    assert outcomes(silence) == dict.fromkeys(NAMES, Outcome.FAIL)


def test_a_client_that_hangs_for_good():
    """CB-3: one attempt that is never given up is past its limit, though it has not ended."""
    found = outcomes({Scenario.SILENT: never_gives_up()})
    assert found == {
        "limit": Outcome.FAIL,
        "one-at-a-time": Outcome.NOT_APPLICABLE,
        "no-pause-after-the-limit": Outcome.FAIL,
    }


def test_a_limit_that_never_closes_is_two_faults():
    """CB-1, CB-3: sockets that stand long after the limit are too late, and lie beside the next attempt."""
    found = outcomes({Scenario.SILENT: made.silent(lasting=(1.5, 1.5, 1.5, 1.5, 1.9))})
    assert [name for name, outcome in found.items() if outcome is Outcome.FAIL] == ["one-at-a-time", "limit"]


def test_an_outage_that_never_came():
    """CB-4: the outage waits for a connection, so without one there is no window of time to judge by."""
    assert outcomes({Scenario.OUTAGE: made.evidence([])}) == {"recovery": Outcome.FAIL}


def test_a_flood_is_no_compounding():
    """CB-5: gaps without any backoff are each like the one before, and explained by none."""
    found = outcomes({Scenario.HANG_UP: made.series([0.01] * 500)})
    assert found["growth"] is found["cap"] is found["first-gap"] is Outcome.FAIL
    assert found["jitter-does-not-compound"] is Outcome.NOT_APPLICABLE


def test_growth_and_compounding_are_told_apart():
    """CB-5: each gap that misses is laid at one door."""
    found = outcomes({Scenario.HANG_UP: made.series([0.2, 0.2, 0.2, 0.2, 0.2, 1.6, 1.5, 1.7])})
    assert [name for name, outcome in found.items() if outcome is Outcome.FAIL] == ["growth"]


def test_an_early_connection_is_made_up_for():
    """CB-7: one connection may come early, at the end of the one before, if the next one waits for longer."""
    early = made.flapping((0.2, 0.004, 0.396) * 6)
    assert outcomes({Scenario.FLAPPING: early}) == {"no-flood": Outcome.PASS}
    not_made_up_for = made.flapping((0.2, 0.004, 0.09, 0.3) * 6)
    assert outcomes({Scenario.FLAPPING: not_made_up_for}) == {"no-flood": Outcome.FAIL}


def test_an_early_connection_is_no_attempt_of_its_own():
    """CB-8: one connection that comes early, at the end of the one before, does not upset the growth; two do."""
    once = made.starts((0.2, 0.006, 0.33, 0.5, 0.8, 1.3, 1.6, 1.6, 1.7))
    twice = made.starts((0.2, 0.006, 0.33, 0.006, 0.5, 0.8, 1.3, 1.6, 1.6, 1.7))
    for starts, outcome in ((once, Outcome.PASS), (twice, Outcome.FAIL)):
        visits = [made.served(at, at + 0.01) for at in starts]
        assert outcomes({Scenario.UNSTABLE: made.evidence(visits, seconds=9.0)}) == {"stable-after": outcome}


@pytest.mark.parametrize(
    ("after", "outcome"),
    [
        ((0.002, 0.2, 0.33), Outcome.PASS),  # before the attempt that the loss calls for
        ((0.2, 0.002, 0.33), Outcome.PASS),
        ((0.002, 0.002, 0.2, 0.33), Outcome.FAIL),
        ((0.002, 0.2, 0.002, 0.33), Outcome.FAIL),
    ],
)
def test_an_early_connection_after_a_loss_is_no_missing_reset(after, outcome):
    """CB-6, CB-7: a call that entered the dying connection may cost one early connection; a second one is a fault."""
    assert outcomes({Scenario.RESET: made.reset(after)}) == {"settings-reset": outcome}


def test_cap_that_is_not_reached():
    """CB-5: where time is too short for MAX_BACKOFF, nothing is said of it."""
    verdicts = judge({Scenario.HANG_UP: made.series(made.GAPS[:4], seconds=3.4)}, CLAUSES)
    by_name = {verdict.clause: verdict for verdict in verdicts}
    assert by_name["cap"].outcome is Outcome.NOT_APPLICABLE
    assert by_name["cap"].reason == "MAX_BACKOFF of 1.6 s is not reached in 3.4 s"
    assert by_name["growth"].outcome is Outcome.PASS


def test_absent_evidence():
    """IO-4: a scenario that a client cannot take part in says nothing of it, and why."""
    (verdict,) = judge({Scenario.UNSTABLE: Absent("it has no such option")}, CLAUSES)
    assert (verdict.outcome, verdict.reason) == (Outcome.NOT_APPLICABLE, "it has no such option")


def test_evidence_that_should_be_there():
    """IO-4: a client whose program breaks down fails what it would have been judged by."""
    (verdict,) = judge({Scenario.HANDSHAKE: Absent("it ended with status 1", fault=True)}, CLAUSES)
    assert (verdict.outcome, str(verdict)) == (Outcome.FAIL, "it ended with status 1")


def test_an_outage_that_outlasts_the_growth():
    """CB-4: the next planned start after a long outage is a jittered MAX_BACKOFF away at most."""
    gone = Window(begin=2.0, end=60.0)
    late = [made.served(0.5, 2.0), made.served(60.0 + 1.6 * 1.2 + 0.05, None, (70.0,))]
    too_late = [made.served(0.5, 2.0), made.served(60.0 + 1.6 * 1.2 + 0.06, None, (70.0,))]
    for visits, outcome in ((late, Outcome.PASS), (too_late, Outcome.FAIL)):
        assert outcomes({Scenario.OUTAGE: made.evidence(visits, seconds=80.0, refusing=[gone])}) == {
            "recovery": outcome
        }


def test_a_trial_that_was_ended_says_in_which_time():
    """IO-4: of a flood that was ended once all was settled, the figure is for the time that was watched."""
    whole = made.flapping([0.01] * 390)
    cut = replace(whole, settled=made.WANTED + 3.02)
    assert (whole.over, whole.lasted) == (made.WANTED + 4, 4)
    assert (cut.over, round(cut.lasted, 6)) == (made.WANTED + 3.02, 3.02)
    (verdict,) = (each for each in judge({Scenario.FLAPPING: cut}, CLAUSES) if each.clause == "no-flood")
    assert str(verdict).startswith("connections in 3.0 s: 302 connections, allowed 5 to 27")


def test_dials_are_counted_by_attempt():
    """CB-1: the verdict says at which attempt the connections came that nobody announced."""
    dialled = made.held(beside=(made.starts()[2] + 0.1, made.starts()[2] + 0.2), redials=(0.55,), after=(0.3, 1.4))
    (verdict,) = judge({Scenario.HELD_OUTAGE: dialled}, CLAUSES)
    _, seen, late = verdict.measures
    assert str(seen) == (
        "connections for 9 attempts (2+1+3+1+1+1+1+1+1) and 1 redials announced: 12 connections, allowed 10 to 10, "
        "missed by 2 connections"
    )
    assert (
        str(late)
        == "connections after the channel was closed: 2 connections, allowed at most 0, missed by 2 connections"
    )


def test_verdicts_say_what_was_seen_and_allowed_and_missed():
    """IO-4: a verdict that fails names the figure, what it may be, and by how much it is outside."""
    seen = {Scenario.HANG_UP: made.series(changed(3, 0.8)), Scenario.FLAPPING: made.flapping([0.01] * 390)}
    by_name = {verdict.clause: verdict for verdict in judge(seen, CLAUSES)}
    assert str(by_name["growth"]) == "gap 3: 0.800 s, allowed 0.360 to 0.664, missed by 0.136 s"
    flood = "connections in 4.0 s: 391 connections, allowed 5 to 27, missed by 364 connections (and 24 more)"
    assert str(by_name["no-flood"]) == flood
    assert str(by_name["jitter"]) == "holds, 2 measured"
