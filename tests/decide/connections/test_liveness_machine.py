"""The liveness machine, without a clock or connections."""

from __future__ import annotations

import math

import pytest

from grpc_backoff.base.stepping import ArmTimer, CancelTimer
from grpc_backoff.decide.connections import liveness_machine as m
from grpc_backoff.errors import IllegalTransition

MACHINE = m.LivenessMachine(0.2, 5.0)
OFF = m.LivenessMachine(0.0, 5.0)
OPEN = m.LivenessState(since=100.0, due=100.2)
INPUTS = [m.CallsCounted(0), m.CallWaits(), m.Unanswered(1.0), m.News("x"), m.Replied(alive=True), m.Left()]


def asking(machine=MACHINE, now=100.2):
    return machine.step(OPEN, m.CallsCounted(1), now)[0]


@pytest.mark.parametrize("phase", list(m.LivenessPhase))
@pytest.mark.parametrize("given", INPUTS)
def test_every_pair_is_in_the_table_or_a_typed_error(phase, given):
    """LV-1: each pair of phase and input is in the table, or raises IllegalTransition."""
    state = OPEN._replace(phase=phase)
    if (phase, type(given)) in m.TRANSITIONS:
        MACHINE.step(state, given, 101.0)
    else:
        with pytest.raises(IllegalTransition):
            MACHINE.step(state, given, 101.0)


def test_a_new_connection():
    """LV-1, LV-3: a connection is looked at after `quiet_after`; one that replaces a suspected one is asked first."""
    assert MACHINE.begin(100.0) == (OPEN, [ArmTimer(100.2)])
    assert OFF.begin(100.0) == (m.LivenessState(since=100.0), [])
    state, effects = OFF.begin(100.0, doubted=True)
    assert (state.phase, state.shut) == (m.LivenessPhase.ASKING, True)
    assert [type(each) for each in effects] == [m.Shut, m.Ask]


@pytest.mark.parametrize(
    ("looked", "now", "expected"),
    [
        (m.CallsCounted(1, 0.05), 100.2, [ArmTimer(pytest.approx(100.35))]),
        (m.CallsCounted(0, 0.05), 100.2, [ArmTimer(pytest.approx(100.35))]),
        (m.CallsCounted(1, math.inf), 100.2, [m.Ask("nothing has arrived on it for 0.2 s", 5.0)]),
        (m.CallsCounted(0, math.inf), 100.2, [m.Shut()]),
        (m.CallsCounted(1, math.inf), 110.3, [m.Ask(m.WOKE, 2.0)]),
        (m.CallsCounted(0, math.inf), 110.3, [m.Shut()]),
    ],
)
def test_what_the_timer_finds(looked, now, expected):
    """LV-1, LV-4: the peer is asked if calls run and none ends; without calls, the next one waits."""
    effects = MACHINE.step(OPEN, looked, now)[1]
    assert [each for each in effects if each != CancelTimer()] == expected


def test_an_answer_reopens_and_silence_condemns():
    """LV-1: an answer ends the doubt, and no answer condemns the connection, with the time that was given."""
    state, effects = MACHINE.step(asking(), m.Replied(alive=True), 100.3)
    assert effects == [m.Lives(pytest.approx(0.1)), m.Reopen(), ArmTimer(100.5)]
    assert (state.phase, state.answered) == (m.LivenessPhase.OPEN, True)
    state, effects = MACHINE.step(asking(), m.Replied(alive=False), 105.2)
    assert effects == [m.Condemn("no answer for 5 s")]
    assert (state.phase, state.answered) == (m.LivenessPhase.ENDED, False)


def test_an_answer_that_was_slept_through():
    """LV-4: if the process slept while the peer was asked, it is asked again before it is condemned."""
    state, effects = MACHINE.step(asking(), m.Replied(alive=False), 130.0)
    assert effects == [m.Ask(m.WOKE, 2.0)]
    assert MACHINE.step(state, m.Replied(alive=False), 132.0)[1] == [m.Condemn("no answer for 2 s")]


@pytest.mark.parametrize(("late", "again"), [(0.05, []), (0.7, [m.Ask(m.BUSY, 2.0)]), (11.0, [m.Ask(m.WOKE, 2.0)])])
def test_an_answer_that_could_not_be_read(late, again):
    """LV-4: a liveness call that ends late says nothing about the peer, which is asked again."""
    effects = MACHINE.step(asking(), m.Replied(alive=False), 105.2 + late)[1]
    assert effects == (again or [m.Condemn("no answer for 5 s")])


def test_a_process_that_is_always_late():
    """LV-4: three repeats in a row are the most, so a dead peer is found by a busy process as well."""
    state, now, asked = asking(), 100.2, 0
    while state.phase is m.LivenessPhase.ASKING:
        now += state.within + 0.5
        state, effects = MACHINE.step(state, m.Replied(alive=False), now)
        asked += 1
    assert (asked, effects) == (4, [m.Condemn("no answer for 2 s")])
    state = MACHINE.step(asking()._replace(repeats=3), m.Replied(alive=True), 100.3)[0]
    assert state.repeats == 0, "an answer ends the row"


@pytest.mark.parametrize(
    ("calls", "asks"),
    [
        ([(101, -math.inf), (101, -math.inf)], True),
        ([(101, 101.5), (102, 101.5)], False),
        ([(101, -math.inf), (102, 103)], False),
        ([(101, 102), (103, 102), (103, 102)], True),
        ([(99, -math.inf), (101, -math.inf)], False),
    ],
)
def test_deadlines_in_a_row(calls, asks):
    """LV-2: two calls that reach their deadlines are a reason to ask, if none was answered since the first began."""
    state, effects = OPEN, []
    for began, answered in calls:
        state, effects = MACHINE.step(state, m.Unanswered(began, answered), 110.0)
    assert (m.Ask("two calls in a row have ended without an answer", 5.0) in effects) is asks


def test_news():
    """LV-4: news leads to a call with 2 s, with `quiet_after` or after a sleep; a second one changes nothing."""
    state, effects = MACHINE.step(OPEN, m.News("x"), 101.0)
    assert effects == [CancelTimer(), m.Ask("x", 2.0)]
    assert MACHINE.step(state, m.News("y"), 101.0) == (state, [])
    unarmed = OPEN._replace(due=math.inf)
    assert OFF.step(unarmed, m.News("x"), 101.0) == (unarmed, [])
    assert OFF.step(unarmed, m.News("x", woke=True), 101.0)[1] == [m.Ask("x", 2.0)]
