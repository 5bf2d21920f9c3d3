"""Several machines that share a schedule, without an event loop or threads, and with a plain number for a clock."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from grpc_backoff.connection import machine as m
from grpc_backoff.connection.events import AttemptFailed, AttemptStarted, Failure, Stage, State
from grpc_backoff.connection.schedule import HEAD_START, STALLED_AFTER, TRIAL, Health, Schedule
from grpc_backoff.policy.presets import CONNECT

REFUSED = Failure(Stage.TCP, "refused")
SOON = 1e-6


class Manager:
    """A machine with the parts that its shell adds: a timer, an attempt, and a mailbox for schedule changes."""

    def __init__(self, process, number):
        self.process = process
        self.state = m.MachineState(member=number)
        self.timer = None
        self.attempt = None
        self.mail = False
        self.stalled = False
        self.busy = False
        self.failures = 0
        self.events = []
        self.told = []

    def feed(self, given):  # noqa: C901 - one line for each effect
        process = self.process
        before = process.schedule
        state = self.state._replace(key=before)
        self.state, effects = process.machine.step(state, given, process.now, process.rng)
        process.schedule = self.state.key
        for effect in effects:
            match effect:
                case m.StartAttempt():
                    self.attempt = process.now
                    process.started(self, before)
                case m.AbandonAttempt():
                    self.attempt = None
                case m.ArmTimer():
                    self.timer = effect.at
                case m.CancelTimer():
                    self.timer = None
                case m.ReleaseCalls():
                    self.busy = False
                case m.FailCalls():
                    self.failures += 1
                case m.Emit():
                    self.events.append(effect.event)
                case m.TellOthers():
                    for other in process.managers:
                        if other is not self:
                            other.mail = True
                            other.told.append(effect.event)

    def want(self):
        self.busy = True
        if not self.stalled:
            self.feed(m.ConnectionWanted())

    def fail(self):
        self.attempt = None
        self.process.failed_starts.append(self.state.started)
        self.feed(m.ConnectFailed(REFUSED, busy=self.busy))

    def succeed(self):
        self.attempt = None
        self.feed(m.SettingsReceived())

    def lose(self):
        self.feed(m.ConnectionLost("closed", busy=self.busy))

    def read_mail(self):
        self.mail = False
        self.feed(m.ScheduleChanged(busy=self.busy))

    def wake(self):
        if self.state.in_flight and self.process.now >= self.state.limit:
            self.process.failed_starts.append(self.state.started)
        self.timer = None
        self.feed(m.TimerFired(busy=self.busy))

    @property
    def phase(self):
        return self.state.phase


class Process:
    """The managers of one key, and a simulated clock."""

    def __init__(self, managers=0, **policy):
        self.machine = m.Machine("target", replace(CONNECT, **policy))
        self.schedule = Schedule(members=0)
        self.rng = random.Random(0)
        self.now = 100.0
        self.managers = []
        self.starts = []
        self.failed_starts = []
        self.number = 0
        self.prompt = True
        for _ in range(managers):
            self.join()

    def join(self):
        self.number += 1
        self.schedule = self.schedule.joined()
        self.managers.append(Manager(self, self.number))
        return self.managers[-1]

    def leave(self, manager):
        self.managers.remove(manager)
        self.schedule = self.schedule.left(manager.state.member)

    def close(self, manager):
        manager.feed(m.CloseRequested())
        self.leave(manager)

    def started(self, manager, before):
        self.starts.append(self.now)

    def deliver(self):
        while any(manager.mail and not manager.stalled for manager in self.managers):
            for manager in self.managers:
                if manager.mail and not manager.stalled:
                    manager.read_mail()

    def due(self, until):
        timers = [manager for manager in self.managers if manager.timer is not None and not manager.stalled]
        first = min(timers, key=lambda manager: manager.timer, default=None)
        return None if first is None or first.timer > until else first

    def run(self, seconds, outcome=None):
        """Let time pass; if an outcome is given, every attempt ends with it at once."""
        until = self.now + seconds
        for _ in range(100_000):
            self.deliver()
            for manager in self.managers:
                if outcome is not None and manager.attempt is not None and not manager.stalled:
                    getattr(manager, outcome)()
                    self.deliver()
            first = self.due(until)
            if first is None:
                break
            self.now = max(self.now, first.timer)
            first.wake()
        else:
            raise AssertionError("time stands still")
        self.now = until


def test_side_by_side_while_nothing_is_wrong():
    """SH-3: once a connection has lasted, every manager dials as soon as it wants one, without waiting for others."""
    process = Process(managers=5)
    process.managers[0].want()
    process.managers[0].succeed()
    process.run(TRIAL)
    for manager in process.managers[1:]:
        manager.want()
    assert process.starts == [100.0, *[process.now] * 4]
    assert [manager.phase for manager in process.managers[1:]] == [m.Phase.CONNECTING] * 4


def test_the_first_of_all_has_a_head_start():
    """SH-3: while nothing is known about a key, managers dial 0.25 s apart; a lasting connection lets the rest dial."""
    process = Process(managers=5)
    for manager in process.managers:
        manager.want()
    assert process.starts == [100.0]
    assert {manager.state.state for manager in process.managers} == {State.CONNECTING}
    process.run(HEAD_START + 0.01)
    assert process.starts == [100.0, 100.0 + HEAD_START]
    process.managers[0].succeed()
    process.run(TRIAL)
    assert process.starts[2:] == [process.now] * 3


def test_the_first_connection_has_to_last():
    """SH-4, CB-7: if the first connection ends right after SETTINGS, the other managers do not dial at once."""
    process = Process(managers=16)
    for manager in process.managers:
        manager.want()
    process.managers[0].succeed()
    process.run(TRIAL / 2)
    process.managers[0].lose()
    process.run(0.9)
    assert process.starts == [100.0]


def test_a_channel_that_is_alone_is_not_tried():
    """SH-3: if a key's only channel has connected, a channel that is created afterwards dials at once."""
    process = Process(managers=1)
    process.managers[0].want()
    process.managers[0].succeed()
    process.join().want()
    assert process.starts == [100.0] * 2


def test_one_start_for_each_initial_backoff_behind_a_young_end():
    """CB-7: after a short-lived connection, an attempt in flight keeps the other managers from dialling."""
    process = Process(managers=2)
    for manager in process.managers:
        manager.want()
    process.managers[0].succeed()
    process.managers[0].lose()
    process.managers[0].want()
    process.run(1.0)
    (dialler,) = [manager for manager in process.managers if manager.attempt is not None]
    process.run(0.99)
    assert process.starts == [100.0, 101.0]
    process.close(dialler)  # an attempt cut short holds nothing back (SH-5)
    process.run(0.0)
    assert process.starts == [100.0, 101.0, process.now]


def test_one_attempt_for_all_in_backoff():
    """SH-3: in backoff, one attempt serves all managers that want a connection, and its failure fails all of them."""
    process = Process(managers=5, idle_timeout=float("inf"))
    idle = process.join()
    for manager in process.managers[:5]:
        manager.want()
    process.run(600, "fail")
    alone = Process(managers=1, idle_timeout=float("inf"))
    alone.managers[0].want()
    alone.run(600, "fail")
    assert len(process.starts) == len(alone.starts)
    assert all(manager.state.state is State.TRANSIENT_FAILURE for manager in process.managers[:5])
    assert all(manager.state.failure is REFUSED and manager.failures for manager in process.managers[:5])
    assert idle.state.state is State.IDLE
    assert idle.failures == 0


def test_whoever_asks_in_backoff_has_the_same_failure():
    """SH-3: a manager that asks during the key's backoff fails with the last failure and does not dial."""
    process = Process(managers=2)
    first, second = process.managers
    first.want()
    first.fail()
    process.deliver()
    second.want()
    assert (second.state.state, second.state.failure, second.failures) == (State.TRANSIENT_FAILURE, REFUSED, 1)
    assert second.state.next_start == 101.0
    assert process.starts == [100.0]


def beside_a_connection():
    """Return a process with a READY manager, one whose two attempts have failed, and one that has not asked yet."""
    process = Process(managers=3)
    up, failing, _ = process.managers
    up.want()
    up.succeed()
    process.run(1)
    failing.want()
    process.run(1.5, "fail")
    assert process.starts == [100.0, 101.0, 102.0]
    return process


@pytest.mark.parametrize("outcome", ["succeed", "fail"])
def test_whoever_asks_beside_a_connection_dials(outcome):
    """SH-3, SH-5: while a manager is READY, a failure does not apply to one that asks later: it dials in a moment."""
    process = beside_a_connection()
    _, failing, fresh = process.managers
    fresh.want()
    assert (fresh.state.state, fresh.failures, fresh.state.next_start) == (State.CONNECTING, 0, 103.0)
    process.run(0.5)
    assert (process.starts[3:], fresh.state.attempt) == ([103.0], 1)
    getattr(fresh, outcome)()
    process.deliver()
    assert (fresh.failures, process.schedule.failing) == ((0, False) if outcome == "succeed" else (1, True))
    process.run(TRIAL)
    assert (failing.attempt is None) == (outcome == "fail")


def test_whoever_asks_beside_a_connection_waits_for_an_attempt_in_flight():
    """SH-3: even then, there is one attempt at a time, and its failure also fails those who wait for it."""
    process = beside_a_connection()
    _, failing, fresh = process.managers
    process.run(1.5)
    assert failing.attempt is not None
    fresh.want()
    process.run(0.5)
    assert (fresh.phase, fresh.failures, fresh.attempt) == (m.Phase.HOLDING, 0, None)
    failing.fail()
    process.deliver()
    assert (fresh.phase, fresh.failures, fresh.state.failure) == (m.Phase.BACKOFF, 1, REFUSED)
    assert process.schedule.attempt == 3


@pytest.mark.parametrize("end", ["lose", "close", "leave", "unstable"])
def test_a_connection_that_has_ended_says_nothing(end):
    """SH-3: once no manager is READY, the failure applies to one that asks later, however the connection ended."""
    process = Process(managers=3, stable_after=60.0 if end == "unstable" else 0.0)
    up, failing, fresh = process.managers
    up.want()
    up.succeed()
    process.run(1)
    failing.want()
    failing.fail()
    process.deliver()
    {"close": process.close, "leave": process.leave}.get(end, Manager.lose)(up)
    fresh.want()
    assert (fresh.state.state, fresh.failures) == (State.TRANSIENT_FAILURE, 1)


def test_attempts_beside_the_first_failure_are_given_up():
    """SH-3: when one of several attempts in flight fails, the others are abandoned and report the same failure."""
    process = Process(managers=3)
    process.managers[0].want()
    process.managers[0].succeed()
    process.run(2)
    process.managers[0].lose()
    for manager in process.managers:
        manager.want()
    for _ in process.managers:
        process.run(HEAD_START + 0.01)
    assert [manager.attempt is not None for manager in process.managers] == [True] * 3
    process.managers[1].fail()
    process.deliver()
    assert [manager.attempt for manager in process.managers] == [None] * 3
    assert [type(event) for event in process.managers[2].events] == [AttemptStarted, AttemptFailed]
    assert [event.attempt_id for event in process.managers[2].events] == [process.managers[2].state.attempt_id] * 2


def test_a_success_wakes_all():
    """SH-4: when one attempt succeeds, all sleeping managers dial at once."""
    process = Process(managers=4)
    for manager in process.managers:
        manager.want()
    process.run(30, "fail")
    count = len(process.starts)
    process.run(process.schedule.deadline - process.now)
    (dialler,) = [manager for manager in process.managers if manager.attempt is not None]
    dialler.succeed()
    process.deliver()
    assert process.starts[count:] == [process.now] * 4
    assert process.schedule.health is Health.WELL


def test_the_backoff_ends_with_the_last_manager():
    """SH-5: once all managers are gone, INITIAL_BACKOFF still applies, but a longer backoff does not."""
    process = Process(managers=1)
    process.managers[0].want()
    process.run(30, "fail")
    last = process.starts[-1]
    process.now = last + 0.25
    process.close(process.managers[0])
    again = process.join()
    again.want()
    assert again.state.state is State.CONNECTING
    assert again.state.next_start == last + 1.0
    process.run(0.8)
    assert process.starts[-1] == last + 1.0
    assert again.state.attempt == 1


def test_the_backoff_lives_with_another_manager():
    """SH-5: a new channel continues the backoff if it was created before the old one was closed."""
    process = Process(managers=1, idle_timeout=float("inf"))
    process.managers[0].want()
    process.run(30, "fail")
    deadline = process.schedule.deadline
    process.join()
    process.close(process.managers[0])
    process.managers[0].want()
    assert process.managers[0].state.next_start == deadline


def test_whoever_asks_when_the_next_start_is_free_waits_for_its_outcome():
    """SH-3: a channel that asks when an attempt may start makes that attempt, and its calls wait for the outcome."""
    process = Process(managers=2)
    first, second = process.managers
    first.want()
    first.fail()
    process.close(first)
    process.join()
    process.now += 2
    process.managers[0].want()
    assert (second.state.state, second.state.attempt, second.failures) == (State.CONNECTING, 2, 0)


def test_a_closed_connection_leaves_nothing_behind():
    """SH-5: a healthy client that creates a channel for each request is not slowed down."""
    process = Process()
    for turn in range(100):
        manager = process.join()
        manager.want()
        assert len(process.starts) == turn + 1
        manager.succeed()
        process.close(manager)
        process.now += 0.001


def test_a_peer_that_hangs_up_is_remembered():
    """SH-5: after the peer has ended a young connection, its key does not dial until INITIAL_BACKOFF has passed."""
    process = Process()
    for _ in range(100):
        manager = process.join()
        manager.want()
        process.run(0.01, "succeed")
        if manager.phase is m.Phase.READY:
            manager.lose()
        process.close(manager)
        process.run(0.09)
    assert 5 <= len(process.starts) <= 10
    assert all(later - earlier >= 1.0 for earlier, later in zip(process.starts, process.starts[1:], strict=False))


@pytest.mark.parametrize("reset", [False, True])
def test_a_dialler_that_stalls_loses_its_turn(reset):
    """SH-3: a manager that stalls during its turn loses the turn, but one that waits for a silent peer keeps it.

    CB-9: a reset through the one that stalled makes the other's attempt the first of a new series, and not its own.
    """
    process = Process(managers=2)
    for manager in process.managers:
        manager.want()
    process.run(0.5, "fail")
    process.run(1.0)
    (dialler,) = [manager for manager in process.managers if manager.attempt is not None]
    (other,) = [manager for manager in process.managers if manager is not dialler]
    began, deadline = process.starts[-1], process.schedule.deadline
    process.run(10)
    assert process.starts[-1] == began, "it is silent, and not stalled"
    dialler.stalled = True
    process.run(2 * STALLED_AFTER)
    assert other.attempt is not None
    assert began < deadline <= other.attempt <= process.now
    dialler.stalled = False
    if reset:
        dialler.feed(m.ResetRequested())
        assert (dialler.events[-1].attempt, process.schedule.attempt) == (2, 1)
        assert process.schedule.deadline == pytest.approx(other.attempt + 1.0)
    process.deliver()
    assert dialler.attempt is None


def test_news_that_comes_before_a_late_timer_leaves_no_call_behind():
    """CB-14: a call that was pending while its loop stalled beyond the idle timeout still gets a connection."""
    process = Process(managers=2, idle_timeout=10.0)
    user, late = process.managers
    for manager in process.managers:
        manager.want()
    process.run(1, "fail")
    late.stalled = True
    for _ in range(12):
        user.want()
        process.run(1, "fail")
    late.stalled = False
    process.deliver()
    assert late.busy
    assert late.timer is not None
    process.run(400, "succeed")
    assert late.phase is m.Phase.READY


def test_a_dialler_that_is_gone_loses_its_turn():
    """SH-3: if the event loop of the dialling manager is closed, another manager dials at the next start."""
    process = Process(managers=2)
    for manager in process.managers:
        manager.want()
    process.run(0.5, "fail")
    process.run(1.0)
    (dialler,) = [manager for manager in process.managers if manager.attempt is not None]
    process.leave(dialler)
    count = len(process.starts)
    process.run(10, "fail")
    assert len(process.starts) > count


def test_a_dialler_that_began_alone_shows_life_to_who_comes():
    """SH-3: a manager that started its turn alone loses the turn if it stalls after another manager has joined."""
    process = Process(managers=1)
    alone = process.managers[0]
    alone.want()
    process.run(0.5, "fail")
    process.run(1.0)
    began = process.starts[-1]
    assert alone.attempt == began
    other = process.join()
    other.want()
    alone.mail = True  # as in the registry: the dialler is notified when a manager joins
    process.run(10)
    assert process.starts[-1] == began, "it is silent, and not stalled"
    alone.stalled = True
    process.run(2 * STALLED_AFTER)
    assert other.attempt is not None


def test_a_reset_reaches_the_key():
    """SH-6: a reset by any channel makes the key dial; a second reset takes effect after INITIAL_BACKOFF."""
    process = Process(managers=3, idle_timeout=float("inf"))
    for manager in process.managers[:2]:
        manager.want()
    process.run(100, "fail")
    at = process.now
    process.managers[2].feed(m.ResetRequested())
    process.run(0.0, "fail")
    assert process.starts[-1] == at
    process.now += 0.25
    process.managers[1].feed(m.ResetRequested())
    process.run(0.5, "fail")
    assert process.starts[-1] == at
    process.run(0.5, "fail")
    assert process.starts[-1] == at + 1.0


def test_a_reset_during_anothers_attempt():
    """SH-6: after a reset by any channel the attempt in flight continues, and the gap after it is INITIAL_BACKOFF."""
    process = Process(managers=2, idle_timeout=float("inf"))
    for manager in process.managers:
        manager.want()
    process.run(100, "fail")
    process.run(process.schedule.deadline - process.now)
    began = process.starts[-1]
    (dialler,) = [manager for manager in process.managers if manager.attempt is not None]
    (other,) = [manager for manager in process.managers if manager is not dialler]
    other.feed(m.ResetRequested())
    process.deliver()
    dialler.fail()
    assert dialler.state.attempt == 1
    process.run(1.5, "fail")
    assert process.starts[-2:] == [began, began + 1.0]


def test_only_news_of_the_key_is_passed_on():
    """SH-7: events that concern one connection alone are not sent to the other managers."""
    process = Process(managers=3)
    for manager in process.managers:
        manager.want()
    process.run(0.0, "succeed")
    for manager in process.managers:
        manager.told.clear()
    process.managers[0].lose()
    assert [manager.told for manager in process.managers] == [[], [], []]


class Interleavings(RuleBasedStateMachine):
    """Joins, requests, outcomes, losses, resets, closes and stalls, in random order."""

    places = st.integers(0, 5)

    @initialize(seed=st.integers(0, 9))
    def begin(self, seed):
        self.process = Process(managers=2, idle_timeout=float("inf"))
        self.process.rng = random.Random(seed)
        self.process.started = self.started
        self.reset_since_failure = self.resetting = False

    def started(self, manager, before):
        process = self.process
        deadline = before.deadline
        if self.resetting:  # SH-6: the step that resets may also dial
            deadline = min(deadline, before.reset_dial + 1.0)
        assert process.now >= deadline - SOON, "dialled before the key's deadline"
        if before.failing and before.turn not in (None, manager.state.member):
            assert process.now >= before.lease - SOON, "dialled in another's turn"
        if process.failed_starts and not self.reset_since_failure:
            assert process.now >= max(process.failed_starts) + 1.0 - SOON, "SH-5"
        process.starts.append(process.now)

    def at(self, place):
        return self.process.managers[place % len(self.process.managers)] if self.process.managers else None

    @rule()
    def make(self):
        if len(self.process.managers) < 6:
            self.process.join().want()

    @rule(place=places)
    def want(self, place):
        if manager := self.at(place):
            manager.want()

    @rule(place=places, outcome=st.sampled_from(["fail", "fail", "succeed"]))
    def end_attempt(self, place, outcome):
        dialling = [one for one in self.process.managers if one.attempt is not None and not one.stalled]
        if dialling:
            self.reset_since_failure &= outcome != "fail"
            getattr(dialling[place % len(dialling)], outcome)()

    @rule(place=places)
    def lose(self, place):
        manager = self.at(place)
        if manager and manager.phase is m.Phase.READY and not manager.stalled:
            manager.lose()

    @rule(place=places)
    def reset(self, place):
        manager = self.at(place)
        if manager and not manager.stalled:
            self.reset_since_failure = self.resetting = True
            manager.feed(m.ResetRequested())
            self.resetting = False

    @rule(place=places, closed=st.booleans(), luck=st.integers(0, 2))
    def leave(self, place, closed, luck):
        """With a probability of one third, close a manager, or drop it and its loop without notice."""
        manager = self.at(place)
        if manager and not luck and not (closed and manager.stalled):
            (self.process.close if closed else self.process.leave)(manager)

    @rule(place=places, luck=st.integers(0, 2))
    def stall(self, place, luck):
        manager = self.at(place)
        if manager and not luck:
            manager.stalled = True

    @rule(place=places)
    def go_on(self, place):
        manager = self.at(place)
        if manager and manager.stalled:
            manager.stalled = False
            if manager.busy and manager.phase is m.Phase.IDLE:
                manager.feed(m.ConnectionWanted())
            self.process.deliver()

    @rule()
    def deliver(self):
        self.process.deliver()

    @rule(seconds=st.sampled_from([0.0, 0.05, 0.3, 1.0, 5.0, 60.0]))
    def wait(self, seconds):
        self.process.run(seconds)

    @invariant()
    def one_attempt_in_backoff(self):
        """SH-3: among the managers that know about the backoff, at most one has an attempt in flight."""
        process = getattr(self, "process", None)
        if process is None or not process.schedule.failing:
            return
        heard = [one for one in process.managers if one.attempt is not None and not one.mail and not one.stalled]
        assert len(heard) <= 1, "two attempts in flight while in backoff"

    @invariant()
    def whoever_waits_is_woken(self):
        for manager in getattr(self, "process", Process()).managers:
            if manager.busy and not manager.stalled:
                assert manager.phase not in (m.Phase.IDLE, m.Phase.CLOSED)
                assert manager.phase is m.Phase.READY or manager.timer is not None

    def teardown(self):
        """Check that every pending call gets a connection once attempts succeed."""
        process = getattr(self, "process", None)
        if process is None:
            return
        for manager in process.managers:
            manager.busy = manager.busy and manager.phase is not m.Phase.READY
        process.run(400, "succeed")
        waiting = [manager for manager in process.managers if manager.busy and not manager.stalled]
        assert waiting == []


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestInterleavings.__doc__ = (
    "SH-3 to SH-6: never two attempts in backoff, none before its time, none that a waiting call would lack."
)
