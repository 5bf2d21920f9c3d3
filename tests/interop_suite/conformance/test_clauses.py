"""Each clause on evidence made by hand: a correct client passes all, and each fault fails exactly one clause."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace

import pytest

from grpc_judge.conformance import CLAUSES, Absent, Calls, Outcome, Scenario, judge
from grpc_judge.conformance import fit as fit_module
from grpc_judge.conformance.fit import Trait
from grpc_judge.conformance.gaps import series_of
from grpc_judge.conformance.schedule import Schedule
from grpc_judge.timeline import Ending, Lag, Window
from tests.interop_suite.conformance import made

NAMES = [clause.name for clause in CLAUSES]


def open_to_the_end(visit):
    return replace(visit, ended=None, ending=Ending.OPEN)


def never_gives_up():
    return made.evidence([open_to_the_end(made.failing(0.51, behaviour="silent"))], seconds=5.6)


def overlapping():
    """Return the evidence of attempts that last a second, one of which starts before the previous one has ended."""
    return made.silent(gaps=(1.0, 1.0, 0.6, 1.0, 1.4))


def one(scenario, evidence):
    return {scenario: evidence}


def silent_in_tls(lasted):
    return made.evidence([made.failing(0.51, lasted, behaviour="silent")], seconds=2.6)


def slow_settings(*visits, acknowledged=0.6):
    changed = [replace(visit, settings_acknowledged=acknowledged) if visit.settings_sent else visit for visit in visits]
    return one(Scenario.SLOW_SETTINGS, made.evidence(changed, seconds=2.0))


def at_once(visits, seconds):
    """Return the evidence of a client that makes each of these connections ten times within 10 ms."""
    several = [replace(visit, accepted=visit.accepted + n / 1000) for visit in visits for n in range(10)]
    return made.evidence(several, seconds=seconds)


def beside(evidence, at):
    """Return this evidence with sixty connections more, which are made within 0.3 s and closed at once."""
    flood = [made.failing(at + n / 200) for n in range(60)]
    visits = sorted([*evidence.timeline.visits, *flood], key=lambda visit: visit.accepted)
    return replace(evidence, timeline=replace(evidence.timeline, visits=tuple(visits)))


LOST, TWICE = made.request(1.9, "0-5", "open"), made.request(5.0, "0-5")


def compounding():
    """Return gaps that are each right relative to the previous one, but drift far from the schedule."""
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
"""Schedules in which one number differs from the configured one, each with the clause that the difference fails."""

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
    ("drained-backs-off", one(Scenario.DRAINED, made.drained((0.03,) * 100))),
    ("drained-backs-off", one(Scenario.DRAINED, made.drained(()))),
    ("tls-failure-backs-off", one(Scenario.TLS_FAILURE, made.series((0.006,) * 299, seconds=3.0))),
    ("tls-failure-backs-off", one(Scenario.TLS_FAILURE, made.series((0.2, 0.35, 0.006, 0.9)))),
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
    ("accounts-for-calls", one(Scenario.OUTAGE, made.outage(calls=replace(made.ACCOUNT, unfinished=1)))),
    ("reset-backs-off", one(Scenario.FAILURES, made.failures(after_reset=(0.005, 0.46)))),
    ("garbage-backs-off", one(Scenario.FAILURES, made.failures(after_garbage=(0.35, 0.2)))),
    ("first-attempt", one(Scenario.RESTART, made.restart(first=made.WANTED + 1.0))),
    ("lost-is-replaced", one(Scenario.RESTART, made.restart(pause=1.0))),
    ("rolling-restart", one(Scenario.RESTART, made.restart(replaced=[*made.REPLACED[:2], *made.REPLACED[3:]]))),
    ("refused-is-repeated", one(Scenario.RESTART, made.restart(again=[made.request(6.6, "0-6")]))),
    ("settings-reset", one(Scenario.RESET, made.reset(after=(0.2, 0.33, 0.5, *(0.004,) * 60)))),
    ("clients-disperse", one(Scenario.HERD, made.herd(first=(0.2, 0.28, 0.7, 0.5, *(0.004,) * 60)))),
    ("tls-limit", one(Scenario.TLS_SILENT, at_once([made.failing(0.51, 1.0, behaviour="silent")], 2.6))),
    ("one-connection", slow_settings(*(made.served(0.51 + n / 50, 0.52 + n / 50, (1.3,)) for n in range(40)))),
    ("recovery", one(Scenario.OUTAGE, beside(made.outage(), 3.0))),
    ("lost-is-replaced", one(Scenario.RESTART, beside(made.restart(), 1.0))),
]


def outcomes(evidence):
    return {verdict.clause: verdict.outcome for verdict in judge(evidence, CLAUSES)}


def test_right_client_passes():
    """IO-4: a client that follows the protocol passes every clause."""
    assert outcomes(made.right_client()) == dict.fromkeys(NAMES, Outcome.PASS)


def test_the_right_client_is_judged_by_each_clause():
    """IO-4: every clause measures something of the correct client, so none passes for lack of evidence."""
    assert all(verdict.measures for verdict in judge(made.right_client(), CLAUSES))


@pytest.mark.parametrize(("clause", "evidence"), FAULTS, ids=[f"{f[0]}-{n}" for n, f in enumerate(FAULTS)])
def test_each_fault_is_seen_by_its_clause_alone(clause, evidence):
    """IO-4: a client with one fault fails the clause for that fault, and no other."""
    found = outcomes(made.right_client() | evidence)
    found = {name: Outcome.PASS if outcome is Outcome.NOT_APPLICABLE else outcome for name, outcome in found.items()}
    assert found == dict.fromkeys(NAMES, Outcome.PASS) | {clause: Outcome.FAIL}


@pytest.mark.parametrize(
    ("clause", "evidence"), WRONG_NUMBERS, ids=[f"{f[0]}-{n}" for n, f in enumerate(WRONG_NUMBERS)]
)
def test_one_wrong_number_is_one_fault(clause, evidence):
    """CB-2, CB-5: if one number in a schedule is wrong, only the clause for that number fails."""
    assert [name for name, outcome in outcomes(evidence).items() if outcome is Outcome.FAIL] == [clause]


FLOODS = {
    "constant": lambda rng, n: 0.037,
    "any": lambda rng, n: rng.expovariate(25),
    "bursts": lambda rng, n: 0.005 if n % 12 else made.TERMS.nominal(n // 12 + 1) * rng.uniform(0.8, 1.2),
    "pairs": lambda rng, n: 0.002 if n % 2 else made.TERMS.nominal(n // 2 + 1) * rng.uniform(0.8, 1.2),
    "in the end": lambda rng, n: made.TERMS.nominal(n) * rng.uniform(0.8, 1.2) if n < 5 else 0.01,
    "at first": lambda rng, n: 0.01 if n < 100 else made.TERMS.nominal(n - 99),
}


@pytest.mark.parametrize("shape", FLOODS)
def test_a_flood_of_any_shape_fails(shape):
    """CB-5: a client that dials far more often than any schedule allows fails, however its gaps are spread."""
    rng, gaps = random.Random(1), []
    while sum(gaps) < 8.5 and len(gaps) < 300:
        gaps.append(FLOODS[shape](rng, len(gaps) + 1))
    assert Outcome.FAIL in outcomes({Scenario.HANG_UP: made.series(gaps, seconds=8.5)}).values()


def test_gaps_that_no_schedule_explains(monkeypatch):
    """CB-5: if the close explanations blame nothing in common, the gaps have no explanation, and that is a failure."""
    gaps = (0.036,) * 240
    wide = Schedule.told(made.TERMS).changed(low=-1.0)  # by itself, this allows every gap
    worth = {frozenset({Trait.JITTER, Trait.CAP}): -59.0, frozenset({Trait.INITIAL, Trait.GROWTH}): -60.0}

    def explanations(choices, told, _gaps):
        for traits in map(frozenset, choices):
            likelihood = -90.0 if traits == {Trait.JITTER} else worth.get(traits, -2257.0)
            schedule = wide if traits == {Trait.JITTER} else told
            yield fit_module._Explanation(schedule, traits, likelihood, worth.get(traits, -2257.0))

    monkeypatch.setattr(fit_module, "_explanations", lambda *given: list(explanations(*given)))
    verdicts = {each.clause: each for each in judge({Scenario.HANG_UP: made.series(gaps, seconds=8.64)}, CLAUSES)}
    assert [name for name, each in verdicts.items() if each.outcome is Outcome.FAIL] == ["growth"]
    assert "gap 1, and no schedule explains the gaps: 0.036 s" in str(verdicts["growth"])
    assert (
        str(verdicts["growth"].missed[-1]) == "attempts in 1.2 s: 34 attempts, allowed at most 4, missed by 30 attempts"
    )


def test_each_clause_has_a_fault():
    """IO-4: every clause in the table is failed by at least one of the faults above."""
    assert {fault[0] for fault in (*FAULTS, *WRONG_NUMBERS)} == set(NAMES)


def test_a_client_that_never_connects_fails_everything():
    """IO-2: a client that never connects fails every clause, although the official server would pass it."""
    silence = {
        scenario: replace(right, timeline=replace(right.timeline, visits=(), refused=()), calls=Calls())
        for scenario, right in made.right_client().items()
    }
    assert outcomes(silence) == dict.fromkeys(NAMES, Outcome.FAIL)


def test_a_client_that_hangs_for_good():
    """CB-3: an attempt that is never abandoned counts as over its limit, although it has not ended."""
    found = outcomes({Scenario.SILENT: never_gives_up()})
    assert found.pop("limit") is Outcome.FAIL
    assert set(found.values()) == {Outcome.NOT_APPLICABLE}


def test_settings_start_another_series():
    """CB-3, CB-6: after a slow server has sent its SETTINGS, the limit is that of a first attempt again."""
    visits = [made.failing(0.51, 1.0, behaviour="silent"), made.served(1.51, 4.5, behaviour="trickle")]
    visits += [made.failing(4.52 + number, 1.0, behaviour="silent") for number in range(4)]
    found = outcomes({Scenario.SILENT: made.evidence(visits, seconds=8.5)})
    assert [name for name, outcome in found.items() if outcome is Outcome.FAIL] == ["trickle-limit"]


def test_an_outage_that_never_came():
    """CB-4: a client that never connects fails `recovery`, since its outage never begins."""
    assert outcomes({Scenario.OUTAGE: made.evidence([])})["recovery"] is Outcome.FAIL


def test_no_backoff_at_all_has_no_jitter_to_be_seen():
    """CB-5: a client without any backoff fails `first-gap` and `growth`; its jitter cannot be judged."""
    found = outcomes({Scenario.HANG_UP: made.series([0.001] * 500)})
    assert found["first-gap"] is found["growth"] is Outcome.FAIL
    assert found["jitter"] is found["jitter-does-not-compound"] is Outcome.NOT_APPLICABLE


def test_an_early_connection_is_made_up_for():
    """CB-7: a connection may follow the previous one at once if the next gap is correspondingly longer."""
    early = made.flapping((0.2, 0.004, 0.396) * 6, goaway=(18,))
    assert outcomes({Scenario.FLAPPING: early})["no-flood"] is Outcome.PASS
    not_made_up_for = made.flapping((0.2, 0.004, 0.09, 0.3) * 6, goaway=(20,))
    assert outcomes({Scenario.FLAPPING: not_made_up_for})["no-flood"] is Outcome.FAIL


def test_an_early_connection_is_no_attempt_of_its_own():
    """CB-8: a single early connection does not count against the growth of the backoff, but a second one does."""
    once = made.starts((0.2, 0.006, 0.33, 0.5, 0.8, 1.3, 1.6, 1.6, 1.7))
    twice = made.starts((0.2, 0.006, 0.33, 0.006, 0.5, 0.8, 1.3, 1.6, 1.6, 1.7))
    for starts, outcome in ((once, Outcome.PASS), (twice, Outcome.FAIL)):
        visits = [made.served(at, at + 0.01) for at in starts]
        assert outcomes({Scenario.UNSTABLE: made.evidence(visits, seconds=9.0)}) == {"stable-after": outcome}


@pytest.mark.parametrize(
    ("after", "outcome"),
    [
        ((0.002, 0.2, 0.33), Outcome.PASS),  # before the first attempt after the loss
        ((0.2, 0.002, 0.33), Outcome.PASS),
        ((0.002, 0.002, 0.2, 0.33), Outcome.FAIL),
        ((0.002, 0.2, 0.002, 0.33), Outcome.FAIL),
    ],
)
def test_an_early_connection_after_a_loss_is_no_missing_reset(after, outcome):
    """CB-6, CB-16: a call that entered the dying connection may cause one early connection, but a second is a fault."""
    assert outcomes({Scenario.RESET: made.reset(after)}) == {"settings-reset": outcome}


def test_cap_that_is_not_reached():
    """CB-5: a series that is too short to reach MAX_BACKOFF is not judged by `cap`."""
    verdicts = judge({Scenario.HANG_UP: made.series(made.GAPS[:4], seconds=3.4)}, CLAUSES)
    by_name = {verdict.clause: verdict for verdict in verdicts}
    assert by_name["cap"].outcome is Outcome.NOT_APPLICABLE
    assert by_name["cap"].reason == "MAX_BACKOFF of 1.6 s is not reached in 3.4 s"
    assert by_name["growth"].outcome is Outcome.PASS


def test_absent_evidence():
    """IO-4: a clause does not apply to a client that cannot take part in its scenario; the verdict says why."""
    (verdict,) = judge({Scenario.UNSTABLE: Absent("it has no such option")}, CLAUSES)
    assert (verdict.outcome, verdict.reason) == (Outcome.NOT_APPLICABLE, "it has no such option")


def test_evidence_that_should_be_there():
    """IO-4: a client whose program breaks down fails the clauses that would have judged it."""
    (verdict,) = judge({Scenario.HANDSHAKE: Absent("it ended with status 1", fault=True)}, CLAUSES)
    assert (verdict.outcome, str(verdict)) == (Outcome.FAIL, "it ended with status 1")


def test_an_outage_that_outlasts_the_growth():
    """CB-4: after a long outage, the next attempt starts within one jittered MAX_BACKOFF."""
    gone = Window(begin=2.0, end=60.0)
    late = [made.served(0.5, 2.0), made.served(60.0 + 1.6 * 1.2 + 0.05, None, (70.0,))]
    too_late = [made.served(0.5, 2.0), made.served(60.0 + 1.6 * 1.2 + 0.06, None, (70.0,))]
    for visits, outcome in ((late, Outcome.PASS), (too_late, Outcome.FAIL)):
        found = outcomes({Scenario.OUTAGE: made.evidence(visits, seconds=80.0, refusing=[gone])})
        assert found["recovery"] is outcome


def test_a_trial_that_was_ended_says_in_which_time():
    """IO-4: if the trial of a flood is ended early, the verdict states for how long the client was watched."""
    whole = made.flapping([0.01] * 390)
    cut = replace(whole, settled=made.WANTED + 3.02)
    assert (whole.over, whole.lasted) == (made.WANTED + 4, 4)
    assert (cut.over, round(cut.lasted, 6)) == (made.WANTED + 3.02, 3.02)
    (verdict,) = (each for each in judge({Scenario.FLAPPING: cut}, CLAUSES) if each.clause == "no-flood")
    assert str(verdict).startswith("connections in 3.0 s that came too soon: ")


def failing(evidence):
    return [name for name, outcome in outcomes(evidence).items() if outcome is Outcome.FAIL]


def test_a_short_limit_is_one_mistake():
    """CB-3: only `limit` reports a client with a short limit, although that client also misses slow SETTINGS."""
    short = made.silent(gaps=(0.5, 0.5, 0.5, 0.8, 1.3), lasting=(0.5, 0.5, 0.5, 0.8, 1.3))
    slow = made.evidence([made.failing(0.51 + n / 2, 0.5) for n in range(3)], seconds=2.0)
    assert failing({Scenario.SILENT: short, Scenario.SLOW_SETTINGS: slow}) == ["limit"]
    assert failing({Scenario.SILENT: made.silent(), Scenario.SLOW_SETTINGS: slow}) == [
        "waits-for-settings",
        "acknowledges-settings",
    ]


def test_a_missing_reset_is_one_mistake():
    """CB-6: if SETTINGS do not reset the backoff, only `settings-reset` fails, not the clause about outages."""
    outage = made.outage(refused=(2.005, 2.505, 3.35))
    assert failing({Scenario.RESET: made.reset(after=(0.9, 1.3, 1.6)), Scenario.OUTAGE: outage}) == ["settings-reset"]
    assert failing({Scenario.RESET: made.reset(), Scenario.OUTAGE: outage}) == ["refused-backs-off"]


def test_a_missing_first_gap_is_one_mistake():
    """CB-2: if the second attempt always follows at once, even after a loss, only `first-gap` fails."""
    schedule = made.timed(first=0.002)
    assert failing(schedule | {Scenario.RESET: made.reset(after=(0.002, 0.33, 0.5))}) == ["first-gap"]


def test_a_long_first_gap_is_one_mistake():
    """CB-2, CB-7: with a long INITIAL_BACKOFF, only `first-gap` fails, although young connections are replaced late."""
    restart = made.restart(pause=0.0)
    late = [replace(visit, accepted=visit.accepted + 0.7 * place) for place, visit in enumerate(restart.visits)]
    late = [replace(visit, ended=visit.ended and visit.ended + 0.7 * place) for place, visit in enumerate(late)]
    restart = replace(restart, timeline=replace(restart.timeline, visits=tuple(late)))
    assert "lost-is-replaced" in failing({Scenario.RESTART: restart})
    assert failing(made.timed(initial=3.0) | {Scenario.RESTART: restart}) == ["first-gap"]


def test_no_call_was_refused():
    """CH-7: if no call is sent to the server that refuses calls, there is nothing to send again."""
    assert outcomes({Scenario.RESTART: made.restart(not_taken=[])})["refused-is-repeated"] is Outcome.NOT_APPLICABLE


def test_a_gap_that_the_judge_recorded_late_does_not_compound():
    """CB-5: a gap of unknown length is not reported as compounding jitter."""
    seen = compounding()[Scenario.HANG_UP]
    late = replace(seen, timeline=replace(seen.timeline, lags=(Lag(at=seen.visits[-1].accepted, by=20.0),)))
    assert any(math.isnan(gap) for series in series_of(late) for gap in series.gaps)
    verdict = next(each for each in judge({Scenario.HANG_UP: late}, CLAUSES) if each.clause.startswith("jitter-does"))
    assert not any(math.isnan(measure.seen) for measure in verdict.measures)


def test_verdicts_say_what_was_seen_and_allowed_and_missed():
    """IO-4: a failing verdict states the figure, what is allowed, and by how much the figure misses it."""
    seen = made.timed(multiplier=2.0) | {Scenario.SLOW_SETTINGS: made.evidence([made.served(0.51), made.served(0.52)])}
    by_name = {verdict.clause: verdict for verdict in judge(seen, CLAUSES)}
    assert re.fullmatch(r"MULTIPLIER: (1\.9|2\.0). \(.* to .*\), expected 1\.60", str(by_name["growth"]))
    beside = "connections made while another one worked: 1 connection, allowed at most 0, missed by 1 connection"
    assert str(by_name["one-connection"]) == beside
    assert str(by_name["jitter"]) == "holds, 3 measured"


@pytest.mark.parametrize(
    ("lasted", "at", "by", "outcome"),
    [
        (0.7, 1.21, 0.2, Outcome.INCONCLUSIVE),
        (0.7, 1.21, 0.09, Outcome.FAIL),  # less than a tenth of the limit
        (0.7, 2.4, 0.3, Outcome.FAIL),  # neither where the attempt begins nor where it ends
        (0.94, 0.515, 0.02, Outcome.INCONCLUSIVE),  # the attempt misses its limit by as little
        (0.94, 0.515, 0.005, Outcome.FAIL),
    ],
)
def test_a_judge_that_was_late_has_no_verdict(lasted, at, by, outcome):
    """IO-4: a miss is inconclusive if the judge recorded either end late, by a tenth of the limit or by the miss."""
    attempt = made.failing(0.51, lasted, behaviour="silent")
    late = made.evidence([attempt, made.failing(1.51, 1.0, behaviour="silent")], lags=[Lag(at=at, by=by)])
    (verdict,) = judge({Scenario.TLS_SILENT: late}, CLAUSES)
    assert verdict.outcome is outcome
    assert (f"the judge was {1000 * by:.0f} ms late" in str(verdict)) is (outcome is Outcome.INCONCLUSIVE)


@pytest.mark.parametrize(("by", "outcome"), [(0.05, Outcome.FAIL), (0.15, Outcome.INCONCLUSIVE)])
def test_a_judge_that_was_late_counts_nothing(by, outcome):
    """IO-4: a count of connections is inconclusive if the server was late by half of INITIAL_BACKOFF."""
    visits = [made.failing(0.51, 0.4), made.served(0.92, None, (1.7,))]
    late = made.evidence(visits, seconds=2.0, lags=[Lag(at=0.8, by=by)])
    assert outcomes({Scenario.SLOW_SETTINGS: late})["waits-for-settings"] is outcome


def test_a_late_judge_makes_no_clients_alike():
    """CB-11: two clients with equal gaps fail even if the judge was late, since that would make gaps differ."""
    alike = made.herd(second=[length + 0.01 for length in made.GAPS])
    late = replace(alike, timeline=replace(alike.timeline, lags=(Lag(at=3.0, by=0.05),)))
    assert outcomes({Scenario.HERD: late})["clients-disperse"] is Outcome.FAIL


def test_a_slow_handshake_is_followed_at_once():
    """CB-4, CB-6: if an attempt outlasts its backoff, as in a slow handshake, the next one may follow at once."""
    for lasted, failed in ((0.58, []), (0.4, ["accept-does-not-reset"])):
        visits = [
            made.failing(at, lasted if place == 1 else 0.01) for place, at in enumerate(made.starts((0.2, 0.6, 0.5)))
        ]
        assert failing({Scenario.HANDSHAKE: made.evidence(visits, seconds=2.0)}) == failed


def test_compounding_jitter_is_one_mistake():
    """CB-5: if jitter compounds, gaps drift in every scenario, but only `jitter-does-not-compound` fails."""
    drifting = made.series([0.2, 0.38, 0.73, 1.39, 2.6], lasting=0.01, seconds=6.0, terms=replace(made.TERMS, cap=24.0))
    assert failing({Scenario.HANDSHAKE: drifting}) == ["accept-does-not-reset"]
    assert failing(compounding() | {Scenario.HANDSHAKE: drifting}) == ["jitter-does-not-compound"]


def test_gaps_that_a_late_judge_noted_are_left_out():
    """IO-4: a gap that the judge recorded late is left out, so it does not make the client's schedule look wrong."""
    gaps = [0.2, 0.35, 0.75, 0.9, 1.2, 1.8, 1.4, 1.75]
    right = made.series(gaps)
    late = replace(right, timeline=replace(right.timeline, lags=(Lag(at=right.visits[3].accepted, by=0.3),)))
    (series,) = series_of(late)
    assert [math.isnan(gap) for gap in series.gaps] == [False, False, True, True, *[False] * 4]


def test_calls_without_numbers_are_counted_by_the_client():
    """CH-6: if calls have no numbers, lost calls are counted by the client's own account."""
    bare = [made.request(1.0 + n / 10) for n in range(5)]
    for ok, outcome in ((100, Outcome.PASS), (99, Outcome.FAIL)):
        seen = made.restart(replaced=bare, not_taken=[], again=[made.request(6.6)], calls=Calls(made=100, ok=ok))
        by_name = outcomes({Scenario.RESTART: seen})
        assert by_name["rolling-restart"] is outcome
        assert by_name["refused-is-repeated"] is Outcome.NOT_APPLICABLE


def test_refused_dials_that_cannot_be_seen():
    """CB-4: where raw sockets are not permitted, refused dials are not judged, and the verdict says why."""
    by_name = {verdict.clause: verdict for verdict in judge({Scenario.OUTAGE: made.outage(refused=None)}, CLAUSES)}
    assert by_name["refused-backs-off"].outcome is Outcome.NOT_APPLICABLE
    assert "raw socket" in by_name["refused-backs-off"].reason


def test_a_judge_that_was_always_late_gives_no_verdict():
    """IO-4: if the judge recorded every gap late, the verdict is inconclusive, and the trial must be repeated."""
    flood = made.series((0.02,) * 12, seconds=4.0)
    late = tuple(Lag(at=visit.accepted + 0.001, by=0.5) for visit in flood.visits)
    flood = replace(flood, timeline=replace(flood.timeline, lags=late))
    found = outcomes({Scenario.HANG_UP: flood})
    assert {found["first-gap"], found["growth"]} == {Outcome.INCONCLUSIVE}
