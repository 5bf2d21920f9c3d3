"""The connection machine, without an event loop or sockets, and with a plain number for a clock."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from grpc_backoff.base.status import Loss
from grpc_backoff.decide.connections import connection_machine as m
from grpc_backoff.decide.connections import events
from grpc_backoff.decide.connections.dial_texts import NO_SETTINGS
from grpc_backoff.decide.connections.events import Failure, Stage, State
from grpc_backoff.decide.connections.happened import ChannelKey
from grpc_backoff.errors import IllegalTransition
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.connect import Reconnect
from grpc_backoff.policy.jitter import Proportional
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.policy.strategy import Exponential

REFUSED = Failure(Stage.TCP, "refused")
INPUTS = {
    m.ConnectionWanted: m.ConnectionWanted(),
    m.SettingsReceived: m.SettingsReceived(),
    m.ConnectFailed: m.ConnectFailed(REFUSED),
    m.TimerFired: m.TimerFired(),
    m.ConnectionLost: m.ConnectionLost(Loss("closed")),
    m.AnswerReceived: m.AnswerReceived(),
    m.CoreRedialled: m.CoreRedialled(),
    m.ResetRequested: m.ResetRequested(),
    m.NewsArrived: m.NewsArrived(),
    m.CloseRequested: m.CloseRequested(),
}


class Driver:
    """Gives inputs to a machine and records its effects."""

    def __init__(self, *, seed=0, rng=None, **policy):
        self.machine = m.ConnectionMachine("target", replace(CONNECT, **policy), ChannelKey())
        self.state = m.ConnectionState()
        self.rng = rng or random.Random(seed)
        self.now = 100.0
        self.starts = []
        self.limits = []
        self.lives = []
        self.abandoned = []
        self.shown = []
        self.timer = None
        self.events = []

    def feed(self, given, at=None):
        self.now = self.now if at is None else at
        self.state, effects = self.machine.step(self.state, given, self.now, self.rng)
        for effect in effects:
            match effect:
                case m.StartAttempt():
                    self.starts.append(self.now)
                    self.limits.append(effect.limit)
                    self.lives.append(effect.last_life)
                case m.AbandonAttempt():
                    self.abandoned.append(self.now)
                case m.ArmTimer():
                    self.timer = effect.at
                case m.CancelTimer():
                    self.timer = None
                case m.Emit():
                    self.events.append(effect.event.event())
        self.shown.append(self.state.phase.state.name)
        return effects

    def play(self, *steps):
        """Take these steps: methods by name, perhaps with an argument in seconds, and inputs behind a wait."""
        for step in steps:
            if isinstance(step, str):
                for name, *seconds in (word.split(":") for word in step.split()):
                    getattr(self, name)(*map(float, seconds))
            else:
                self.feed(step[1], self.now + step[0])
        return self

    def wake(self, *, busy=True):
        assert self.timer is not None
        return self.feed(m.TimerFired(busy=busy), max(self.now, self.timer))

    def fail(self, after=0.0, *, busy=True):
        return self.feed(m.ConnectFailed(REFUSED, busy=busy), self.now + after)

    def connect(self, after=0.0):
        return self.feed(m.SettingsReceived(), self.now + after)

    def lose(self, after, **how):
        return self.feed(m.ConnectionLost(Loss("closed", **how)), self.now + after)

    def want(self):
        return self.feed(m.ConnectionWanted())

    def end(self, after=0.0):
        """Lose a connection that has answered a call."""
        return self.lose(after, served=True)

    def drain(self, after=0.0):
        """Lose a connection gracefully, before an answer."""
        return self.lose(after, graceful=True)

    def answer(self, after=0.0):
        return self.feed(m.AnswerReceived(), self.now + after)

    def rest(self):
        return self.wake(busy=False)

    def fire(self, after):
        return self.feed(m.TimerFired(busy=True), self.now + after)

    def reset(self, after=0.0):
        return self.feed(m.ResetRequested(), self.now + after)

    def news(self, after=0.0):
        return self.feed(m.NewsArrived(), self.now + after)

    def redial(self):
        return self.feed(m.CoreRedialled())

    def close(self, after=0.0):
        return self.feed(m.CloseRequested(), self.now + after)

    def follow(self, after):
        """Let a channel of the same key follow this one, which has been closed; return how it starts its attempt."""
        second = Driver()
        second.state = second.state._replace(schedule=self.state.schedule.left(self.state.member)._replace(members=1))
        effects = second.feed(m.ConnectionWanted(), self.now + after)
        return second, next(effect for effect in effects if isinstance(effect, m.StartAttempt))

    def kinds(self):
        return [type(event).__name__ for event in self.events]

    def see(self, name):
        """Return what is seen under this name here, in the state, or in the key's schedule."""
        return next(getattr(place, name) for place in (self, self.state, self.state.schedule) if hasattr(place, name))

    @property
    def gap(self):
        """The gap between the last two starts."""
        return self.starts[-1] - self.starts[-2]

    @property
    def wait(self):
        """How long after the last start the timer fires."""
        return self.timer - self.starts[-1]

    @property
    def told(self):
        """What the events say of the next attempt."""
        return [event.retry_in for event in self.events if hasattr(event, "retry_in")]

    @property
    def lived(self):
        """What the events say of how long a connection lasted."""
        return [event.lived for event in self.events if hasattr(event, "lived")]


REACH = {
    m.ConnectionPhase.IDLE: "",
    m.ConnectionPhase.HOLDING: "want connect lose:0.1 want",
    m.ConnectionPhase.CONNECTING: "want",
    m.ConnectionPhase.READY: "want connect",
    m.ConnectionPhase.BACKOFF: "want fail",
    m.ConnectionPhase.RETRYING: "want fail wake",
    m.ConnectionPhase.CLOSED: "want close",
}


def reach(phase, **policy):
    """Return a driver whose machine has been brought into this phase."""
    driver = Driver(**policy).play(REACH[phase])
    assert driver.state.phase is phase
    return driver


@pytest.mark.parametrize("phase", list(m.ConnectionPhase))
@pytest.mark.parametrize("kind", list(INPUTS))
def test_every_pair_is_in_the_table_or_a_typed_error(phase, kind):
    """CB-1: each pair of phase and input is in the table, or raises an `IllegalTransition` that names both."""
    driver = reach(phase)
    if (phase, kind) in m.TRANSITIONS:
        driver.feed(INPUTS[kind])
        assert driver.state.phase in m.ConnectionPhase
    else:
        with pytest.raises(IllegalTransition, match=f"{kind.__name__} in phase {phase.name}"):
            driver.feed(INPUTS[kind])


def seed_document(rng, failures, *, initial=1.0, multiplier=1.6, cap=120.0, jitter=0.2, timeout=20.0):
    """Follow the pseudocode of gRPC's connection backoff line by line, for attempts with these durations."""
    now = 100.0
    starts, limits = [], []
    rng.random()  # the machine draws a number for each attempt; the protocol does not need the first
    current_backoff = initial
    current_deadline = now + initial
    for lasts in failures:
        starts.append(now)
        limit = max(current_deadline, now + timeout)
        limits.append(limit - now)
        now = min(now + lasts, limit)
        now = max(now, current_deadline)
        current_backoff = min(current_backoff * multiplier, cap)
        current_deadline = now + current_backoff + rng.uniform(-jitter * current_backoff, jitter * current_backoff)
    return starts, limits


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(),
    failures=st.lists(st.floats(0, 200) | st.just(0.0) | st.just(math.inf), min_size=1, max_size=40),
)
def test_the_seeds_pseudo_code_number_for_number(seed, failures):
    """CB-2 to CB-5: with the same random numbers, starts and limits are exactly those of gRPC's pseudocode."""
    expected_starts, expected_limits = seed_document(random.Random(seed), failures)
    driver = Driver(seed=seed, idle_timeout=math.inf)
    driver.want()
    for lasts in failures:
        if driver.now + lasts < driver.state.limit:
            driver.fail(lasts)
        else:
            driver.wake()
        while not driver.state.in_flight:
            driver.wake()

    assert driver.starts[: len(failures)] == pytest.approx(expected_starts, rel=1e-12)
    assert driver.limits[: len(failures)] == pytest.approx(expected_limits, rel=1e-9)


EAGER = {"reconnect": Reconnect.EAGER}
STABLE = {"stable_after": 5.0}
LOST_WITH_A_CALL = m.ConnectionLost(Loss("closed"), busy=True)
DECIDED = m.TimerFired(busy=True, decided=True)


def story(*steps, policy=None, **seen):
    """Return what happens to a machine that begins at 100 s, its policy, and what is then seen of it."""
    return steps, policy or {}, seen


STORIES = {
    "CB-2: the first gap has no jitter": story("want fail wake", starts=[100.0, 101.0]),
    "CB-3, CB-4: a silent peer is abandoned at the limit, and dialled again at once": story(
        "want wake", starts=[100.0, 120.0], abandoned=[120.0], failure=Failure(Stage.SETTINGS, NO_SETTINGS)
    ),
    "CB-3: a timer that fires too early ends nothing": story("want fire:19", abandoned=[], timer=120.0),
    "CB-3: an outcome that is about to arrive is waited for": story(
        "want", (25.0, DECIDED), abandoned=[], timer=125.25
    ),
    "CB-3: and counts": story("want", (25.0, DECIDED), "connect:0.1", shown=["CONNECTING", "CONNECTING", "READY"]),
    "CB-3: but only for a moment": story("want", (25.0, DECIDED), "wake", abandoned=[125.25]),
    "CB-4: an attempt that outlasts its gap is repeated at once": story(
        "want fail:15", told=[0.0], starts=[100.0, 115.0]
    ),
    "CB-6: a success resets the backoff": story(
        "want" + 6 * " fail wake" + " connect lose:500 want fail wake", gap=pytest.approx(1.0)
    ),
    "CH-3: only READY ends TRANSIENT_FAILURE (A62)": story(
        "want fail wake connect", shown=["CONNECTING", "TRANSIENT_FAILURE", "TRANSIENT_FAILURE", "READY"]
    ),
    # The loss of a connection.
    "CB-7: a lazy channel waits for the next call": story("want connect lose:5", starts=[100.0], told=[None]),
    "CB-7: and redials for it": story("want connect lose:5 want", starts=[100.0, 105.0]),
    "CB-7: an eager one redials at once": story("want connect lose:5", policy=EAGER, starts=[100.0, 105.0], told=[0.0]),
    "CB-7: but not too soon": story("want connect lose:0.25", policy=EAGER, timer=101.0, told=[0.75]),
    "CB-7: a lazy channel does so for a pending call": story(
        "want connect", (5.0, LOST_WITH_A_CALL), "want", told=[0.0], starts=[100.0, 105.0]
    ),
    "CB-7: and not too soon either": story(
        "want connect", (0.25, LOST_WITH_A_CALL), "want wake", told=[0.75], starts=[100.0, 101.0]
    ),
    "CB-7: after an outage, a short-lived connection waits for INITIAL_BACKOFF only": story(
        "want" + 9 * " fail wake" + " connect:0.01 lose:0.01 want", wait=pytest.approx(1.0)
    ),
    "CB-7: calls that ran as a young connection ended cost no second wait": story(
        "want connect", (0.3, m.ConnectionLost(Loss("closed"), used=100.3)), "want", wait=pytest.approx(1.0)
    ),
    "CB-7: an answer pays for the next attempt": story(
        "want connect end:0.1 want" + 3 * " connect end:0.01 want",
        starts=pytest.approx([100.0, 100.1, 100.11, 100.12, 100.13]),
        lives=[math.inf, *4 * [None]],
        told=4 * [None],
    ),
    "CB-7: an eager channel is told so too": story("want connect end:0.1", policy=EAGER, told=[0.0]),
    "CB-7: it pays for one attempt only": story(
        "want connect end:0.1 want connect lose:0.1 want", starts=[100.0, 100.1], timer=pytest.approx(101.1)
    ),
    "CB-7: a graceful end allows one attempt on credit": story(
        "want connect drain:0.1 want", starts=[100.0, 100.1], lives=[math.inf, None]
    ),
    "CB-7: which an answer must earn before the next one": story(
        "want connect drain:0.1 want connect drain:0.1 want",
        starts=[100.0, 100.1],
        timer=pytest.approx(101.1),
        lived=pytest.approx([0.1, 0.1]),
    ),
    "CB-7: on the old connection": story(
        "want connect drain:0.1 want connect drain:0.1 want answer:0.1",
        starts=pytest.approx([100.0, 100.1, 100.3]),
        lives=[math.inf, None, None],
    ),
    "CB-7: or on the new one": story(
        "want connect drain:0.1 want connect answer drain:0.1 want", starts=pytest.approx([100.0, 100.1, 100.2])
    ),
    "CB-7: also if that has ended": story(
        "want connect drain:0.1 want connect end:0.1 want connect drain:0.1 want",
        starts=pytest.approx([100.0, 100.1, 100.2, 100.3]),
    ),
    "CB-7: without an answer, credit is given once": story(
        "want connect drain:0.1 want" + 3 * " connect drain:0.1 want wake",
        starts=pytest.approx([100.0, 100.1, 101.1, 102.1, 103.1]),
    ),
    "CB-7, SH-5: an answer does not shorten the wait after a failure": story(
        "want fail:0.1 answer:0.1 wake", starts=[100.0, 101.0]
    ),
    "CB-7, CB-17: what an answer has paid for": story("want connect end:0.1 want connect", is_paid=True),
    "CB-17: which is spent once an attempt has failed": story(
        "want connect end:0.1 want connect end:0.1 want fail", is_paid=False
    ),
    "CB-7: an answer that comes late ends the wait": story(
        "want connect lose:0.1 want answer:0.1", gap=pytest.approx(0.2)
    ),
    "CB-7, CB-16: also the wait for a redial": story(
        "want connect lose:0.1 want redial answer:0.1", gap=pytest.approx(0.2)
    ),
    "CB-15: what follows a short-lived connection is told how short": story(
        "want connect lose:0.01 want wake connect lose:5 want", lives=pytest.approx([math.inf, 0.01, 5.0])
    ),
    "CB-15: unless it answered after its end": story("want connect lose:0.01 answer want", lives=[math.inf, None]),
    "CB-8: a young connection is a failure": story("want connect lose:0.25", policy=STABLE, told=[0.75]),
    "CB-8: its backoff may have passed": story("want connect lose:3", policy=STABLE, told=[0.0], starts=[100.0, 103.0]),
    "CB-8: an old one is none": story("want connect lose:9", policy=STABLE, told=[None]),
    "CB-8: one that served is none": story(
        "want connect", (2.0, m.ConnectionLost(Loss("closed", served=True))), policy=STABLE, told=[None]
    ),
    "CB-8: one that said goodbye is none": story(
        "want connect", (2.0, m.ConnectionLost(Loss("closed", graceful=True))), policy=STABLE, told=[None]
    ),
    "CB-16: the core's redial takes the place of the next attempt": story(
        "want connect lose:0.1 redial want", timer=pytest.approx(102.0)
    ),
    "CB-16: another one delays it no further": story(
        "want connect lose:0.1 redial want redial redial", timer=pytest.approx(102.0), starts=[100.0]
    ),
    "CB-16: nor while there is a connection": story(
        "want connect lose:0.1 want wake connect redial redial lose:0.1 want", timer=pytest.approx(103.0)
    ),
    "CB-16: the next series may be delayed again": story(
        "want connect lose:0.1 redial want wake connect lose:0.1 redial want", timer=pytest.approx(104.0)
    ),
    "CB-12: after redials in place of a late attempt, the next one waits": story(
        "want", (30.0, m.CoreRedialled(late=True)), "fail", timer=131.0, starts=[100.0]
    ),
    "CB-16: but not of one that may start already": story("want connect lose:3 redial want", starts=[100.0, 103.0]),
    # Resets.
    "CB-9: a reset wakes a sleeping channel": story("want" + 8 * " fail wake" + " fail reset:1", wait=20.0, attempt=1),
    "CB-9: and the next gap is INITIAL_BACKOFF": story(
        "want" + 8 * " fail wake" + " fail reset:1 fail wake", gap=pytest.approx(1.0)
    ),
    "CB-9: after the first, resets dial once per INITIAL_BACKOFF": story(
        "want fail:0.01 reset" + 4 * " fail:0.01 reset wake",
        starts=pytest.approx([100.0, 100.01, 101.01, 102.01, 103.01, 104.01]),
    ),
    "CB-9: a reset says when the next attempt starts": story(
        "want fail reset fail reset:0.25", told=[1.0, 0.0, 1.0, pytest.approx(0.75)]
    ),
    "CB-9: which none does while the channel is awake": story(
        "reset want reset connect reset", told=[None, None, None]
    ),
    "CB-9: after a success, a reset dials at once again": story(
        "want fail reset connect:0.1 lose:0.1 want reset", starts=pytest.approx([100.0, 100.0, 100.2])
    ),
    # The end of the channel, late timers, and channels without calls.
    "CB-10: closing says how long the connection lasted": story("want connect close:7.5", lived=[7.5]),
    "CB-10: if there was one": story("want fail close:7.5", lived=[None]),
    "CB-12: a backoff that ends late is followed by one attempt": story(
        "want fail fire:3600 fail", starts=[100.0, 3700.0], wait=pytest.approx(1.6, rel=0.2)
    ),
    "CB-12: or a wait": story(
        "want connect lose:0.1 want fire:3600 fail", gap=pytest.approx(3600.1), wait=pytest.approx(1.0)
    ),
    "CB-12: or an attempt": story("want fire:3600 fail", starts=[100.0, 3700.0], wait=pytest.approx(1.6, rel=0.2)),
    "CB-14: a silent peer is left alone if nobody asks": story(
        "want rest rest rest",
        policy={"idle_timeout": 50.0},
        starts=[100.0, 120.0, 140.0],
        phase=m.ConnectionPhase.IDLE,
        timer=None,
    ),
    "CB-14: an eager channel does not replace an unused connection": story(
        "want connect lose:61", policy={**EAGER, "idle_timeout": 60.0}, starts=[100.0]
    ),
    "CB-14: but one that was used": story(
        "want connect",
        (61.0, m.ConnectionLost(Loss("closed"), used=150.0)),
        policy={**EAGER, "idle_timeout": 60.0},
        starts=[100.0, 161.0],
    ),
    "CB-14: a pending call is use": story(
        "want connect", (100.0, LOST_WITH_A_CALL), policy={"idle_timeout": 10.0}, starts=[100.0, 200.0]
    ),
    # News.
    "LV-4: news during an attempt is kept": story("want fail wake news", later=True),
    "LV-4: and forgotten if the attempt succeeds": story("want fail wake news connect", later=False),
    "LV-4: or if the next one is due anyway": story("want news:2 fail:3", starts=[100.0, 105.0], later=False),
    "LV-4: which began after it": story("want news:2 fail:3 fail:0.1", wait=pytest.approx(1.6, rel=0.2), heard=False),
}


@pytest.mark.parametrize(("steps", "policy", "seen"), STORIES.values(), ids=STORIES)
def test_story(steps, policy, seen):
    """CB-2 to CB-16, CH-3, LV-4: these inputs have these effects; the name of each case gives its rule."""
    driver = Driver(**policy).play(*steps)

    assert {name: driver.see(name) for name in seen} == seen


@pytest.mark.parametrize(
    ("before", "after", "familiar"),
    [
        ("want connect answer close", 0.9, True),
        ("want connect answer close", 1.1, False),
        ("want connect close", 0.1, False),
        ("want close", 0.1, False),
        ("want connect answer lose:9 close", 0.1, False),
    ],
)
def test_what_follows_a_connection_that_was_closed_here(before, after, familiar):
    """CB-15, SH-8: that it has just answered is known to the next channel of the key, for one INITIAL_BACKOFF."""
    first = Driver().play(before)
    assert first.follow(after)[1].familiar is familiar
    assert (first.state.schedule.left(0).remembers_until(1.0) > first.now + after) is familiar


def test_a_familiar_peer_that_fails():
    """CB-15: a failed attempt, or a connection that the peer ends, makes the peer unfamiliar."""
    first = Driver().play("want connect answer close")
    second, start = first.follow(0.1)
    assert start.familiar
    assert second.play("fail:0.1").state.schedule.familiar == -math.inf
    third, _ = first.follow(0.1)
    assert third.play("connect lose:0.1").state.schedule.familiar == -math.inf


def test_first_gap_has_jitter_if_asked():
    """CB-2: `jitter_first` adds jitter to the first gap."""
    driver = Driver(jitter_first=True).play("want fail wake")

    assert driver.gap != 1.0
    assert 0.8 <= driver.gap <= 1.2


def test_one_cause_has_one_text():
    """CH-4: a reason contains neither the time limit nor a connection's duration; both are in the event."""
    driver = Driver()
    driver.want()
    for _ in range(30):  # until the gap, and so the limit, exceeds 20 s
        driver.wake()
    assert len(set(driver.limits)) > 1
    for lived in (0.0, 0.123, 45.6):
        driver.connect()
        driver.lose(lived)
        driver.want()
        driver.wake()

    for kind, count in ((events.AttemptFailed, 30), (events.Disconnected, 3)):
        told = [event for event in driver.events if isinstance(event, kind)]
        assert len(told) >= count
        assert len({event.failure for event in told}) == 1


def test_ten_thousandth_attempt_waits_the_maximum():
    """CB-13: over 10,000 attempts, gaps grow to MAX_BACKOFF with jitter, and never overflow."""
    driver = Driver(idle_timeout=math.inf).play("want" + 10_000 * " fail wake")

    gaps = [after - before for before, after in zip(driver.starts[20:], driver.starts[21:], strict=False)]
    assert min(gaps) >= 96.0 - 1e-6
    assert max(gaps) <= 144.0 + 1e-6
    assert max(gaps) > 120.0


@pytest.mark.parametrize("reconnect", list(Reconnect))
def test_a_short_lived_connection_is_not_replaced_before_its_deadline(reconnect):
    """CB-7: a peer that hangs up after SETTINGS is dialled once per INITIAL_BACKOFF, however many calls are made."""
    driver = Driver(reconnect=reconnect)
    for _ in range(10):
        driver.want()
        if driver.state.phase is m.ConnectionPhase.HOLDING:
            driver.wake()
        driver.connect(0.01)
        driver.lose(0.02)
        driver.want()

    assert driver.starts == pytest.approx([100.0 + n for n in range(len(driver.starts))])
    assert len(driver.starts) == 10


def test_stable_after_counts_a_useless_connection_as_a_failure():
    """CB-8: with `stable_after`, a short-lived connection is a failure: fail-fast calls fail and the backoff grows."""
    driver = Driver(stable_after=5.0).play("want" + 4 * " fail wake")
    deadline = driver.state.deadline
    driver.connect(0.01)
    effects = driver.lose(0.5)

    assert driver.state.phase.state is State.TRANSIENT_FAILURE
    assert m.FailCalls() in effects
    assert driver.timer == deadline
    assert driver.state.attempt == 5
    driver.wake()
    assert driver.state.attempt == 6


def test_reset_lets_an_attempt_in_flight_go_on():
    """CB-9: a reset does not change the limit of an attempt in flight; the next gap is INITIAL_BACKOFF."""
    driver = Driver(idle_timeout=math.inf).play("want" + 9 * " fail wake")
    started, limit = driver.now, driver.state.limit
    effects = driver.reset(0.5)
    assert not any(isinstance(effect, (m.StartAttempt, m.AbandonAttempt)) for effect in effects)
    assert driver.state.limit == limit
    driver.fail()
    assert driver.timer == pytest.approx(started + 1.0)


def test_a_reset_too_soon_takes_effect_later_and_is_not_dropped():
    """CB-9: a reset that comes too soon takes effect later, and resets that follow before then emit no event."""
    driver = Driver(backoff=BackoffPolicy(Exponential(1.0, 1000.0), 900.0, Proportional(0.2)))
    driver.play("want fail reset fail" + 4 * " reset:0.25")
    assert driver.kinds().count("BackoffReset") == 2
    assert driver.timer == pytest.approx(101.0)
    driver.wake()
    assert driver.state.attempt == 1
    driver.play("fail wake fail")
    assert driver.timer > 800
    driver.reset(0.5)
    assert driver.timer == pytest.approx(driver.now + 20.0), "INITIAL has passed since the last reset's dial"
    assert driver.starts[-1] == driver.now


@settings(max_examples=300, deadline=None)
@given(steps=st.lists(st.tuples(st.booleans(), st.floats(0, 3)), max_size=60))
def test_resets_are_spaced_and_none_is_lost(steps):
    """CB-9: dials caused by resets are at least INITIAL_BACKOFF apart, and no reset of a sleeping channel is lost."""
    driver = Driver(idle_timeout=math.inf)
    driver.want()
    dials, asked = [], []
    for reset, after in steps:
        before, starts, now = driver.state, len(driver.starts), min(driver.now + after, driver.timer)
        if now == driver.timer:
            driver.wake()
        elif reset or not before.in_flight:
            driver.feed(m.ResetRequested(), now)
            asked += [] if before.in_flight else [now]
        else:
            driver.feed(m.ConnectFailed(REFUSED, busy=True), now)
        if len(driver.starts) > starts and not before.in_flight and (before.schedule.reset or now in asked):
            dials.append(now)

    assert all(later - earlier >= 1.0 - 1e-9 for earlier, later in itertools.pairwise(dials))
    for moment in asked:
        assert driver.now < moment + 1.0 or any(moment <= start <= moment + 1.0 + 1e-9 for start in driver.starts)


def back_off(failures, **policy):
    """Return a driver whose channel is asleep after this many failed attempts."""
    return Driver(**policy).play("want" + (failures - 1) * " fail wake" + " fail")


def test_news_causes_one_attempt_soon():
    """LV-4: news moves the planned start of a sleeping channel to now + U(0, INITIAL), which the status shows."""
    driver = back_off(6)
    planned = driver.timer

    driver.news(2.0)

    assert driver.now <= driver.timer < driver.now + 1.0 < planned
    assert driver.state.next_start == driver.timer
    driver.wake()
    assert len(driver.starts) == 7


def test_news_never_resets_a_schedule():
    """LV-4: if the attempt that news caused fails, the backoff goes on as it had been planned, with its own numbers."""
    told, untold = back_off(6, seed=3), back_off(6, seed=3)
    untold.rng.random()  # news draws one number
    told.play("news:2 wake fail:0.1")
    for driver in (told, untold):
        for _ in range(5):
            driver.wake()
            driver.fail(0.1)

    assert told.starts[:6] + told.starts[7:] == untold.starts
    assert [event.attempt for event in told.events if type(event) is events.AttemptStarted][5:9] == [6, 6, 7, 8]


@pytest.mark.parametrize("lasts", [0.0, 0.35])
def test_false_news_ten_times_a_second(lasts):
    """LV-4: however frequent news is, even during attempts, it costs at most one attempt for each gap."""
    driver = back_off(1)
    end, news, plans = driver.now + 600.0, driver.now, set()
    while driver.now < end:
        plans.add(driver.state.schedule.deadline)
        news += 0.1
        if driver.timer <= news:
            driver.wake()
            for _ in range(3):
                driver.news()
            driver.fail(lasts)
        else:
            driver.feed(m.NewsArrived(), max(news, driver.now))
    driver_without = back_off(1)
    while driver_without.now < end:
        driver_without.wake()
        driver_without.fail(lasts)

    assert len(driver_without.starts) - 2 <= len(driver.starts) / 2 <= len(driver_without.starts) + 2
    gaps = [later - earlier for earlier, later in itertools.pairwise(driver.starts)]
    assert min(gaps) >= 0.8, "never before SH-5 allows it, apart from jitter"


@pytest.mark.parametrize("ahead", [0.05, 0.5])
def test_news_just_before_the_planned_start(ahead):
    """LV-4, SH-5: the planned attempt follows one that news caused no sooner than INITIAL_BACKOFF after its start."""
    driver = back_off(4, rng=type("Lowest", (), {"random": staticmethod(lambda: 0.0)})())
    planned = driver.timer
    driver.feed(m.NewsArrived(), planned - ahead)
    driver.wake()
    driver.fail(0.01)

    assert driver.starts[-1] == planned - ahead
    assert driver.timer == pytest.approx(driver.starts[-1] + 1.0)


def test_news_of_a_shared_schedule_reaches_all_who_sleep():
    """LV-4, SH-3: news to one manager of a key moves the start for the others, who are told."""
    driver = back_off(4)
    driver.state = driver.state._replace(schedule=driver.state.schedule.joined())

    assert m.TellOthers() in driver.news()
    assert m.TellOthers() not in driver.news(), "the second in a gap changes nothing"


@pytest.mark.parametrize("failures", [1, 6])
def test_news_during_an_attempt(failures):
    """LV-4: news during an attempt that began before it moves the start after its failure, once for the gap."""
    driver = back_off(failures - 1) if failures > 1 else Driver(jitter_first=False)
    driver.wake() if failures > 1 else driver.want()
    planned = driver.state.planned
    for _ in range(3):
        driver.news(0.1)
    driver.fail(0.4)

    if failures == 1:  # SH-5: no start is allowed before the planned one
        assert driver.timer == planned
        return
    ended = driver.now
    assert ended <= driver.timer <= ended + 1.0 < planned
    assert driver.events[-1].retry_in == driver.timer - ended
    driver.wake()
    driver.news(0.01)
    driver.fail(0.01)
    assert driver.timer == pytest.approx(max(planned, driver.starts[-1] + 1.0)), "one for the gap"
    assert driver.events[-1].attempt == failures


@pytest.mark.parametrize("given_up", [False, True])
def test_news_to_those_that_wait_for_an_attempt(given_up):
    """LV-4, SH-3: news to a manager that sleeps during the attempt of another counts when that ends, or is given up."""
    driver = back_off(6)
    schedule = driver.state.schedule.joined()
    driver.now = driver.timer
    schedule = schedule.begun(7, schedule.attempt + 1, driver.now, driver.now + 20.0, driver.now + 30.0)
    driver.state = driver.state._replace(schedule=schedule)
    driver.news(1.5)
    schedule = driver.state.schedule
    assert schedule.later
    assert driver.timer == schedule.lease
    driver.state = driver.state._replace(schedule=schedule.given_up(7)) if given_up else driver.state
    driver.feed(m.ScheduleChanged(busy=True), driver.now + 1.0)
    assert (driver.now <= driver.timer < driver.now + 1.0) is given_up
    assert driver.state.schedule.heard is given_up


@pytest.mark.parametrize("phase", list(m.ConnectionPhase))
def test_reset_is_safe_in_every_state_any_number_of_times(phase):
    """CB-9: a reset in any phase neither raises an error nor starts a second attempt."""
    driver = reach(phase)
    before = driver.state
    for _ in range(5):
        driver.reset()

    if phase is m.ConnectionPhase.CLOSED:
        assert driver.state == before
    if phase in (m.ConnectionPhase.HOLDING, m.ConnectionPhase.BACKOFF):
        assert driver.state.in_flight
    assert len(driver.starts) <= 3


@pytest.mark.parametrize("phase", list(m.ConnectionPhase))
def test_close_is_final(phase):
    """CB-10: closing cancels the timer and the attempt, and no attempt starts afterwards."""
    driver = reach(phase)
    was_in_flight = driver.state.in_flight
    effects = driver.close()
    driver.close()

    assert driver.timer is None or phase is m.ConnectionPhase.CLOSED
    assert (m.AbandonAttempt() in effects) == was_in_flight
    assert driver.state.phase.state is State.SHUTDOWN
    assert driver.kinds().count("Closed") == 1


def test_every_event_says_which_channel():
    """CH-11: a channel's events carry its key, which differs from that of another channel to the same target."""
    one, other = (reach(m.ConnectionPhase.READY, stable_after=5.0) for _ in range(2))
    for driver in (one, other):
        driver.play("lose:0.1 redial wake fail reset close")

    of_connections = [kind for kind in events.ConnectionEvent.__subclasses__() if kind.__module__ == events.__name__]
    assert set(one.kinds()) == {kind.__name__ for kind in of_connections}
    assert {event.channel for event in one.events} == {one.machine.channel}
    assert {event.channel for event in other.events} == {other.machine.channel}
    assert one.machine.channel is not other.machine.channel


@pytest.mark.parametrize("phase", [m.ConnectionPhase.BACKOFF, m.ConnectionPhase.HOLDING])
def test_idle_channels_stop_dialling(phase):
    """CB-14: a channel without calls becomes IDLE, and the next call starts a new series at once."""
    driver = reach(phase, idle_timeout=1.5, backoff=replace(CONNECT.backoff, strategy=Exponential(3.0, 1.6)))
    driver.wake(busy=False)
    assert driver.state.phase is m.ConnectionPhase.IDLE
    assert driver.timer is None or driver.timer <= driver.now
    driver.feed(m.ConnectionWanted(), driver.now + 60)
    assert driver.state.phase is m.ConnectionPhase.CONNECTING
    assert driver.state.attempt == 1


@pytest.mark.parametrize("phase", [phase for phase in m.ConnectionPhase if phase is not m.ConnectionPhase.CLOSED])
def test_a_request_right_after_another_may_be_left_out(phase):
    """CB-14: outside IDLE, a request within 10 ms of another may be skipped, because it only renews a timestamp."""
    driver = reach(phase)
    if phase is m.ConnectionPhase.IDLE:
        assert driver.state.heeds_want(driver.now)
        return
    assert driver.want() == []
    before = driver.state
    assert not before.heeds_want(driver.now + 0.009)
    assert before.heeds_want(driver.now + 0.01)
    driver.feed(m.ConnectionWanted(), driver.now + 0.009)
    assert driver.state == before._replace(asked=driver.now, schedule=before.schedule._replace(asked=driver.now))


def test_a_waiting_call_keeps_the_channel_dialling():
    """CB-14: a pending call counts as use, so the channel continues to dial."""
    driver = Driver(idle_timeout=0.5)
    driver.want()
    for _ in range(20):
        driver.fail(busy=True)
        while not driver.state.in_flight:
            driver.wake(busy=True)

    assert len(driver.starts) == 21


def test_events_tell_the_whole_story():
    """CH-11: the start, failure or success of an attempt, a lost connection, and a reset emit one event each."""
    driver = Driver()
    driver.play("want fail:0.25 wake connect:0.5 lose:2 reset")

    assert driver.kinds() == [
        "AttemptStarted",
        "AttemptFailed",
        "AttemptStarted",
        "Connected",
        "Disconnected",
        "BackoffReset",
    ]
    _, failed, started, connected, disconnected, _ = driver.events
    assert (failed.attempt, failed.took, failed.retry_in) == (1, 0.25, 0.75)
    assert (started.attempt, started.at, started.limit) == (2, 101.0, 20.0)
    assert (connected.attempt, connected.took, connected.connections) == (2, 0.5, 1)
    assert disconnected.lived == 2.0


class Lifetimes(RuleBasedStateMachine):
    """Gives the machine random inputs, each only when it can occur, and checks the invariants after every step."""

    def __init__(self):
        super().__init__()
        backoff = BackoffPolicy(Exponential(1.0, 1.6), 10.0, Proportional(0.2))
        self.driver = Driver(seed=7, backoff=backoff, min_connect_timeout=3.0, stable_after=2.0, idle_timeout=40.0)
        self.in_flight = 0
        self.resets = False

    def feed(self, given, after=0.0):
        driver = self.driver
        deadline, starts, phase = driver.state.deadline, len(driver.starts), driver.state.phase
        for effect in driver.feed(given, driver.now + after):
            if isinstance(effect, m.AbandonAttempt):
                self.in_flight -= 1
            if isinstance(effect, m.StartAttempt):
                self.in_flight += 1
                assert self.in_flight == 1
        if len(driver.starts) > starts and not isinstance(given, m.ResetRequested) and not self.resets:
            assert driver.now >= deadline - 1e-9, f"started before the deadline, from {phase}"

    @rule(after=st.floats(0, 50))
    @precondition(lambda self: self.driver.state.phase is not m.ConnectionPhase.CLOSED)
    def want(self, after):
        if self.driver.timer is None:
            self.driver.now += after
        self.feed(m.ConnectionWanted())

    @rule(late=st.floats(0, 100), busy=st.booleans())
    @precondition(lambda self: self.driver.timer is not None)
    def fire(self, late, busy):
        self.driver.now = max(self.driver.now, self.driver.timer)
        self.driver.timer = None
        self.feed(m.TimerFired(busy=busy), late)

    @rule(busy=st.booleans())
    @precondition(lambda self: self.in_flight)
    def fail(self, busy):
        self.in_flight -= 1
        self.feed(m.ConnectFailed(REFUSED, busy=busy))

    @rule()
    @precondition(lambda self: self.in_flight)
    def succeed(self):
        self.in_flight -= 1
        self.feed(m.SettingsReceived())

    @rule(after=st.floats(0, 10), graceful=st.booleans(), served=st.booleans())
    @precondition(lambda self: self.driver.state.phase is m.ConnectionPhase.READY)
    def lose(self, after, graceful, served):
        self.feed(m.ConnectionLost(Loss("x", graceful=graceful, served=served)), after)

    @rule()
    @precondition(lambda self: self.driver.state.connections)
    def redial(self):
        self.feed(m.CoreRedialled())

    @rule()
    def reset(self):
        self.feed(m.ResetRequested())

    @rule()
    @precondition(lambda self: len(self.driver.events) > 30)
    def close(self):
        self.feed(m.CloseRequested())

    @invariant()
    def attempt_and_phase_agree(self):
        assert self.in_flight == int(self.driver.state.in_flight)

    @invariant()
    def a_timer_runs_exactly_while_something_is_awaited(self):
        waits = self.driver.state.in_flight or self.driver.state.phase in (
            m.ConnectionPhase.HOLDING,
            m.ConnectionPhase.BACKOFF,
        )
        if self.driver.timer is None:
            assert not waits
        if waits:
            assert self.driver.timer is not None

    @invariant()
    def ready_since_only_when_ready(self):
        assert (self.driver.state.ready_since is not None) == (self.driver.state.phase is m.ConnectionPhase.READY)


TestLifetimes = Lifetimes.TestCase
TestLifetimes.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestLifetimes.__doc__ = (
    "CB-1, CB-4, CB-10: one attempt and one timer at most, no start before the deadline, closed is final."
)
