"""Each clause on evidence made by hand: the right client passes all, and each fault is seen by one clause alone."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from interop.conformance import CLAUSES, Absent, Calls, Outcome, Scenario, judge
from interop.conformance.gaps import series_of
from interop.timeline import Ending, Lag, Window
from tests.interop_suite.conformance import made

NAMES = [clause.name for clause in CLAUSES]


def open_to_the_end(visit):
    return replace(visit, ended=None, ending=Ending.OPEN)


def never_gives_up():
    return made.evidence([open_to_the_end(made.failing(0.51, behaviour="silent"))], seconds=5.6)


def overlapping():
    """Return one attempt a second on which the next one does not wait."""
    return made.silent(gaps=(1.0, 1.0, 0.6, 1.0, 1.4))


def one(scenario, evidence):
    return {scenario: evidence}


def silent_in_tls(lasted):
    return made.evidence([made.failing(0.51, lasted, behaviour="silent")], seconds=2.6)


def slow_settings(*visits, acknowledged=0.6):
    changed = [replace(visit, settings_acknowledged=acknowledged) if visit.settings_sent else visit for visit in visits]
    return one(Scenario.SLOW_SETTINGS, made.evidence(changed, seconds=2.0))


LOST, TWICE = made.request(1.9, "0-5", "open"), made.request(5.0, "0-5")


def compounding():
    """Return gaps that are each right beside the one before, and far from where they belong in the end."""
    gaps, terms = [0.2], replace(made.TERMS, cap=24.0)
    for jitter in (*(0.17,) * 5, *(-0.17,) * 5):
        gaps.append(gaps[-1] * 1.6 * (1 + jitter))
    return {Scenario.HANG_UP: made.series(gaps, seconds=sum(gaps), terms=terms)}


WRONG_NUMBERS = [
    ("first-gap", made.timed(initial=0.5)),
    ("first-gap", made.timed(initial=1.6)),
    ("first-gap", made.timed(first=0.01)),
    ("growth", made.timed(multiplier=1.2)),
    ("growth", made.timed(multiplier=2.1)),
    ("cap", made.timed(cap=0.6)),
    ("cap", made.timed(cap=1.5)),
    ("jitter", made.timed(width=0.0)),
    ("jitter", made.timed(width=0.05)),
    ("jitter", made.timed(width=0.4)),
    ("jitter", made.timed(jitter=[abs(each) for each in made.JITTER])),
    ("jitter-does-not-compound", compounding()),
]
"""Schedules with one number that is not what the client was told."""

FAULTS = [
    ("keeps-trying", one(Scenario.STEADY, made.series([0.2, 0.35, 0.4, 0.44, 0.36], terms=made.STEADY))),
    (
        "start-to-start",
        one(Scenario.SLOW_FAILURE, made.series([length + 0.15 for length in made.NOMINAL], 0.15)),
    ),
    ("accept-does-not-reset", one(Scenario.HANDSHAKE, made.series([0.2] * 40))),
    ("clients-disperse", one(Scenario.HERD, made.herd(second=[length + 0.01 for length in made.GAPS]))),
    ("clients-disperse", one(Scenario.HERD, made.herd(clients=("a",)))),
    ("limit", one(Scenario.SILENT, made.silent((0.25, 1.0, 1.0, 1.0, 1.4), (0.2, 1.0, 1.0, 1.0, 1.4)))),
    ("limit", one(Scenario.SILENT, made.silent(lasting=(1.0, 1.0, 1.0, 1.0, 0.9)))),
    ("limit", one(Scenario.SILENT, made.silent(lasting=(1.5, 1.0, 1.5, 1.5, 1.9)))),
    ("trickle-limit", one(Scenario.SILENT, made.silent(gaps=(1.0, 3.0, 1.0, 1.0, 1.4), lasting=(1, 3, 1, 1, 1.4)))),
    ("tls-limit", one(Scenario.TLS_SILENT, silent_in_tls(0.3))),
    ("tls-limit", one(Scenario.TLS_SILENT, silent_in_tls(2.0))),
    ("one-at-a-time", one(Scenario.SILENT, overlapping())),
    ("no-pause-after-the-limit", one(Scenario.SILENT, made.silent(gaps=(1.2, 1.3, 1.5, 1.8, 2.3)))),
    ("waits-for-settings", slow_settings(made.failing(0.51, 0.4), made.served(0.92, None, (1.7,)))),
    ("waits-for-settings", slow_settings(made.served(0.51))),
    ("acknowledges-settings", slow_settings(made.served(0.51, None, (1.3,)), acknowledged=None)),
    ("one-connection", slow_settings(made.served(0.51, None, (1.3,)), made.served(0.52))),
    ("settings-reset", one(Scenario.RESET, made.reset(after=(0.9, 1.3, 1.6)))),
    ("settings-reset", one(Scenario.RESET, made.reset(after=()))),
    ("no-flood", one(Scenario.FLAPPING, made.flapping((0.01,) * 390, goaway=(0,)))),
    ("no-flood", one(Scenario.FLAPPING, made.flapping((0.2, 0.2, 0.01, 0.01, 0.2, 0.2, 0.2, 0.2)))),
    ("no-flood", one(Scenario.FLAPPING, made.flapping((0.6, 0.6, 0.6), goaway=(1,)))),
    ("goaway-backs-off", one(Scenario.FLAPPING, made.flapping((*(0.2,) * 5, 0.01, 0.01, *(0.2,) * 9)))),
    ("stable-after", one(Scenario.UNSTABLE, made.flapping((0.2,) * 40))),
    ("recovery", one(Scenario.OUTAGE, made.outage(back=1.9))),
    ("recovery", one(Scenario.OUTAGE, made.outage(requests=made.ANSWERED, calls=Calls(made=60, ok=20)))),
    ("refused-backs-off", one(Scenario.OUTAGE, made.outage(refused=tuple(2.005 + n / 200 for n in range(300))))),
    ("refused-backs-off", one(Scenario.OUTAGE, made.outage(refused=(2.005, 2.405, 3.05)))),
    (
        "waits-for-ready",
        one(
            Scenario.OUTAGE,
            made.outage(requests=[*made.ANSWERED, made.request(5.0, "1-60")], calls=Calls(made=99, ok=21)),
        ),
    ),
    (
        "lost-is-not-repeated",
        one(Scenario.OUTAGE, made.outage(requests=[*made.ANSWERED, *made.AGAIN[1:], LOST, TWICE])),
    ),
    ("accounts-for-calls", one(Scenario.OUTAGE, made.outage(calls=Calls(made=35, ok=35)))),
    ("accounts-for-calls", one(Scenario.OUTAGE, made.outage(calls=Calls(made=100, ok=37)))),
    ("reset-backs-off", one(Scenario.FAILURES, made.failures(after_reset=(0.005, 0.46)))),
    ("garbage-backs-off", one(Scenario.FAILURES, made.failures(after_garbage=(0.35, 0.2)))),
    ("first-attempt", one(Scenario.RESTART, made.restart(first=made.WANTED + 1.0))),
    ("lost-is-replaced", one(Scenario.RESTART, made.restart(pause=1.0))),
    ("rolling-restart", one(Scenario.RESTART, made.restart(replaced=[*made.REPLACED[:2], *made.REPLACED[3:]]))),
    ("refused-is-repeated", one(Scenario.RESTART, made.restart(again=[made.request(6.6, "0-6")]))),
    ("announced-outage", one(Scenario.HELD_OUTAGE, made.held(beside=(2.0, 3.15, 4.3)))),
    ("announced-outage", one(Scenario.HELD_OUTAGE, made.held(announced=[*made.GAPS, 1.6]))),
    ("announced-outage", one(Scenario.HELD_OUTAGE, replace(made.held(), announced=None))),
    ("announced-restart", one(Scenario.HELD_RESTART, made.held(beside=(2.0,), redials=(1.0, 2.5)))),
    ("announced-move", one(Scenario.HELD_MOVE, made.held(after=(0.5,)))),
]


def outcomes(evidence):
    return {verdict.clause: verdict.outcome for verdict in judge(evidence, CLAUSES)}


def test_right_client_passes():
    """IO-4: a client that does all as the protocol says passes every clause."""
    assert outcomes(made.right_client()) == dict.fromkeys(NAMES, Outcome.PASS)


def test_the_right_client_is_judged_by_each_clause():
    """IO-4: every clause measures something of it: none passes for want of a figure."""
    assert all(verdict.measures for verdict in judge(made.right_client(), CLAUSES))


@pytest.mark.parametrize(("clause", "evidence"), FAULTS, ids=[f"{f[0]}-{n}" for n, f in enumerate(FAULTS)])
def test_each_fault_is_seen_by_its_clause_alone(clause, evidence):
    """IO-4: a client with one fault fails the clause that stands for it, and no other."""
    found = outcomes(made.right_client() | evidence)
    found = {name: Outcome.PASS if outcome is Outcome.NOT_APPLICABLE else outcome for name, outcome in found.items()}
    assert found == dict.fromkeys(NAMES, Outcome.PASS) | {clause: Outcome.FAIL}


@pytest.mark.parametrize(
    ("clause", "evidence"), WRONG_NUMBERS, ids=[f"{f[0]}-{n}" for n, f in enumerate(WRONG_NUMBERS)]
)
def test_one_wrong_number_is_one_fault(clause, evidence):
    """CB-2, CB-5: of a whole series it is known which number is wrong, and that the others are not."""
    assert [name for name, outcome in outcomes(evidence).items() if outcome is Outcome.FAIL] == [clause]


def test_each_clause_has_a_fault():
    """IO-4: no clause of the table is there that nothing can fail."""
    assert {fault[0] for fault in (*FAULTS, *WRONG_NUMBERS)} == set(NAMES)


def test_a_client_that_never_connects_fails_everything():
    """IO-2: silence is no conformance, whatever the official server says of it."""
    silence = {
        scenario: replace(right, timeline=replace(right.timeline, visits=(), refused=()), calls=Calls())
        for scenario, right in made.right_client().items()
    }
    assert outcomes(silence) == dict.fromkeys(NAMES, Outcome.FAIL)


def test_a_client_that_hangs_for_good():
    """CB-3: one attempt that is never given up is past its limit, though it has not ended."""
    found = outcomes({Scenario.SILENT: never_gives_up()})
    assert found.pop("limit") is Outcome.FAIL
    assert set(found.values()) == {Outcome.NOT_APPLICABLE}


def test_a_socket_that_stands_on_is_no_second_attempt():
    """CB-1, CB-3: a socket that stands long after the limit is too late; the attempt on it was given up in time."""
    found = outcomes({Scenario.SILENT: made.silent(lasting=(1.5, 1.0, 1.5, 1.5, 1.9))})
    assert [name for name, outcome in found.items() if outcome is Outcome.FAIL] == ["limit"]


def test_an_outage_that_never_came():
    """CB-4: the outage waits for a connection, so without one there is no window of time to judge by."""
    assert outcomes({Scenario.OUTAGE: made.evidence([])})["recovery"] is Outcome.FAIL


def test_no_backoff_at_all_has_no_jitter_to_be_seen():
    """CB-5: a flood has the wrong first gap, and does not grow; more cannot be said of it."""
    found = outcomes({Scenario.HANG_UP: made.series([0.001] * 500)})
    assert found["first-gap"] is found["growth"] is Outcome.FAIL
    assert found["jitter"] is found["jitter-does-not-compound"] is Outcome.NOT_APPLICABLE


def test_an_early_connection_is_made_up_for():
    """CB-7: one connection may come early, at the end of the one before, if the next one waits for longer."""
    early = made.flapping((0.2, 0.004, 0.396) * 6, goaway=(18,))
    assert outcomes({Scenario.FLAPPING: early})["no-flood"] is Outcome.PASS
    not_made_up_for = made.flapping((0.2, 0.004, 0.09, 0.3) * 6, goaway=(20,))
    assert outcomes({Scenario.FLAPPING: not_made_up_for})["no-flood"] is Outcome.FAIL


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
        found = outcomes({Scenario.OUTAGE: made.evidence(visits, seconds=80.0, refusing=[gone])})
        assert found["recovery"] is outcome


def test_a_trial_that_was_ended_says_in_which_time():
    """IO-4: of a flood that was ended once all was settled, the figure is for the time that was watched."""
    whole = made.flapping([0.01] * 390)
    cut = replace(whole, settled=made.WANTED + 3.02)
    assert (whole.over, whole.lasted) == (made.WANTED + 4, 4)
    assert (cut.over, round(cut.lasted, 6)) == (made.WANTED + 3.02, 3.02)
    (verdict,) = (each for each in judge({Scenario.FLAPPING: cut}, CLAUSES) if each.clause == "no-flood")
    assert str(verdict).startswith("connections in 3.0 s that came too soon: ")


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
    seen = made.timed(multiplier=2.0) | {Scenario.SLOW_SETTINGS: made.evidence([made.served(0.51), made.served(0.52)])}
    by_name = {verdict.clause: verdict for verdict in judge(seen, CLAUSES)}
    assert re.fullmatch(r"MULTIPLIER: (1\.9|2\.0). \(.* to .*\), expected 1\.60", str(by_name["growth"]))
    beside = "connections beside one that works: 1 connections, allowed at most 0, missed by 1 connections"
    assert str(by_name["one-connection"]) == beside
    assert str(by_name["jitter"]) == "holds, 3 measured"


@pytest.mark.parametrize(("by", "outcome"), [(0.09, Outcome.FAIL), (0.2, Outcome.INCONCLUSIVE)])
def test_a_judge_that_was_late_has_no_verdict(by, outcome):
    """IO-4: what hangs on 1.2 s is no failure if the judge was more than a tenth of that late at one end of it."""
    attempt = made.failing(0.51, 0.7, behaviour="silent")
    late = made.evidence([attempt, made.failing(1.51, 1.0, behaviour="silent")], lags=[Lag(at=1.21, by=by)])
    (verdict,) = judge({Scenario.TLS_SILENT: late}, CLAUSES)
    assert verdict.outcome is outcome
    assert ("the judge was 200 ms late" in str(verdict)) is (outcome is Outcome.INCONCLUSIVE)


def test_a_late_judge_elsewhere_changes_nothing():
    """IO-4: lateness counts where the figure was measured, and nowhere else."""
    attempt = made.failing(0.51, 0.7, behaviour="silent")
    late = made.evidence([attempt, made.failing(1.51, 1.0, behaviour="silent")], lags=[Lag(at=2.4, by=0.3)])
    (verdict,) = judge({Scenario.TLS_SILENT: late}, CLAUSES)
    assert verdict.outcome is Outcome.FAIL


def test_gaps_that_a_late_judge_noted_are_left_out():
    """IO-4: one gap that the judge has wrong does not make the client's schedule wrong."""
    gaps = [0.2, 0.35, 0.75, 0.9, 1.2, 1.8, 1.4, 1.75]
    right = made.series(gaps)
    late = replace(right, timeline=replace(right.timeline, lags=(Lag(at=right.visits[3].accepted, by=0.3),)))
    (series,) = series_of(late)
    assert [math.isnan(gap) for gap in series.gaps] == [False, False, True, True, *[False] * 4]


def test_calls_without_numbers_are_counted_by_the_client():
    """CH-6: where a client does not say which call is which, its own word has to do."""
    bare = [made.request(1.0 + n / 10) for n in range(5)]
    for ok, outcome in ((100, Outcome.PASS), (99, Outcome.FAIL)):
        seen = made.restart(replaced=bare, not_taken=[], again=[made.request(6.6)], calls=Calls(made=100, ok=ok))
        by_name = outcomes({Scenario.RESTART: seen})
        assert by_name["rolling-restart"] is outcome
        assert by_name["refused-is-repeated"] is Outcome.NOT_APPLICABLE


def test_refused_dials_that_cannot_be_seen():
    """CB-4: where nobody may look, the clause says so."""
    by_name = {verdict.clause: verdict for verdict in judge({Scenario.OUTAGE: made.outage(refused=None)}, CLAUSES)}
    assert by_name["refused-backs-off"].outcome is Outcome.NOT_APPLICABLE
    assert "raw socket" in by_name["refused-backs-off"].reason


def test_a_judge_that_was_always_late_gives_no_verdict():
    """IO-4: gaps that were all noted late convict nobody, and acquit nobody: the trial is to be run again."""
    flood = made.series((0.02,) * 12, seconds=4.0)
    late = tuple(Lag(at=visit.accepted + 0.001, by=0.5) for visit in flood.visits)
    flood = replace(flood, timeline=replace(flood.timeline, lags=late))
    found = outcomes({Scenario.HANG_UP: flood})
    assert {found["first-gap"], found["growth"]} == {Outcome.INCONCLUSIVE}
