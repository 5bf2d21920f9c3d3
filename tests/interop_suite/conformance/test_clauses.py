"""Each clause on evidence made by hand: a correct client passes all, and each fault fails exactly one clause."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace

import pytest

from grpc_judge.conformance import CLAUSES, PROTOCOL, Absent, Calls, Outcome, Scenario, judge
from grpc_judge.conformance import fit as fit_module
from grpc_judge.conformance.fit import Trait
from grpc_judge.conformance.gaps import series_of
from grpc_judge.conformance.schedule import Schedule
from grpc_judge.timeline import Ending, Lag, Window
from tests.interop_suite.conformance import made

SCENARIOS = {clause.name: clause.scenario for clause in CLAUSES}
NAMES = list(SCENARIOS)


def silent_in_tls(lasted):
    return made.evidence([made.failing(0.51, lasted, behaviour="silent")], seconds=2.6)


def slow_settings(*visits, acknowledged=0.6):
    changed = [replace(visit, settings_acknowledged=acknowledged) if visit.settings_sent else visit for visit in visits]
    return made.evidence(changed, seconds=2.0)


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
MUCH_LATER = made.request(5.0, "1-60")
SHORT_LIMIT = made.silent(gaps=(0.5, 0.5, 0.5, 0.8, 1.3), lasting=(0.5, 0.5, 0.5, 0.8, 1.3))
GIVES_UP = made.evidence([made.failing(0.51 + n / 2, 0.5) for n in range(3)], seconds=2.0)
AFTER_SETTINGS = [
    made.failing(0.51, 1.0, behaviour="silent"),
    made.served(1.51, 4.5, behaviour="trickle"),
    *(made.failing(4.52 + number, 1.0, behaviour="silent") for number in range(4)),
]
NO_NEW_SERIES = made.outage(refused=(2.005, 2.505, 3.35))
DRIFTING = made.series([0.2, 0.38, 0.73, 1.39, 2.6], lasting=0.01, seconds=6.0, terms=replace(made.TERMS, cap=24.0))


def slow_handshake(lasted):
    """Return the evidence of a client whose second handshake takes this long before it fails."""
    starts = made.starts((0.2, 0.6, 0.5))
    return made.evidence(
        [made.failing(at, lasted if place == 1 else 0.01) for place, at in enumerate(starts)], seconds=2.0
    )


def unstable(*gaps, seconds=9.0):
    """Return the evidence of a client whose connections are lost at once."""
    return made.evidence([made.served(at, at + 0.01) for at in made.starts(gaps)], seconds=seconds)


def back_after(seconds):
    """Return the evidence of a client that reconnects this long after an outage of a minute."""
    visits = [made.served(0.5, 2.0), made.served(60.0 + seconds, None, (70.0,))]
    return made.evidence(visits, seconds=80.0, refusing=[Window(begin=2.0, end=60.0)])


def late(evidence, *lags):
    """Return this evidence of a judge that was late: each lag is the time of its end, and its length."""
    return replace(evidence, timeline=replace(evidence.timeline, lags=tuple(Lag(at=at, by=by) for at, by in lags)))


def ends_after(lasted):
    """Return the evidence of an attempt in TLS that ends after these seconds, and of another one."""
    return made.evidence([made.failing(0.51, lasted, behaviour="silent"), made.failing(1.51, 1.0, behaviour="silent")])


def waiting(seconds):
    """Return the evidence of a client that makes no attempt in these seconds after an answer in another protocol."""
    seen = made.failures()
    visits = seen.timeline.visits[:2]
    return replace(
        seen, seconds=visits[1].accepted - made.WANTED + seconds, timeline=replace(seen.timeline, visits=visits)
    )


def plain_outage(ids, lost=20):
    """Return the evidence of four workers of a client without a manifest, which lose this many calls each."""
    calls = [(n, n / 100) for n in range(5)] + [(5 + lost + n, 4.4 + n / 100) for n in range(5)]
    requests = [made.request(0.6 + at, ids.format(worker, n)) for n, at in calls for worker in range(4)]
    return made.outage(requests=requests, calls=None)


def unnumbered(ok):
    """Return the evidence of a client whose calls have no numbers, and which reports 100 calls, `ok` of them good."""
    bare = [made.request(1.0 + n / 10) for n in range(5)]
    return made.restart(replaced=bare, not_taken=[], again=[made.request(6.6)], calls=Calls(made=100, ok=ok))


def compounding():
    """Return gaps that are each right relative to the previous one, but drift far from the schedule."""
    gaps, terms = [0.2], replace(made.TERMS, cap=24.0)
    for jitter in (*(0.17,) * 5, *(-0.17,) * 5):
        gaps.append(gaps[-1] * 1.6 * (1 + jitter))
    return {Scenario.HANG_UP: made.series(gaps, seconds=sum(gaps), terms=terms)}


ONE_MISTAKE = [
    # CB-2, CB-5: one number of the schedule differs from the configured one.
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
    # CB-2: the second attempt always follows at once, even after a loss.
    ("first-gap", made.timed(first=0.002) | {Scenario.RESET: made.reset(after=(0.002, 0.33, 0.5))}),
    # CB-3: the limit is short, so the client also misses slow SETTINGS.
    ("limit", {Scenario.SILENT: SHORT_LIMIT, Scenario.SLOW_SETTINGS: GIVES_UP}),
    ("waits-for-settings acknowledges-settings", {Scenario.SILENT: made.silent(), Scenario.SLOW_SETTINGS: GIVES_UP}),
    # CB-3, CB-6: after a slow server has sent its SETTINGS, the limit is that of a first attempt again.
    ("trickle-limit", {Scenario.SILENT: made.evidence(AFTER_SETTINGS, seconds=8.5)}),
    # CB-6: SETTINGS do not reset the backoff, which also shows in an outage.
    ("settings-reset", {Scenario.RESET: made.reset(after=(0.9, 1.3, 1.6)), Scenario.OUTAGE: NO_NEW_SERIES}),
    ("refused-backs-off", {Scenario.RESET: made.reset(), Scenario.OUTAGE: NO_NEW_SERIES}),
    # CB-5: jitter compounds, so gaps drift in every scenario.
    ("accept-does-not-reset", {Scenario.HANDSHAKE: DRIFTING}),
    ("jitter-does-not-compound", compounding() | {Scenario.HANDSHAKE: DRIFTING}),
    # CB-4, CB-6: an attempt that outlasts its backoff, as in a slow handshake, may be followed by the next at once.
    ("", {Scenario.HANDSHAKE: slow_handshake(0.58)}),
    ("accept-does-not-reset", {Scenario.HANDSHAKE: slow_handshake(0.4)}),
]
"""Evidence, with the clauses that fail; a clause that another scenario explains does not fail as well."""

FAULTS = [
    ("keeps-trying", made.series([0.2, 0.35, 0.4, 0.44, 0.36], terms=made.STEADY)),
    ("start-to-start", made.series([length + 0.15 for length in made.NOMINAL], 0.15)),
    ("accept-does-not-reset", made.series([0.2] * 40)),
    ("clients-disperse", made.herd(second=[length + 0.01 for length in made.GAPS])),
    ("clients-disperse", made.herd(clients=("a",))),
    ("limit", made.silent((0.25, 1.0, 1.0, 1.0, 1.4), (0.2, 1.0, 1.0, 1.0, 1.4))),
    ("limit", made.silent(lasting=(1.0, 1.0, 1.0, 1.0, 0.9))),
    ("limit", made.silent(lasting=(1.5, 1.0, 1.5, 1.5, 1.9))),
    ("trickle-limit", made.silent(gaps=(1.0, 3.0, 1.0, 1.0, 1.4), lasting=(1, 3, 1, 1, 1.4))),
    ("tls-limit", silent_in_tls(0.3)),
    ("tls-limit", silent_in_tls(2.0)),
    ("one-at-a-time", made.silent(gaps=(1.0, 1.0, 0.6, 1.0, 1.4))),
    ("no-pause-after-the-limit", made.silent(gaps=(1.2, 1.3, 1.5, 1.8, 2.3))),
    ("waits-for-settings", slow_settings(made.failing(0.51, 0.4), made.served(0.92, None, (1.7,)))),
    ("waits-for-settings", slow_settings(made.served(0.51))),
    ("acknowledges-settings", slow_settings(made.served(0.51, None, (1.3,)), acknowledged=None)),
    ("one-connection", slow_settings(made.served(0.51, None, (1.3,)), made.served(0.52))),
    ("settings-reset", made.reset(after=(0.9, 1.3, 1.6))),
    ("settings-reset", made.reset(after=())),
    ("no-flood", made.flapping((0.01,) * 390, goaway=(0,))),
    ("no-flood", made.flapping((0.2, 0.2, 0.01, 0.01, 0.2, 0.2, 0.2, 0.2))),
    ("no-flood", made.flapping((0.6, 0.6, 0.6), goaway=(1,))),
    ("goaway-backs-off", made.flapping((*(0.2,) * 5, 0.01, 0.01, *(0.2,) * 9))),
    ("served-is-replaced", made.limited(gap=0.2)),
    ("unserved-is-held-back", made.dead_upstream(gap=0.06)),
    ("drained-backs-off", made.drained((0.03,) * 100)),
    ("drained-backs-off", made.drained(())),
    ("tls-failure-backs-off", made.series((0.006,) * 299, seconds=3.0)),
    ("tls-failure-backs-off", made.series((0.2, 0.35, 0.006, 0.9))),
    ("stable-after", made.flapping((0.2,) * 40)),
    ("recovery", made.outage(back=1.9)),
    ("recovery", made.outage(requests=made.ANSWERED, calls=Calls(made=60, ok=20))),
    ("refused-backs-off", made.outage(refused=tuple(2.005 + n / 200 for n in range(300)))),
    ("refused-backs-off", made.outage(refused=(2.005, 2.405, 3.05))),
    ("waits-for-ready", made.outage(requests=[*made.ANSWERED, MUCH_LATER], calls=Calls(made=99, ok=21))),
    ("lost-is-not-repeated", made.outage(requests=[*made.ANSWERED, *made.AGAIN[1:], LOST, TWICE])),
    ("accounts-for-calls", made.outage(calls=Calls(made=35, ok=35))),
    ("accounts-for-calls", made.outage(calls=Calls(made=100, ok=37))),
    ("accounts-for-calls", made.outage(calls=replace(made.ACCOUNT, unfinished=1))),
    ("reset-backs-off", made.failures(after_reset=(0.005, 0.46))),
    ("garbage-backs-off", made.failures(after_garbage=(0.35, 0.2))),
    ("first-attempt", made.restart(first=made.WANTED + 1.0)),
    ("lost-is-replaced", made.restart(pause=1.0)),
    ("rolling-restart", made.restart(replaced=[*made.REPLACED[:2], *made.REPLACED[3:]])),
    ("rolling-restart", made.restart(replaced=[*made.REPLACED, made.request(2.4, "0-4", "reset")])),
    ("refused-is-repeated", made.restart(again=[made.request(6.6, "0-6")])),
    ("settings-reset", made.reset(after=(0.2, 0.33, 0.5, *(0.004,) * 60))),
    ("clients-disperse", made.herd(first=(0.2, 0.28, 0.7, 0.5, *(0.004,) * 60))),
    ("tls-limit", at_once([made.failing(0.51, 1.0, behaviour="silent")], 2.6)),
    ("one-connection", slow_settings(*(made.served(0.51 + n / 50, 0.52 + n / 50, (1.3,)) for n in range(40)))),
    ("recovery", beside(made.outage(), 3.0)),
    ("lost-is-replaced", beside(made.restart(), 1.0)),
]


def judged_again(evidence):
    """Return the verdicts of a run, in which every trial is repeated with the same result."""
    doubted = tuple(verdict.clause for verdict in judge(evidence, CLAUSES) if verdict.close)
    again = {
        scenario: each if isinstance(each, Absent) else replace(each, doubted=doubted)
        for scenario, each in evidence.items()
    }
    return judge(again, CLAUSES)


def outcomes(evidence):
    return {verdict.clause: verdict.outcome for verdict in judged_again(evidence)}


def failing(evidence):
    return [name for name, outcome in outcomes(evidence).items() if outcome is Outcome.FAIL]


def test_right_client_passes():
    """IO-4: a client that follows the protocol passes every clause."""
    assert outcomes(made.right_client()) == dict.fromkeys(NAMES, Outcome.PASS)


def test_the_right_client_is_judged_by_each_clause():
    """IO-4: every clause measures something of the correct client, so none passes for lack of evidence."""
    assert all(verdict.measures for verdict in judge(made.right_client(), CLAUSES))


@pytest.mark.parametrize(("clause", "evidence"), FAULTS, ids=[f"{f[0]}-{n}" for n, f in enumerate(FAULTS)])
def test_each_fault_is_seen_by_its_clause_alone(clause, evidence):
    """IO-4: a client with one fault fails the clause for that fault, and no other."""
    found = outcomes(made.right_client() | {SCENARIOS[clause]: evidence})
    found = {name: Outcome.PASS if outcome is Outcome.NOT_APPLICABLE else outcome for name, outcome in found.items()}
    assert found == dict.fromkeys(NAMES, Outcome.PASS) | {clause: Outcome.FAIL}


PASS, FAIL, NOT_APPLICABLE, INCONCLUSIVE = Outcome
GIVEN_UP = made.evidence([made.failing(0.51, 0.4), made.served(0.92, None, (1.7,))], seconds=2.0)
ALIKE = made.herd(second=[length + 0.01 for length in made.GAPS])
FLOOD = made.series([0.001] * 500)
FOUR_GAPS = made.series(made.GAPS[:4], seconds=3.4)
QUICK = made.series((0.02,) * 12, seconds=4.0)
ALWAYS_LATE = late(QUICK, *((visit.accepted + 0.001, 0.5) for visit in QUICK.visits))
LATE_200, LATE_20 = "the judge was 200 ms late; ", "the judge was 20 ms late; "
VERDICTS = [
    # IO-4: the verdict on a client that cannot take part, or whose program breaks down, says why.
    ("stable-after", Absent("it has no such option"), NOT_APPLICABLE, "it has no such option"),
    ("accept-does-not-reset", Absent("it ended with status 1", fault=True), FAIL, "it ended with status 1"),
    # CB-4: a client that never connects fails `recovery`, since its outage never begins.
    ("recovery", made.evidence([]), FAIL, ""),
    # CB-4: after a long outage, the next attempt starts within one jittered MAX_BACKOFF.
    ("recovery", back_after(1.6 * 1.2 + 0.05), PASS, ""),
    ("recovery", back_after(1.6 * 1.2 + 0.06), FAIL, ""),
    # CB-4: where raw sockets are not permitted, refused dials are not judged.
    ("refused-backs-off", made.outage(refused=None), NOT_APPLICABLE, "refused dials are visible only with "),
    # CB-5: the jitter of a client without any backoff cannot be judged.
    ("first-gap", FLOOD, FAIL, ""),
    ("growth", FLOOD, FAIL, ""),
    ("jitter", FLOOD, NOT_APPLICABLE, ""),
    ("jitter-does-not-compound", FLOOD, NOT_APPLICABLE, ""),
    # CB-5: a series that is too short to reach MAX_BACKOFF is not judged by `cap`.
    ("cap", FOUR_GAPS, NOT_APPLICABLE, "MAX_BACKOFF of 1.6 s is not reached in 3.4 s"),
    ("growth", FOUR_GAPS, PASS, ""),
    # CB-6, CB-16: a call that entered the dying connection may cause one early connection, but a second is a fault.
    ("settings-reset", made.reset((0.002, 0.2, 0.33)), PASS, ""),  # before the first attempt after the loss
    ("settings-reset", made.reset((0.2, 0.002, 0.33)), PASS, ""),
    ("settings-reset", made.reset((0.002, 0.002, 0.2, 0.33)), FAIL, ""),
    ("settings-reset", made.reset((0.002, 0.2, 0.002, 0.33)), FAIL, ""),
    # CB-7: a connection may follow the previous one at once if the next gap is correspondingly longer.
    ("no-flood", made.flapping((0.2, 0.004, 0.396) * 6, goaway=(18,)), PASS, ""),
    ("no-flood", made.flapping((0.2, 0.004, 0.09, 0.3) * 6, goaway=(20,)), FAIL, ""),
    # CB-8: one early connection, or two in a row, do not count against the growth of the backoff, but any other does.
    # CB-16: each may delay the next attempt by one INITIAL_BACKOFF.
    ("stable-after", unstable(0.2, 0.006, 0.33, 0.5, 0.8, 1.3, 1.6, 1.6, 1.7), PASS, ""),
    ("stable-after", unstable(0.005, 0.001, 0.388, 0.34, 0.545, 0.8, 1.3, 1.6, 1.6), PASS, ""),
    ("stable-after", unstable(0.2, 0.006, 0.65, 0.5, 0.8, 1.3, 1.6, 1.6, 1.7), FAIL, ""),
    ("stable-after", unstable(0.2, 0.33, 0.5, 0.005, 1.1, 1.3, 1.7, 1.7), PASS, ""),
    (
        "stable-after",
        unstable(0.2, 0.006, 0.58, 0.6, 0.95, 1.5, 1.9, seconds=8.0),
        PASS,
        "",
    ),  # time for seven, not eight
    ("stable-after", unstable(0.2, 0.33, 0.6, 0.95, 1.5, 1.9, seconds=8.0), FAIL, "attempts seen: 7"),
    ("stable-after", unstable(0.005, 0.001, 0.001, 0.388, 0.34, 0.545, 0.8, 1.3, 1.6, 1.6), FAIL, ""),
    ("stable-after", unstable(0.2, 0.006, 0.33, 0.006, 0.5, 0.8, 1.3, 1.6, 1.6, 1.7), FAIL, ""),
    # CB-4: a client that still waits when the trial ends has shown nothing, and one that waits too long has failed.
    ("garbage-backs-off", waiting(1.0), NOT_APPLICABLE, "the trial ended before another attempt had to follow"),
    ("garbage-backs-off", waiting(3.0), FAIL, "from attempt 2, which was the last, to the end of the trial: 3.000 s"),
    # CH-3: a client without a manifest says which of its calls wait for a connection. It is asked of no others.
    ("waits-for-ready", plain_outage("{}-{}"), NOT_APPLICABLE, "no call is a wait-for-ready call, as far as "),
    ("waits-for-ready", plain_outage("{}-{}-wait"), FAIL, "calls that should have waited but never arrived: 80 calls"),
    ("waits-for-ready", plain_outage("{}-{}-wait", lost=0), PASS, ""),
    ("waits-for-ready", made.outage(requests=[made.request(0.6, "0-0"), made.request(5, "0-9")]), NOT_APPLICABLE, ""),
    # CH-6: if calls have no numbers, lost calls are counted by the client's own account.
    ("rolling-restart", unnumbered(100), PASS, ""),
    ("rolling-restart", unnumbered(99), FAIL, ""),
    ("refused-is-repeated", unnumbered(100), NOT_APPLICABLE, ""),
    # CH-7: if no call is sent to the server that refuses calls, there is nothing to send again.
    ("refused-is-repeated", made.restart(not_taken=[]), NOT_APPLICABLE, ""),
    # IO-4: a miss is inconclusive if the judge recorded either end late, by a tenth of the limit or by the miss.
    ("tls-limit", late(ends_after(0.7), (1.21, 0.2)), INCONCLUSIVE, LATE_200),
    ("tls-limit", late(ends_after(0.7), (1.21, 0.09)), FAIL, "attempt 1 lasted: "),  # less than a tenth of the limit
    ("tls-limit", late(ends_after(0.7), (2.4, 0.3)), FAIL, "attempt 1 lasted: "),  # at neither end of the attempt
    ("tls-limit", late(ends_after(0.94), (0.515, 0.02)), INCONCLUSIVE, LATE_20),  # it misses its limit by as little
    ("tls-limit", late(ends_after(0.94), (0.515, 0.005)), FAIL, "attempt 1 lasted: "),
    # IO-4: a count of connections is inconclusive if the server was late by half of INITIAL_BACKOFF.
    ("waits-for-settings", late(GIVEN_UP, (0.8, 0.05)), FAIL, ""),
    ("waits-for-settings", late(GIVEN_UP, (0.8, 0.15)), INCONCLUSIVE, ""),
    # IO-4: if the judge recorded every gap late, the verdict is inconclusive, and the trial must be repeated.
    ("first-gap", ALWAYS_LATE, INCONCLUSIVE, ""),
    ("growth", ALWAYS_LATE, INCONCLUSIVE, ""),
    # CB-11: two clients with equal gaps fail even if the judge was late, since that would make gaps differ.
    ("clients-disperse", late(ALIKE, (3.0, 0.05)), FAIL, ""),
]


@pytest.mark.parametrize(("clause", "evidence", "outcome", "said"), VERDICTS, ids=[each[0] for each in VERDICTS])
def test_the_verdict_on_one_scenario(clause, evidence, outcome, said):
    """IO-4: each clause judges its scenario alone, and says why it does not judge."""
    verdicts = {verdict.clause: verdict for verdict in judged_again({SCENARIOS[clause]: evidence})}
    assert verdicts[clause].outcome is outcome
    assert str(verdicts[clause]).startswith(said)


@pytest.mark.parametrize(("clauses", "evidence"), ONE_MISTAKE, ids=[each[0] for each in ONE_MISTAKE])
def test_one_mistake_fails_one_clause(clauses, evidence):
    """CB-2, CB-3, CB-4, CB-5, CB-6: if one thing is wrong, only the clause for it fails."""
    assert failing(evidence) == clauses.split()


def late_timer(by):
    """Return the evidence of a client whose timer is this late each time."""
    gaps = [gap + by for gap in made.GAPS]
    steady = [0.2 + by, 0.32 + by, *(0.4 * (1 + jitter) + by for jitter in made.JITTER)]
    return made.right_client() | {
        Scenario.HANG_UP: made.series(gaps, seconds=sum(gaps) + 0.3),
        Scenario.STEADY: made.series(steady, seconds=sum(steady) + 0.3, terms=made.STEADY),
        Scenario.OUTAGE: made.outage(refused=tuple(2.005 + at for at in (0.0, 0.33, 0.8, 1.4))),
    }


WHOLE = [
    made.right_client(),
    late_timer(0.09),
    *(made.right_client() | {SCENARIOS[clause]: evidence} for clause, evidence in FAULTS),
    *(made.right_client() | evidence for _, evidence in ONE_MISTAKE),
]


@pytest.mark.parametrize("evidence", WHOLE, ids=[str(number) for number in range(len(WHOLE))])
def test_one_clause_alone_says_what_it_says_in_a_whole_run(evidence):
    """IO-4: a clause has the same verdict with the evidence that it needs as with everything."""
    for clause, verdict in zip(CLAUSES, judge(evidence, CLAUSES), strict=True):
        alone = {scenario: each for scenario, each in evidence.items() if scenario in clause.scenarios}
        assert judge(alone, [clause]) == (verdict,)


def test_a_timer_that_is_late_does_not_fail_a_clause_alone():
    """IO-4: a clause that is judged alone knows that the client's timer is late, which is allowed."""
    (clause,) = (each for each in CLAUSES if each.name == "refused-backs-off")
    evidence = {scenario: each for scenario, each in late_timer(0.09).items() if scenario in clause.scenarios}
    assert [str(verdict) for verdict in judge(evidence, [clause])] == ["holds, 4 measured"]


CLOSE = [
    ("settings-reset", made.reset((0.1096, 0.33, 0.5))),  # the shortest first gap is 0.110 s
    ("goaway-backs-off", made.flapping((*(0.2,) * 5, 0.004, 0.105, *(0.2,) * 13))),
    ("lost-is-replaced", made.restart(pause=0.5004)),
    # As seen on a busy machine, which delays the timers and the dials of a client.
    ("tls-limit", silent_in_tls(0.874)),
    ("served-is-replaced", made.limited(0.22)),
]


@pytest.mark.parametrize(("clause", "evidence"), CLOSE, ids=[each[0] for each in CLOSE])
def test_no_verdict_rests_on_less_than_timers_may_be_late(clause, evidence):
    """IO-4: a time that misses its range by less than 100 ms fails only if it does so in the next trial too."""
    (verdict,) = (each for each in judge({SCENARIOS[clause]: evidence}, CLAUSES) if each.clause == clause)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert verdict.close
    assert str(verdict).startswith("too close to tell from one trial; ")
    assert outcomes({SCENARIOS[clause]: evidence})[clause] is Outcome.FAIL
    doubted = replace(evidence, doubted=("another-clause",))
    (verdict,) = (each for each in judge({SCENARIOS[clause]: doubted}, CLAUSES) if each.clause == clause)
    assert verdict.outcome is Outcome.INCONCLUSIVE


SCHEDULES = {
    *("first-gap", "growth", "cap", "jitter", "jitter-does-not-compound", "start-to-start", "settings-reset"),
    *("refused-backs-off", "reset-backs-off", "garbage-backs-off", "tls-failure-backs-off", "accept-does-not-reset"),
    *("stable-after", "clients-disperse"),
}
"""The clauses about a client's schedule; `keeps-trying`, `limit` and others also hold without one."""


def flooding(*first, gap, terms=made.TERMS):
    """Return what servers see of a client that dials for every call, except for its first gaps."""
    gaps = (*first, *(gap,) * (299 - len(first)))
    seconds = sum(gaps) + 0.02
    flood = made.series(gaps, seconds=seconds, terms=terms)
    kinds = ["accept_reset", "tls_garbage", "accept_reset", "http1_answer"]
    visits = [replace(each, behaviour=kind) for each, kind in zip(flood.visits, kinds * 75, strict=True)]
    refused = tuple(2.005 + n * gap / 10 for n in range(20_000) if n * gap / 10 < 1.9)
    lost = made.served(0.51, 2.0)
    after = [made.failing(at) for at in made.starts((gap,) * 299, 2.02)]
    return {
        **dict.fromkeys((Scenario.HANG_UP, Scenario.HANDSHAKE, Scenario.TLS_FAILURE, Scenario.SLOW_FAILURE), flood),
        Scenario.STEADY: replace(flood, terms=made.STEADY if terms is made.TERMS else terms),
        Scenario.FAILURES: made.evidence(visits, seconds=seconds, terms=terms),
        Scenario.RESET: made.evidence([lost, *after], seconds=seconds, terms=terms),
        Scenario.UNSTABLE: made.evidence([made.served(at, at + 0.01) for at in made.starts(gaps)], terms=terms),
        Scenario.HERD: replace(made.herd(first=gaps, second=gaps), terms=terms),
        Scenario.OUTAGE: replace(made.outage(refused=refused), terms=terms),
    }


@pytest.mark.parametrize(
    ("evidence", "failed"),
    [
        (flooding(gap=0.012), {"first-gap", "growth"}),
        (flooding(gap=0.043), {"growth"}),
        (flooding(0.2, gap=0.043), {"growth"}),
        (flooding(0.2, 0.32, gap=0.043), {"growth"}),
        (flooding(0.88, gap=0.012, terms=PROTOCOL), {"growth"}),
        (flooding(gap=0.027, terms=PROTOCOL), {"first-gap", "growth"}),
    ],
    ids=["12 ms", "43 ms", "43 ms after a backoff", "43 ms after two", "slow at first", "protocol"],
)
def test_a_client_without_a_schedule_passes_no_clause_about_one(evidence, failed):
    """IO-4: a flood fails the clauses that it shows, and no other clause asks about the schedule that it lacks."""
    found = {name: outcome for name, outcome in outcomes(evidence).items() if name in SCHEDULES}
    assert found.keys() == SCHEDULES
    assert {name for name, outcome in found.items() if outcome is Outcome.PASS} == set()
    assert {name for name, outcome in found.items() if outcome is Outcome.FAIL} == failed


def test_a_flood_has_no_multiplier():
    """IO-4: a client without a schedule is told what it dialled too soon, not a MULTIPLIER that it does not have."""
    verdicts = {verdict.clause: str(verdict) for verdict in judge(flooding(0.2, gap=0.043), CLAUSES)}
    assert re.match(r"attempts in 13\.0 s: 300 attempts, allowed at most \d+, missed by ", verdicts["growth"])
    assert verdicts["cap"] == verdicts["refused-backs-off"] == "its attempts follow no schedule, as `growth` says"


def test_what_is_too_late_fails_also_without_a_schedule():
    """IO-4: a client without a schedule that stops dialling after garbage fails for that."""
    stuck = made.failures((0.02, 0.02), (0.02, 60.0))
    stuck = replace(stuck, seconds=60.0, timeline=replace(stuck.timeline, visits=stuck.visits[:4]))
    found = outcomes(flooding(gap=0.012) | {Scenario.FAILURES: stuck})
    assert (found["garbage-backs-off"], found["reset-backs-off"]) == (Outcome.FAIL, Outcome.NOT_APPLICABLE)


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
    flood, gap, *_ = map(str, verdicts["growth"].missed)
    assert flood == "attempts in 8.6 s: 240 attempts, allowed at most 11, missed by 229 attempts"
    assert gap.startswith("gap 1, and no schedule explains the gaps: 0.036 s")
    assert (
        str(verdicts["growth"].missed[-1]) == "attempts in 1.2 s: 34 attempts, allowed at most 4, missed by 30 attempts"
    )


def test_each_clause_has_a_fault():
    """IO-4: every clause in the table is failed by at least one of the faults above."""
    assert {clause for clauses, _ in (*FAULTS, *ONE_MISTAKE) for clause in clauses.split()} == set(NAMES)


def test_a_client_that_never_connects_fails_everything():
    """IO-2: a client that never connects fails every clause, although the official server would pass it."""
    silence = {
        scenario: replace(right, timeline=replace(right.timeline, visits=(), refused=()), calls=Calls())
        for scenario, right in made.right_client().items()
    }
    assert outcomes(silence) == dict.fromkeys(NAMES, Outcome.FAIL)


def test_a_client_that_hangs_for_good():
    """CB-3: an attempt that is never abandoned counts as over its limit, although it has not ended."""
    endless = replace(made.failing(0.51, behaviour="silent"), ended=None, ending=Ending.OPEN)
    found = outcomes({Scenario.SILENT: made.evidence([endless], seconds=5.6)})
    assert found.pop("limit") is Outcome.FAIL
    assert set(found.values()) == {Outcome.NOT_APPLICABLE}


def test_a_trial_that_was_ended_says_in_which_time():
    """IO-4: if the trial of a flood is ended early, the verdict states for how long the client was watched."""
    whole = made.flapping([0.01] * 390)
    cut = replace(whole, settled=made.WANTED + 3.02)
    assert (whole.over, whole.lasted) == (made.WANTED + 4, 4)
    assert (cut.over, round(cut.lasted, 6)) == (made.WANTED + 3.02, 3.02)
    (verdict,) = (each for each in judge({Scenario.FLAPPING: cut}, CLAUSES) if each.clause == "no-flood")
    assert str(verdict).startswith("connections in 3.0 s that came too soon: ")


def test_a_long_first_gap_is_one_mistake():
    """CB-2, CB-7: with a long INITIAL_BACKOFF, only `first-gap` fails, although young connections are replaced late."""
    restart = made.restart(pause=0.0)
    late = [replace(visit, accepted=visit.accepted + 0.7 * place) for place, visit in enumerate(restart.visits)]
    late = [replace(visit, ended=visit.ended and visit.ended + 0.7 * place) for place, visit in enumerate(late)]
    restart = replace(restart, timeline=replace(restart.timeline, visits=tuple(late)))
    assert "lost-is-replaced" in failing({Scenario.RESTART: restart})
    assert failing(made.timed(initial=3.0) | {Scenario.RESTART: restart}) == ["first-gap"]


def test_a_gap_that_the_judge_recorded_late_does_not_compound():
    """CB-5: a gap of unknown length is not reported as compounding jitter."""
    seen = compounding()[Scenario.HANG_UP]
    seen = late(seen, (seen.visits[-1].accepted, 20.0))
    assert any(math.isnan(gap) for series in series_of(seen) for gap in series.gaps)
    verdict = next(each for each in judge({Scenario.HANG_UP: seen}, CLAUSES) if each.clause.startswith("jitter-does"))
    assert not any(math.isnan(measure.seen) for measure in verdict.measures)


def test_verdicts_say_what_was_seen_and_allowed_and_missed():
    """IO-4: a failing verdict states the figure, what is allowed, and by how much the figure misses it."""
    seen = made.timed(multiplier=2.0) | {Scenario.SLOW_SETTINGS: made.evidence([made.served(0.51), made.served(0.52)])}
    by_name = {verdict.clause: verdict for verdict in judge(seen, CLAUSES)}
    assert re.fullmatch(r"MULTIPLIER: (1\.9|2\.0). \(.* to .*\), expected 1\.60", str(by_name["growth"]))
    beside = "connections made while another one worked: 1 connection, allowed at most 0, missed by 1 connection"
    assert str(by_name["one-connection"]) == beside
    assert str(by_name["jitter"]) == "holds, 3 measured"


def test_gaps_that_a_late_judge_noted_are_left_out():
    """IO-4: a gap that the judge recorded late is left out, so it does not make the client's schedule look wrong."""
    gaps = [0.2, 0.35, 0.75, 0.9, 1.2, 1.8, 1.4, 1.75]
    right = made.series(gaps)
    (series,) = series_of(late(right, (right.visits[3].accepted, 0.3)))
    assert [math.isnan(gap) for gap in series.gaps] == [False, False, True, True, *[False] * 4]
