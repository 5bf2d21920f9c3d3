"""One dial on one core channel, step by step: what each look leads to, and what holds whatever is seen."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grpc_backoff.base.status import Link
from grpc_backoff.connection.connector import Loss
from grpc_backoff.decide.connections import dial_machine as m
from grpc_backoff.decide.connections import dial_times
from grpc_backoff.decide.connections.dial_machine import CONNECTING, IDLE, READY, SHUTDOWN, TRANSIENT_FAILURE, DialPhase
from grpc_backoff.decide.connections.dial_texts import NO_SETTINGS
from grpc_backoff.decide.connections.events import Failure, Stage
from grpc_backoff.errors import IllegalTransition

START, LIMIT = 100.0, 5.0
BROKEN = Loss("the peer closed it, or the network failed")
DRAINED = Loss("the server ended the connection gracefully (GOAWAY)", graceful=True)
IDLED = Loss("it reached the idle timeout", graceful=True)


class Dial:
    """Steps a machine and records its effects."""

    def __init__(
        self,
        *,
        notifies=True,
        limit=LIMIT,
        last_life=math.inf,
        familiar=False,
        after_failure=False,
        guarded=False,
        made=None,
        **rules,
    ):
        self.machine = m.DialMachine(notifies=notifies, **rules)
        self.now = START
        how = {"last_life": last_life, "familiar": familiar, "after_failure": after_failure, "guarded": guarded}
        self.state, self.effects = self.machine.begin(START, limit, **how, made=made)
        self.all = list(self.effects)

    def feed(self, given, after=0.0):
        self.now += after
        self.state, self.effects = self.machine.step(self.state, given, self.now)
        self.all += self.effects
        return self.effects

    def look(self, shown, after=0.0, **seen):
        return self.feed(m.Looked(shown, **seen), after)

    def until(self, phase):
        """Take the shortest way to a phase."""
        if phase is DialPhase.DIALLING:
            return self
        if phase is DialPhase.FAILED:
            self.look(TRANSIENT_FAILURE, 0.001)
            return self
        self.look(READY, 0.001)
        if phase is not DialPhase.OBSERVING:
            self.look(READY, dial_times.SHORT_LIFE)
        if phase in (DialPhase.ENDING, DialPhase.ENDED):
            self.look(IDLE, 0.01, running=1, served=phase is DialPhase.ENDED)
        if phase is DialPhase.DRAINING:
            self.feed(m.Retire())
        if phase is DialPhase.CLOSED:
            self.feed(m.Abandon())
        return self


def reach(phase, **rules):
    dial = Dial(**{"stable_after": 60.0, **rules}).until(phase)
    assert dial.state.phase is phase
    return dial


def kinds(effects):
    return [type(effect) for effect in effects]


# The table.


@pytest.mark.parametrize("phase", DialPhase)
@pytest.mark.parametrize("given", [m.Looked(IDLE), m.Explained("OK", ""), m.Retire(), m.Abandon()])
def test_the_table(phase, given):
    """CB-1: an input that the table does not have in a phase is an error, and every other input is processed."""
    dial = reach(phase)
    if (phase, type(given)) in m.TRANSITIONS:
        dial.feed(given)
    else:
        with pytest.raises(IllegalTransition, match=type(given).__name__):
            dial.feed(given)


@pytest.mark.parametrize("phase", [phase for phase in DialPhase if phase is not DialPhase.CLOSED])
def test_abandoned(phase):
    """CB-3, CB-10: in any phase, an abandoned channel is closed at once, and nothing follows."""
    dial = reach(phase)
    assert dial.feed(m.Abandon()) == [m.Close()]
    for late in (m.Looked(READY), m.Looked(TRANSIENT_FAILURE, 3, left=True), m.Retire(), m.Abandon()):
        assert dial.feed(late, 1.0) == []


# The attempt.


def test_begun():
    """CB-1: a dial is first looked at after a millisecond; a notification shows whether the core has begun."""
    assert Dial().effects == [m.NotifyOn(IDLE), m.LookAt(START + dial_times.FIRST_LOOK)]
    assert Dial(after_failure=True).effects == [m.LookAt(START + dial_times.FIRST_LOOK)]
    assert Dial(notifies=False).effects == [m.LookAt(START + dial_times.FIRST_LOOK)]
    assert Dial(last_life=None).effects == [m.NotifyOn(IDLE), m.LookAt(START + dial_times.FIRST_LOOK)]


@pytest.mark.parametrize(
    ("shown", "after", "effects"),
    [
        (IDLE, 0.001, [m.NotifyOn(IDLE), m.LookAt(START + dial_times.BEGINS_WITHIN)]),
        (IDLE, 0.0005, [m.LookAt(START + dial_times.FIRST_LOOK)]),
        (CONNECTING, 0.0005, [m.LookAt(START + dial_times.FIRST_LOOK)]),
        (CONNECTING, 0.001, [m.LookAt(START + dial_times.LAST_LOOK)]),
        (CONNECTING, 0.003, [m.NotifyOn(CONNECTING)]),
        (CONNECTING, 4.0, [m.NotifyOn(CONNECTING)]),
    ],
)
def test_looks_where_the_core_notifies(shown, after, effects):
    """CB-6: without an outcome after three milliseconds, the core is asked to notify of one."""
    assert Dial().look(shown, after) == effects


@pytest.mark.parametrize(("age", "pause"), [(0.001, 0.001), (0.004, 0.001), (0.016, 0.002), (0.08, 0.01)])
def test_looks_where_the_core_does_not(age, pause):
    """TH-5: an attempt is polled after an eighth of its age, but after 1 ms at least."""
    (look,) = Dial(notifies=False).look(CONNECTING, age)
    assert look.at - START - age == pytest.approx(pause)


def test_paid_dials_are_looked_at_early():
    """CB-7, TH-5: a dial that an answer paid for is polled every 0.25 ms at first, and as any other after 1 ms."""
    dial = Dial(notifies=False, last_life=None)
    looks = [dial.effects[-1].at]
    for _ in range(5):
        (look,) = dial.look(CONNECTING, looks[-1] - dial.now + 1e-9)
        looks.append(look.at)
    assert [look - START for look in looks] == pytest.approx([0.00025, 0.0005, 0.00075, 0.001, 0.002, 0.003], abs=1e-6)


def test_looks_are_aligned():
    """TH-5: an old attempt is polled every 20 ms, at the same moments as the others."""
    dial = Dial(notifies=False)
    (look,) = dial.look(CONNECTING, 1.013)
    for _ in range(9):
        assert round(look.at / dial_times.RAREST_LOOK, 6) == round(look.at / dial_times.RAREST_LOOK)
        assert 0 < look.at - dial.now < dial_times.RAREST_LOOK + 1e-6
        (look,) = dial.look(CONNECTING, look.at - dial.now)


@pytest.mark.parametrize("notifies", [True, False])
@pytest.mark.parametrize(
    ("dial", "left", "after"),
    [("seen", False, 0.002), ("notified", True, 0.0005), ("late", False, dial_times.BEGINS_WITHIN)],
)
def test_made_and_lost_between_two_looks(notifies, dial, left, after):
    """CB-15: a core that is IDLE after it has begun has connected and lost the connection again."""
    made = Dial(notifies=notifies)
    if dial == "seen":
        made.look(CONNECTING, 0.001)
    else:
        made.look(IDLE, 0.0001)
        assert made.state.phase is DialPhase.DIALLING
    assert kinds(made.look(IDLE, after, left=left)) == [m.Made, m.NotifyOn]
    assert kinds(made.look(IDLE)) == [m.Lost, m.NotifyOn]


def test_the_beginning_is_told_before_the_outcome():
    """CB-6: a notification that the core has begun is no outcome."""
    dial = Dial()
    assert dial.look(CONNECTING, 0.0005, left=True) == [m.LookAt(START + dial_times.FIRST_LOOK)]
    assert dial.state.phase is DialPhase.DIALLING


@pytest.mark.parametrize(
    ("code", "details", "failure"),
    [
        ("UNAVAILABLE", "Connection\n refused", Failure(Stage.TCP, "Connection refused")),
        ("UNAVAILABLE", "timed out before receiving SETTINGS frame", Failure(Stage.SETTINGS, NO_SETTINGS)),
        ("UNAVAILABLE", "", Failure(Stage.UNKNOWN, "the core gave no reason")),
        ("CANCELLED", "Connection refused", Failure(Stage.UNKNOWN, "the core gave no reason")),
    ],
)
def test_failed(code, details, failure):
    """CH-11: after a failure, the core is asked for the reason and then the channel is closed (CB-1)."""
    dial = Dial()
    assert dial.look(TRANSIENT_FAILURE, 0.001) == [m.Explain()]
    assert dial.look(CONNECTING, 0.001) == []
    assert dial.feed(m.Explained(code, details)) == [m.Close(), m.Failed(failure)]
    assert dial.state.phase is DialPhase.CLOSED


@pytest.mark.parametrize(
    ("phase", "shown", "decided"),
    [
        (DialPhase.DIALLING, CONNECTING, False),
        (DialPhase.DIALLING, IDLE, True),  # told to dial just now by a late shell, or made and lost
        (DialPhase.DIALLING, READY, True),
        (DialPhase.DIALLING, TRANSIENT_FAILURE, True),
        (DialPhase.OBSERVING, CONNECTING, True),
        (DialPhase.FAILED, TRANSIENT_FAILURE, True),
    ],
)
def test_decided(phase, shown, decided):
    """CB-3: an outcome that the core has, but that was not looked at yet, counts at the limit."""
    assert m.is_decided(reach(phase).state, shown, START + LIMIT) is decided


@pytest.mark.parametrize(
    ("age", "limit", "young"), [(0.0, 20.0, True), (0.24, 20.0, True), (0.25, 20.0, False), (0.11, 0.2, False)]
)
def test_young_dials_may_be_decided(age, limit, young):
    """CB-3: a dial that a late shell began a moment ago gets a moment more, but never long (0.25 s, half its limit)."""
    dial = Dial(limit=limit)
    assert m.is_decided(dial.state, CONNECTING, START + age) is young


# The observation.


@pytest.mark.parametrize(
    ("last_life", "limit", "seconds"),
    [
        (math.inf, LIMIT, None),
        (None, LIMIT, dial_times.SETTLE),
        (0.1, LIMIT, None),
        (0.099, LIMIT, dial_times.SHORT_LIFE),
        (0.0, 0.101, 0.05),
        (0.0, 0.0005, 0.0),
    ],
)
def test_observed(last_life, limit, seconds):
    """CB-15: a connection is observed for 1 or 5 ms, or 0.1 s after a short-lived one, but a success is never late.

    It is observed for 1 ms if an answer or credit paid for it.
    """
    for notifies in (True, False):
        dial = Dial(notifies=notifies, last_life=last_life, limit=limit)
        *watch, look = dial.look(READY, 0.001)
        assert watch == ([m.NotifyOn(READY)] if notifies else [])
        while dial.state.phase is DialPhase.OBSERVING:
            assert m.Made() not in dial.all
            (look, *_) = dial.look(READY, look.at - dial.now) if isinstance(look, m.LookAt) else [None]
        settle = dial_times.SETTLE if notifies else dial_times.SETTLE_UNNOTIFIED
        assert dial.now - START - 0.001 == pytest.approx(settle if seconds is None else seconds, abs=1e-6)
        assert dial.effects[:2] == [m.Made(), m.NotifyOn(READY)]


@pytest.mark.parametrize("notifies", [True, False])
def test_a_familiar_peer(notifies):
    """CB-15: a connection that follows one which answered and was closed here is not observed.

    It is if this connector's own last connection was short-lived.
    """
    dial = Dial(notifies=notifies, familiar=True)
    assert dial.effects == [m.LookAt(START + dial_times.FIRST_LOOK)]
    assert dial.look(READY, 0.001)[0] == m.Made()
    assert dial.state.phase is DialPhase.OPEN
    assert m.Made() not in Dial(notifies=notifies, familiar=True, last_life=0.05).look(READY, 0.001)


def series(*, age=0.0, **how):
    """Return a dial with a connection of this age, which follows one that answered and was closed here."""
    dial = Dial(familiar=True, **how)
    dial.look(READY, 0.001)
    dial.look(READY, age, served=True)
    return dial


@pytest.mark.parametrize("notifies", [True, False])
@pytest.mark.parametrize("age", [0.0, 0.19, 0.21, 5.0])
def test_the_connection_of_a_series_is_spare(notifies, age):
    """SH-8: while it is younger than 0.2 s, the core's channel may serve the next dial, if it can do so at all."""
    for spare in (True, False):
        dial = series(notifies=notifies, age=age)
        assert dial.feed(m.Abandon(spare)) == [m.Close(spare and age < 0.2)]
        assert dial.state.phase is DialPhase.CLOSED


def test_what_is_not_spare():
    """SH-8: neither the first connection, nor one that may not be up, nor one that follows a short-lived one."""
    lost, retired = series(), series()
    lost.look(IDLE, 0.001, served=True)
    retired.feed(m.Retire())
    short = Dial(familiar=True, last_life=0.05)
    short.look(READY, 0.001)
    short.look(READY, 0.11, served=True)
    for dial in (reach(DialPhase.OPEN), lost, retired, short, Dial(familiar=True), Dial(made=START - 0.1)):
        assert dial.feed(m.Abandon(spare=True)) == [m.Close()]


def test_a_dial_with_a_spare_channel():
    """SH-8: it is looked at once, and the age of its connection counts from when that was made."""
    for notifies in (True, False):
        dial = Dial(notifies=notifies, familiar=True, made=START - 0.15)
        assert dial.effects == [m.LookAt(START)]
        assert dial.look(READY)[0] == m.Made()
        assert dial.look(READY, 0.04, served=True) == [m.FirstAnswer()]
        assert dial.feed(m.Abandon(spare=True)) == [m.Close(spare=True)]
    late = Dial(familiar=True, made=START - 0.15)
    late.look(READY)
    assert late.feed(m.Abandon(spare=True), after=0.06) == [m.Close()]


def test_a_spare_channel_that_ends_before_the_first_look():
    """SH-8: the core dials again on it, and the age of that connection counts from when it is made."""
    dial = Dial(familiar=True, made=START - 0.15)
    assert dial.look(CONNECTING) == [m.LookAt(START + dial_times.FIRST_LOOK)]
    assert dial.look(READY, 0.001)[0] == m.Made()
    assert dial.feed(m.Abandon(spare=True), after=0.1) == [m.Close(spare=True)]


def test_when_a_series_is_watched():
    """SH-8: the core notifies of the end of such a connection once it is too old to be spare, or is retired."""
    watch, until = m.NotifyOn(READY), START + 0.001 + dial_times.SPARE_UNTIL
    dial = Dial(familiar=True)
    made, look = dial.look(READY, 0.001)
    assert (made, look) == (m.Made(), m.LookAt(pytest.approx(until + dial_times.FIRST_LOOK)))
    assert watch not in dial.look(READY, 0.1, served=True)
    assert dial.look(READY, look.at - dial.now, served=True) == [watch]
    assert series().feed(m.Retire()) == [watch]
    assert reach(DialPhase.OPEN).feed(m.Retire()) == []


def test_a_familiar_peer_that_hangs_up_at_once():
    """CB-15: if the connection comes and goes before the first look, it counts as made and lost, a little later."""
    dial = Dial(familiar=True)
    assert dial.look(IDLE, 0.001) == [m.NotifyOn(IDLE), m.LookAt(START + dial_times.BEGINS_WITHIN)]
    assert m.Made() in dial.look(IDLE, dial_times.BEGINS_WITHIN)


@pytest.mark.parametrize(("shown", "left"), [(IDLE, False), (CONNECTING, True), (READY, True)])
def test_lost_while_observed(shown, left):
    """CB-15: a connection that ends while it is observed counts as made, and is lost before a call uses it."""
    dial = reach(DialPhase.OBSERVING, stable_after=0.0)
    assert m.Made() in dial.look(shown, 0.0001, left=left)


# The end of a connection.


@pytest.mark.parametrize(
    ("unused", "lived", "loss"),
    [(math.inf, 9.0, IDLED), (9.0, 20.0, IDLED), (8.9, 20.0, BROKEN), (math.inf, 8.9, BROKEN)],
)
def test_why_it_ended(unused, lived, loss):
    """CB-14: a connection that has been unused for nine tenths of the idle timeout was closed by the core."""
    dial = reach(DialPhase.OPEN, stable_after=0.0, idle_timeout=10.0)
    lost, *_ = dial.look(IDLE, START + 0.001 + lived - dial.now, unused=unused)
    assert lost.loss == loss


@pytest.mark.parametrize(
    ("served", "running", "shown", "loss"),
    [
        (True, 1, IDLE, BROKEN._replace(served=True)),
        (False, 1, IDLE, DRAINED),
        (False, 0, IDLE, BROKEN),
        (False, 1, CONNECTING, BROKEN),
        (False, 1, TRANSIENT_FAILURE, BROKEN),
    ],
)
def test_on_probation(served, running, shown, loss):
    """CB-8: calls that survive the end show a GOAWAY, unless the core has dialled; an answer ends the probation."""
    dial = reach(DialPhase.OPEN)
    effects = dial.look(IDLE, 1.0, running=1, served=served)
    if not served:
        assert effects == [m.NotifyOn(IDLE), m.LookAt(dial.now + dial_times.CALLS_BREAK_WITHIN)]
        assert kinds(dial.look(IDLE, 0.001, running=1)) == [m.LookAt]
        effects = dial.look(shown, dial_times.CALLS_BREAK_WITHIN, running=running)
    assert [effect.loss for effect in effects if isinstance(effect, m.Lost)] == [loss]


def test_idle_on_probation():
    """CB-8, CB-14: a connection that the core closed because it was idle does not count as failed."""
    dial = reach(DialPhase.OPEN, idle_timeout=5.0)
    assert kinds(dial.look(IDLE, 5.0)) == [m.NotifyOn, m.LookAt]
    assert dial.look(IDLE, 0.021)[0].loss == IDLED


def test_an_answer_that_arrives_last():
    """CB-8: an answer that arrives just after the end counts as one."""
    dial = reach(DialPhase.ENDING)
    assert dial.look(IDLE, 0.001, running=1, served=True)[0].loss.served


def test_probation_ends():
    """CB-8: a connection that has outlived `stable_after` is not on probation."""
    dial = reach(DialPhase.OPEN)
    assert kinds(dial.look(IDLE, 60.0)) == [m.Lost, m.NotifyOn]


@pytest.mark.parametrize(
    ("seen", "loss"),
    [
        ({"running": 1}, DRAINED),
        ({}, BROKEN),
        ({"refused": True}, BROKEN._replace(reason=DRAINED.reason)),
        ({"running": 1, "served": True}, BROKEN._replace(served=True)),
    ],
)
def test_calls_without_an_answer(seen, loss):
    """CB-7: while calls run on a connection that has answered none, its end is known only when they break or survive.

    A call that a GOAWAY refused tells of the GOAWAY, but not that others continue.
    """
    dial = reach(DialPhase.OPEN, stable_after=0.0)
    assert dial.look(IDLE, 60.0, running=2) == [m.NotifyOn(IDLE), m.LookAt(dial.now + dial_times.CALLS_BREAK_WITHIN)]
    assert dial.look(IDLE, dial_times.CALLS_BREAK_WITHIN, **seen) == [m.Lost(loss)]


@pytest.mark.parametrize("phase", [DialPhase.OPEN, DialPhase.ENDED, DialPhase.DRAINING])
def test_an_answer(phase):
    """CB-7: the first answer is reported, also one that comes after the end of the connection."""
    dial = reach(DialPhase.OPEN, stable_after=0.0)
    if phase is not DialPhase.OPEN:
        dial.look(IDLE, 0.01, running=1)
        dial.look(IDLE, 0.1, running=1)
    if phase is DialPhase.DRAINING:
        dial.feed(m.Retire())
    shown = READY if phase is DialPhase.OPEN else IDLE
    assert dial.look(shown, 0.1, running=1) == []
    assert dial.look(shown, 0.1, running=1, served=True) == [m.FirstAnswer()]
    assert dial.look(shown, 0.1, running=1, served=True) == []


def test_the_last_call_answers():
    """CB-7, CH-6: the answer that ends the last call of a retired connection is reported before that is closed."""
    dial = reach(DialPhase.DRAINING, stable_after=0.0)
    assert dial.look(IDLE, 0.1, served=True) == [m.FirstAnswer(), m.Close()]


@pytest.mark.parametrize("running", [0, 2])
def test_retired(running):
    """CH-6: a retired channel is closed after its last call, and not earlier."""
    dial = reach(DialPhase.OPEN)
    assert dial.feed(m.Retire()) == []
    if running:
        assert dial.look(READY, 0.1, running=running) == []
    assert dial.look(READY, 0.1) == [m.Close()]
    assert dial.state.phase is DialPhase.CLOSED


# The core's own redials.


@pytest.mark.parametrize(
    ("seen", "left", "redials"),
    [
        ([IDLE], False, 0),
        ([IDLE, IDLE, IDLE], False, 0),
        ([CONNECTING], False, 1),
        ([READY], True, 1),  # it came and went between two looks
        ([IDLE, CONNECTING, READY], False, 1),
        ([IDLE, READY], False, 1),
        ([IDLE, IDLE], True, 1),
        ([TRANSIENT_FAILURE], False, 1),
        ([CONNECTING, TRANSIENT_FAILURE], False, 1),
        ([CONNECTING, IDLE, CONNECTING], False, 2),
        ([CONNECTING, CONNECTING], False, 1),
        ([TRANSIENT_FAILURE, READY], False, 1),
    ],
)
@pytest.mark.parametrize("retired", [True, False])
def test_redials(seen, left, redials, retired):
    """CB-16: each dial that the core makes by itself is reported once, before and after the channel is retired."""
    dial = reach(DialPhase.OPEN, stable_after=0.0)
    if retired:
        dial.feed(m.Retire())
    for shown in seen:
        dial.look(shown, 0.01, running=1, left=left)
    assert kinds(dial.all).count(m.Redialled) == redials


def test_redials_without_a_change_of_state():
    """CB-16: after a failed dial, the core dials again at gaps that grow, up to the policy's cap."""
    dial = reach(DialPhase.DRAINING, longest=10.0)
    gap = dial_times.core_backoff(LIMIT)
    dial.look(CONNECTING, 1.0, running=1, left=True)
    due = dial.now + 0.8 * gap
    assert dial.look(TRANSIENT_FAILURE, 1.0, running=1) == [m.NotifyOn(TRANSIENT_FAILURE), look_at(due)]
    assert dial.look(TRANSIENT_FAILURE, 1.0, running=1) == []
    for _ in range(4):
        gap = min(1.6 * gap, 10.0)
        now, due = due + 0.001, due + 0.8 * gap
        assert dial.look(TRANSIENT_FAILURE, now - dial.now, running=1) == [m.Redialled(), look_at(due)]
    assert dial.look(IDLE, 1.0, running=1) == [m.NotifyOn(IDLE)]
    assert dial.look(IDLE, 1000.0, running=1) == []


@pytest.mark.parametrize(("after", "redials"), [(0.01, 0), (LIMIT, 1), (4 * LIMIT, 3), (20 * LIMIT, 6)])
def test_a_late_process(after, redials):
    """CB-12, CB-16: if a failed dial is seen late, each dial that the core can have made since is reported, as late."""
    dial = reach(DialPhase.DIALLING)
    assert dial.look(TRANSIENT_FAILURE, after) == [*redials * [m.Redialled(late=True)], m.Explain()]


def test_calls_that_are_left_are_looked_at_often():
    """CB-16: where the core cannot notify, a call that is left over must not redial unnoticed all the time."""
    dial = reach(DialPhase.OPEN, notifies=False)
    dial.look(IDLE, 1.0, running=1)
    for _ in range(3):
        assert m.LookAt in kinds(dial.look(IDLE, 0.02, running=1))
    assert m.LookAt not in kinds(dial.look(IDLE, dial_times.STRAYS_FOR, running=1))


def test_a_connection_that_was_retired_while_it_was_up_is_left_alone():
    """CB-16: its calls may go on for hours, and only its end makes the core redial for them."""
    dial = reach(DialPhase.OPEN, notifies=False)
    dial.feed(m.Retire())
    assert dial.look(READY, 0.0, running=1) == []
    assert dial.look(READY, 1.0, running=1) == []
    assert m.LookAt in kinds(dial.look(IDLE, 1.0, running=1))
    assert m.LookAt in kinds(dial.look(IDLE, 0.02, running=1))
    assert m.LookAt not in kinds(dial.look(IDLE, dial_times.STRAYS_FOR, running=1))


@pytest.mark.parametrize(
    ("lived", "served", "running", "refused", "after"),
    [
        (0.05, False, 1, False, 2),
        (0.05, False, 3, False, 4),
        (0.05, False, 3, True, 2),
        (0.05, False, 100, False, 21),
        (0.05, True, 1, False, 0),
        (2.0, False, 1, False, 0),
    ],
)
def test_calls_that_are_refused_again_and_again(lived, served, running, refused, after):
    """CB-16: after a young connection without an answer, calls end at a redial beyond one for each, or after 1 s.

    If a GOAWAY has ended a call, they end at the second one.
    """
    dial = reach(DialPhase.OPEN, stable_after=0.0)
    dial.look(IDLE, lived, running=running, served=served)
    dial.feed(m.Retire())
    ended = 0
    for redials in range(1, 25):
        dial.look(READY, 0.01, running=1, served=served, refused=refused)
        ended = ended or (redials if m.EndCalls in kinds(dial.all) else 0)
        dial.look(IDLE, 0.04, running=1, served=served, refused=refused)
    assert ended == after


def test_refused_while_ready():
    """CB-16: a connection that refuses calls by GOAWAY ends, even if the core stays READY, unless it answered any."""
    dial = reach(DialPhase.OPEN)
    assert dial.look(READY, refused=True, served=True) == [m.FirstAnswer()]
    dial = reach(DialPhase.OPEN)
    assert dial.look(READY, refused=True, running=3) == [m.Lost(Loss(DRAINED.reason), guard=True)]
    assert m.Redialled not in kinds([*dial.look(READY), *dial.look(IDLE, left=True)])
    dial.feed(m.Retire())
    assert dial.look(IDLE) == [m.Close()]


@pytest.mark.parametrize(
    ("notifies", "running", "served", "age", "again"),
    [
        (False, 1, False, 0.5, True),
        (False, 0, False, 0.5, False),
        (False, 1, True, 0.5, False),
        (False, 1, False, 1.5, False),
        (True, 1, False, 0.5, False),
    ],
)
def test_a_young_connection_without_an_answer(notifies, running, served, age, again):
    """CB-16: where the core cannot notify, a young connection without an answer is looked at often while calls run."""
    dial = reach(DialPhase.OPEN, notifies=notifies)
    assert (m.LookAt in kinds(dial.effects)) is not notifies
    assert (m.LookAt in kinds(dial.look(READY, age, running=running, served=served))) is again


@pytest.mark.parametrize(
    ("dropped", "served", "guards"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_loss_without_an_answer(dropped, served, guards):
    """CB-16: after a connection whose calls got no answer, the next dial is guarded, even if it begins at the loss."""
    dial = reach(DialPhase.OPEN, stable_after=0.0)
    effects = dial.look(IDLE, 5.0, dropped=dropped, served=served)
    assert [effect.guard for effect in effects if isinstance(effect, m.Lost)] == [guards]


def test_a_graceful_end_without_an_answer():
    """CB-16: if calls survive the end, the peer has dropped none, and the next dial is as usual."""
    dial = reach(DialPhase.ENDING)
    effects = dial.look(IDLE, 2 * dial_times.CALLS_BREAK_WITHIN, running=2, dropped=True)
    assert effects[0] == m.Lost(DRAINED)


def test_a_trial_that_is_answered():
    """CB-16: the first answer on a guarded connection ends it gracefully, while its calls go on."""
    dial = reach(DialPhase.OPEN, guarded=True)
    assert dial.look(READY, running=2) == []
    lost = Loss("it was a trial, after calls without an answer, and the peer has answered", graceful=True, served=True)
    assert dial.look(READY, running=2, served=True) == [m.Lost(lost)]
    dial.feed(m.Retire())
    assert dial.look(READY, running=1, served=True) == []
    assert dial.look(READY, served=True) == [m.Close()]


def look_at(time):
    return m.LookAt(pytest.approx(time))


def test_a_redial_that_is_seen_at_the_end():
    """CB-16: a redial whose call has ended since the last look is reported before the channel is closed."""
    dial = reach(DialPhase.ENDED)
    dial.feed(m.Retire())
    assert dial.look(TRANSIENT_FAILURE) == [m.Redialled(), m.Close()]


@pytest.mark.parametrize(
    ("shown", "ended_for", "link"),
    [
        (READY, -math.inf, Link.OPEN),
        (READY, 0.0, Link.OPEN),
        (IDLE, 0.0, Link.BROKEN),
        (IDLE, 0.099, Link.BROKEN),
        (IDLE, 0.1, Link.OPEN),
        (CONNECTING, 0.0, Link.BROKEN),
        (SHUTDOWN, 0.0, Link.BROKEN),
        (TRANSIENT_FAILURE, 0.0, Link.UNREACHABLE),
        (TRANSIENT_FAILURE, 9.0, Link.UNREACHABLE),
    ],
)
def test_the_connection_of_a_call(shown, ended_for, link):
    """RT-2, CH-3: what is known about a failed call's connection at the moment when the call ended."""
    assert m.link_of(shown, ended_for) is link


# Whatever is seen.

LOOKS = st.builds(
    m.Looked,
    shown=st.sampled_from([IDLE, CONNECTING, READY, TRANSIENT_FAILURE]),
    running=st.integers(0, 2),
    unused=st.sampled_from([0.0, 5.0, math.inf]),
    served=st.booleans(),
    left=st.booleans(),
)
INPUTS = st.one_of(
    LOOKS, LOOKS, LOOKS, st.just(m.Explained("UNAVAILABLE", "")), st.just(m.Retire()), st.just(m.Abandon())
)
PAUSES = st.sampled_from([0.0, 0.0005, 0.001, 0.019, 0.02, 0.3, 10.0])


@settings(derandomize=True, max_examples=300, deadline=None, database=None)
@given(
    notifies=st.booleans(),
    stable_after=st.sampled_from([0.0, 1.0]),
    last_life=st.sampled_from([0.0, math.inf, None]),
    familiar=st.booleans(),
    run=st.lists(st.tuples(INPUTS, PAUSES), max_size=40),
)
def test_invariants(notifies, stable_after, last_life, familiar, run):
    """CB-1, CB-10: whatever the core shows, each outcome comes once and in order, and a look always follows."""
    dial = Dial(notifies=notifies, stable_after=stable_after, last_life=last_life, familiar=familiar)
    order = list(DialPhase)
    for input_, pause in run:
        before, known = dial.state, dial.all.copy()
        if (before.phase, type(input_)) not in m.TRANSITIONS:
            continue
        dial.feed(input_, pause)
        after = dial.state
        assert order.index(after.phase) >= order.index(before.phase)
        if (
            after.phase in (DialPhase.DIALLING, DialPhase.OBSERVING, DialPhase.ENDING)
            and after.phase is not before.phase
        ):
            assert {m.LookAt, m.NotifyOn} & set(kinds(dial.effects))  # nothing is waited for without a look
        if before.phase is DialPhase.DIALLING and after.phase is DialPhase.DIALLING:
            assert {m.LookAt, m.NotifyOn} & set(kinds(dial.effects))
        if after.shown != before.shown and after.phase is not DialPhase.CLOSED:
            assert m.NotifyOn(after.shown) in dial.effects
        if m.Lost in kinds(dial.effects):
            assert m.Made() in known
        if m.Redialled() in dial.effects:
            assert after.phase in (DialPhase.ENDING, DialPhase.ENDED, DialPhase.DRAINING, DialPhase.CLOSED)
        for effect in dial.effects:
            assert not isinstance(effect, m.LookAt) or effect.at > dial.now or after.phase is DialPhase.OBSERVING
        if before.phase is DialPhase.CLOSED:
            assert dial.effects == []
    counts = [kinds(dial.all).count(kind) for kind in (m.Made, m.Failed, m.Lost, m.Close, m.Explain)]
    assert max(counts) <= 1
    assert counts[0] + counts[1] <= 1
    assert (dial.state.phase is DialPhase.CLOSED) == (counts[3] == 1)
