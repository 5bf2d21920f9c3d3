"""Several machines that share a schedule, without an event loop or threads, and with a plain number for a clock."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from grpc_backoff.base.status import Loss
from grpc_backoff.decide.connections import connection_machine as m
from grpc_backoff.decide.connections.events import AttemptFailed, AttemptStarted, Failure, Stage, State
from grpc_backoff.decide.connections.happened import ChannelKey
from grpc_backoff.decide.connections.shared_schedule import HEAD_START, STALLED_AFTER, Schedule
from grpc_backoff.policy.presets import CONNECT

REFUSED = Failure(Stage.TCP, "refused")
SOON = 1e-6


class Manager:
    """A machine with the parts that its shell adds: a timer, an attempt, and a mailbox for schedule changes."""

    def __init__(self, process, number):
        self.process = process
        self.state = m.ConnectionState(member=number)
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
        state = self.state._replace(schedule=before)
        self.state, effects = process.machine.step(state, given, process.now, process.rng)
        process.schedule = self.state.schedule
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
                    self.events.append(effect.event.event())
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
        self.feed(m.ConnectionLost(Loss("closed"), busy=self.busy))

    def reset(self):
        self.feed(m.ResetRequested())

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
        self.machine = m.ConnectionMachine("target", replace(CONNECT, **policy), ChannelKey())
        self.schedule = Schedule(members=0)
        self.rng = random.Random(0)
        self.now = 100.0
        self.managers = []
        self.starts = []
        self.failed_starts = []
        self.number = 0
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

    def failing(self, seconds):
        self.run(seconds, "fail")

    def to_deadline(self):
        self.run(self.schedule.deadline - self.now)

    def later(self, seconds):
        self.now += seconds

    def find(self, which):
        """Return a manager by its place; `dialler` is the only one with an attempt, and `other` one without."""
        if which == "other":
            return next(manager for manager in self.managers if manager.attempt is None)
        if which == "dialler":
            (dialler,) = [manager for manager in self.managers if manager.attempt is not None]
            return dialler
        return self.managers[int(which)]

    def play(self, script):
        """Take these steps: methods of a manager, or of all, and methods of the process, perhaps with seconds."""
        for name, *which in (word.split(":") for word in script.split()):
            if hasattr(Manager, name):
                for manager in [self.find(*which)] if which else self.managers:
                    getattr(manager, name)()
            else:
                of = self.find if name in ("close", "leave") else float
                getattr(self, name)(*map(of, which))
        return self

    @property
    def states(self):
        return [manager.state.phase.state.name for manager in self.managers]

    @property
    def attempts(self):
        return [manager.state.attempt for manager in self.managers]

    @property
    def failures(self):
        return [manager.failures for manager in self.managers]

    @property
    def reasons(self):
        return [manager.state.failure for manager in self.managers]

    @property
    def planned(self):
        """For each manager, how long it takes until its next start."""
        return [
            None if manager.state.next_start is None else manager.state.next_start - self.now
            for manager in self.managers
        ]

    @property
    def dialling(self):
        """The places of the managers with an attempt."""
        return [place for place, manager in enumerate(self.managers) if manager.attempt is not None]

    @property
    def since(self):
        """How long ago the last attempt started."""
        return self.now - self.starts[-1]


def story(managers, script, policy=None, **seen):
    """Return how many managers there are, what happens from 100 s on, and what is seen of them then."""
    return managers, script, policy or {}, seen


BUSY = {"idle_timeout": float("inf")}
BESIDE = "want:0 succeed:0 run:1 want:1 failing:1.5"  # one is READY, and two attempts of another have failed
ENDED = "want:0 succeed:0 run:1 want:1 fail:1 deliver"  # the same with one failure
IN_BACKOFF = ["TRANSIENT_FAILURE", "TRANSIENT_FAILURE"]
STORIES = {
    # While nothing is wrong.
    "SH-3: once a connection has lasted, all dial": story(
        5, "want:0 succeed:0 run:0.1 want", starts=[100.0, *[100.1] * 4], dialling=[1, 2, 3, 4]
    ),
    "SH-3: until then, one does": story(5, "want", starts=[100.0], states=["CONNECTING"] * 5),
    "SH-3: and the next a moment later": story(5, "want run:0.26", starts=[100.0, 100.0 + HEAD_START]),
    "SH-3: and then the rest": story(
        5, "want run:0.26 succeed:0 run:0.1", starts=pytest.approx([100.0, 100.25, *[100.36] * 3])
    ),
    "SH-4, CB-7: not if the first connection ends at once": story(
        16, "want succeed:0 run:0.05 lose:0 run:0.9", starts=[100.0]
    ),
    "SH-3: a channel that is alone is not tried": story(1, "want succeed:0 join want:1", starts=[100.0, 100.0]),
    "CB-7: after a young connection, one attempt for each INITIAL_BACKOFF": story(
        2, "want succeed:0 lose:0 want:0 run:1.99", starts=[100.0, 101.0]
    ),
    "SH-5: unless it is cut short": story(
        2, "want succeed:0 lose:0 want:0 run:1.99 close:dialler run:0", starts=pytest.approx([100.0, 101.0, 101.99])
    ),
    # In backoff.
    "SH-3: whoever asks in backoff fails as the others did": story(
        2,
        "want:0 fail:0 deliver want:1",
        states=IN_BACKOFF,
        failures=[1, 1],
        reasons=[REFUSED, REFUSED],
        planned=[1.0, 1.0],
        starts=[100.0],
    ),
    "SH-3: whoever asks when the next start is free waits for its outcome": story(
        2, "want:0 fail:0 close:0 join later:2 want:0", states=["CONNECTING", "IDLE"], failures=[0, 0], attempts=[2, 0]
    ),
    "SH-4: a success wakes all": story(
        4, "want failing:30 to_deadline succeed:dialler deliver", dialling=[1, 2, 3], since=0.0
    ),
    "SH-3: a dialler that is gone loses its turn": story(
        2, "want failing:0.5 run:1 leave:dialler run:10", dialling=[0]
    ),
    "SH-5: the backoff lives with another manager": story(
        1, "want fail:0 run:1 fail:0 join close:0 want:0", planned=[pytest.approx(1.6, rel=0.2)], failures=[1]
    ),
    # Beside a connection.
    "SH-3, SH-5: beside a connection, whoever asks dials": story(
        3, BESIDE + " want:2", states=["READY", "TRANSIENT_FAILURE", "CONNECTING"], failures=[0, 2, 0]
    ),
    "SH-5: in a moment": story(3, BESIDE + " want:2 run:0.5", starts=[100.0, 101.0, 102.0, 103.0], attempts=[1, 2, 1]),
    "SH-4: with success, for all": story(
        3, BESIDE + " want:2 run:0.5 succeed:2 deliver run:0.1", failures=[0, 2, 0], dialling=[1]
    ),
    "SH-3: or without": story(
        3,
        BESIDE + " want:2 run:0.5 fail:2 deliver run:0.1",
        failures=[0, 2, 1],
        dialling=[],
        reasons=[None, REFUSED, REFUSED],
    ),
    "SH-3: even so, one attempt at a time": story(
        3,
        BESIDE + " run:1.5 want:2 run:0.5",
        states=["READY", "TRANSIENT_FAILURE", "CONNECTING"],
        failures=[0, 2, 0],
        dialling=[1],
    ),
    "SH-3: whose failure fails those who wait for it": story(
        3,
        BESIDE + " run:1.5 want:2 run:0.5 fail:1 deliver",
        states=["READY", *IN_BACKOFF],
        failures=[0, 3, 1],
        reasons=[None, REFUSED, REFUSED],
        attempts=[1, 3, 3],
    ),
    "SH-3: before the backoff of another has ended": story(
        3, "want:0 want:1 run:5 succeed:0 fail:1 want:2", starts=[100.0, 100.25, 105.0], dialling=[2]
    ),
    "SH-3, CB-9: also if its attempt was reset in flight": story(
        3, "want:0 want:1 run:5 succeed:0 reset:1 fail:1 want:2", starts=[100.0, 100.25, 105.0], dialling=[2]
    ),
    "SH-3: a connection that was lost says nothing": story(
        3, ENDED + " lose:0 want:2", states=["IDLE", *IN_BACKOFF], failures=[0, 1, 1]
    ),
    "SH-3: nor one that counts as a failure": story(
        3,
        ENDED + " lose:0 want:2",
        {"stable_after": 60.0},
        states=["TRANSIENT_FAILURE", *IN_BACKOFF],
        failures=[2, 1, 1],
    ),
    "SH-3: nor one that was closed": story(3, ENDED + " close:0 want:1", states=IN_BACKOFF, failures=[1, 1]),
    "SH-3: nor one whose manager is gone": story(3, ENDED + " leave:0 want:1", states=IN_BACKOFF, failures=[1, 1]),
    # Resets.
    "SH-6: a reset by any channel makes the key dial": story(
        3, "want:0 want:1 failing:100 reset:2 failing:0", BUSY, since=0.0
    ),
    "SH-6: a second one waits": story(
        3, "want:0 want:1 failing:100 reset:2 failing:0 later:0.25 reset:1 failing:0.5", BUSY, since=0.75
    ),
    "SH-6: for INITIAL_BACKOFF": story(
        3, "want:0 want:1 failing:100 reset:2 failing:0 later:0.25 reset:1 failing:1", BUSY, since=0.25
    ),
    "SH-6: what fails later, but began long before, does not hold it back": story(
        3, "want:0 want:1 run:5 fail:0 fail:0 reset:2 fail:1", BUSY, starts=[100.0, 100.25, 105.0, 105.0], dialling=[1]
    ),
    "SH-6: a reset makes another's attempt the first": story(
        2, "want failing:100 to_deadline reset:other deliver fail:dialler", BUSY, attempts=[1, 1]
    ),
    "SH-6: whose gap is INITIAL_BACKOFF": story(
        2, "want failing:100 to_deadline reset:other deliver fail:dialler run:1", BUSY, since=0.0, attempts=[2, 2]
    ),
}


@pytest.mark.parametrize(("managers", "script", "policy", "seen"), STORIES.values(), ids=STORIES)
def test_story(managers, script, policy, seen):
    """SH-3 to SH-6, CB-7: these steps have these effects; the name of each case gives its rule."""
    process = Process(managers, **policy).play(script)
    assert {name: getattr(process, name) for name in seen} == seen


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
    assert all(manager.state.phase.state is State.TRANSIENT_FAILURE for manager in process.managers[:5])
    assert all(manager.state.failure is REFUSED and manager.failures for manager in process.managers[:5])
    assert idle.state.phase.state is State.IDLE
    assert idle.failures == 0


def test_attempts_beside_the_first_failure_are_given_up():
    """SH-3: when one of several attempts in flight fails, the others are abandoned and report the same failure."""
    process = Process(managers=3)
    process.play("want:0 succeed:0 run:2 lose:0 want run:0.8")
    assert process.dialling == [0, 1, 2]
    process.play("fail:1 deliver")
    assert process.dialling == []
    assert [type(event) for event in process.managers[2].events] == [AttemptStarted, AttemptFailed]
    assert [event.attempt_id for event in process.managers[2].events] == [process.managers[2].state.attempt_id] * 2


def test_the_backoff_ends_with_the_last_manager():
    """SH-5: once all managers are gone, INITIAL_BACKOFF still applies, but a longer backoff does not."""
    process = Process(managers=1).play("want failing:30")
    last = process.starts[-1]
    process.now = last + 0.25
    process.close(process.managers[0])
    again = process.join()
    again.want()
    assert again.state.phase.state is State.CONNECTING
    assert again.state.next_start == last + 1.0
    process.run(0.8)
    assert process.starts[-1] == last + 1.0
    assert again.state.attempt == 1


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
        if manager.phase is m.ConnectionPhase.READY:
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
    process.play("want failing:0.5 run:1")
    dialler, other = process.find("dialler"), process.find("other")
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
    process.play("want failing:1")
    late.stalled = True
    for _ in range(12):
        user.want()
        process.run(1, "fail")
    late.stalled = False
    process.deliver()
    assert late.busy
    assert late.timer is not None
    process.run(400, "succeed")
    assert late.phase is m.ConnectionPhase.READY


def test_a_dialler_that_began_alone_shows_life_to_who_comes():
    """SH-3: a manager that started its turn alone loses the turn if it stalls after another manager has joined."""
    process = Process(managers=1)
    alone = process.managers[0]
    process.play("want failing:0.5 run:1")
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


def test_only_news_of_the_key_is_passed_on():
    """SH-7: events that concern one connection alone are not sent to the other managers."""
    process = Process(managers=3)
    process.play("want")
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
        self.resetting = False

    def started(self, manager, before):
        process = self.process
        deadline = before.deadline
        if self.resetting:  # SH-6: the step that resets may also dial
            deadline = min(deadline, before.reset_dial + 1.0)
        if before.failing and before.ready and manager.phase is m.ConnectionPhase.CONNECTING:
            # SH-3: a new series, beside one.
            deadline = min(deadline, before.free)
        assert process.now >= deadline - SOON, "dialled before the key's deadline"
        if before.failing and before.turn not in (None, manager.state.member):
            assert process.now >= before.lease - SOON, "dialled in another's turn"
        if process.failed_starts:
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
            getattr(dialling[place % len(dialling)], outcome)()

    @rule(place=places)
    def lose(self, place):
        manager = self.at(place)
        if manager and manager.phase is m.ConnectionPhase.READY and not manager.stalled:
            manager.lose()

    @rule(place=places)
    def reset(self, place):
        manager = self.at(place)
        if manager and not manager.stalled:
            self.process.failed_starts.clear()  # SH-6: only what fails later holds the key back again
            self.resetting = True
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
            if manager.busy and manager.phase is m.ConnectionPhase.IDLE:
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
                assert manager.phase not in (m.ConnectionPhase.IDLE, m.ConnectionPhase.CLOSED)
                assert manager.phase is m.ConnectionPhase.READY or manager.timer is not None

    def teardown(self):
        """Check that every pending call gets a connection once attempts succeed."""
        process = getattr(self, "process", None)
        if process is None:
            return
        for manager in process.managers:
            manager.busy = manager.busy and manager.phase is not m.ConnectionPhase.READY
        process.run(400, "succeed")
        waiting = [manager for manager in process.managers if manager.busy and not manager.stalled]
        assert waiting == []


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestInterleavings.__doc__ = (
    "SH-3 to SH-6: never two attempts in backoff, none before its time, none that a waiting call would lack."
)
