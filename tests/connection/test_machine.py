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

from grpc_backoff.connection import events
from grpc_backoff.connection import machine as m
from grpc_backoff.connection.events import Failure, Stage, State
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
    m.ConnectionLost: m.ConnectionLost("closed"),
    m.CoreRedialled: m.CoreRedialled(),
    m.ResetRequested: m.ResetRequested(),
    m.NewsArrived: m.NewsArrived(),
    m.CloseRequested: m.CloseRequested(),
}


class Driver:
    """Gives inputs to a machine and records its effects."""

    def __init__(self, *, seed=0, rng=None, **policy):
        self.machine = m.Machine("target", replace(CONNECT, **policy))
        self.state = m.MachineState()
        self.rng = rng or random.Random(seed)
        self.now = 100.0
        self.starts = []
        self.limits = []
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
                case m.ArmTimer():
                    self.timer = effect.at
                case m.CancelTimer():
                    self.timer = None
                case m.Emit():
                    self.events.append(effect.event)
        return effects

    def wake(self, *, busy=True):
        assert self.timer is not None
        return self.feed(m.TimerFired(busy=busy), max(self.now, self.timer))

    def fail(self, after=0.0, *, busy=True):
        return self.feed(m.ConnectFailed(REFUSED, busy=busy), self.now + after)

    def connect(self, after=0.0):
        return self.feed(m.SettingsReceived(), self.now + after)

    def lose(self, after, **how):
        return self.feed(m.ConnectionLost("closed", **how), self.now + after)

    def want(self):
        return self.feed(m.ConnectionWanted())

    def kinds(self):
        return [type(event).__name__ for event in self.events]


def reach(phase, **policy):
    """Return a driver whose machine has been brought into this phase."""
    driver = Driver(**policy)
    if phase is m.Phase.IDLE:
        return driver
    driver.want()
    if phase is m.Phase.HOLDING:
        driver.connect()
        driver.lose(0.1)
        driver.want()
    elif phase is m.Phase.READY:
        driver.connect()
    elif phase in (m.Phase.BACKOFF, m.Phase.RETRYING):
        driver.fail()
        if phase is m.Phase.RETRYING:
            driver.wake()
    elif phase is m.Phase.CLOSED:
        driver.feed(m.CloseRequested())
    assert driver.state.phase is phase
    return driver


@pytest.mark.parametrize("phase", list(m.Phase))
@pytest.mark.parametrize("kind", list(INPUTS))
def test_every_pair_is_in_the_table_or_a_typed_error(phase, kind):
    """CB-1: each pair of phase and input is in the table, or raises an `IllegalTransition` that names both."""
    driver = reach(phase)
    if (phase, kind) in m.transitions():
        driver.feed(INPUTS[kind])
        assert driver.state.phase in m.Phase
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


def test_first_gap_has_no_jitter_unless_asked():
    """CB-2: the first gap is exactly INITIAL_BACKOFF, unless `jitter_first` adds jitter to it."""
    plain, spread = Driver(), Driver(jitter_first=True)
    for driver in (plain, spread):
        driver.want()
        driver.fail()
        driver.wake()

    assert plain.starts == [100.0, 101.0]
    assert spread.starts[1] != 101.0
    assert 100.8 <= spread.starts[1] <= 101.2


def test_at_the_limit_the_attempt_is_abandoned_and_the_next_follows_without_pause():
    """CB-3, CB-4: a silent peer is abandoned at the limit, and dialled again at once, because its backoff is over."""
    driver = Driver()
    driver.want()
    effects = driver.wake()

    assert m.AbandonAttempt() in effects
    assert driver.starts == [100.0, 120.0]
    failed = next(event for event in driver.events if isinstance(event, events.AttemptFailed))
    assert failed.failure.stage is Stage.SETTINGS
    assert failed.failure.reason == "no SETTINGS frame within the attempt's time limit"


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


def test_an_early_timer_is_armed_again():
    """CB-3: a timer that fires too early does not end the attempt."""
    driver = Driver()
    driver.want()
    driver.feed(m.TimerFired(), 119.0)

    assert driver.state.phase is m.Phase.CONNECTING
    assert driver.timer == 120.0


def test_ten_thousandth_attempt_waits_the_maximum():
    """CB-13: over 10,000 attempts, gaps grow to MAX_BACKOFF with jitter, and never overflow."""
    driver = Driver(idle_timeout=math.inf)
    driver.want()
    for _ in range(10_000):
        driver.fail()
        driver.wake()

    gaps = [after - before for before, after in zip(driver.starts[20:], driver.starts[21:], strict=False)]
    assert min(gaps) >= 96.0 - 1e-6
    assert max(gaps) <= 144.0 + 1e-6
    assert max(gaps) > 120.0


def test_settings_reset_the_backoff():
    """CB-6: after a success, the next series starts with INITIAL_BACKOFF."""
    driver = Driver()
    driver.want()
    for _ in range(6):
        driver.fail()
        driver.wake()
    driver.connect()
    assert driver.state.state is State.READY
    driver.lose(500.0)
    driver.want()
    driver.fail()
    driver.wake()

    assert driver.starts[-1] - driver.starts[-2] == pytest.approx(1.0)


def test_lazy_waits_for_the_next_rpc_and_eager_does_not():
    """CB-7: a lazy channel redials for the next call, as gRPC requires, and an eager channel redials at once."""
    lazy, eager = Driver(), Driver(reconnect=Reconnect.EAGER)
    for driver in (lazy, eager):
        driver.want()
        driver.connect()
        driver.lose(5.0)

    assert lazy.state.phase is m.Phase.IDLE
    assert eager.state.phase is m.Phase.CONNECTING
    lazy.want()
    assert lazy.starts == eager.starts == [100.0, 105.0]


@pytest.mark.parametrize("reconnect", list(Reconnect))
def test_a_short_lived_connection_is_not_replaced_before_its_deadline(reconnect):
    """CB-7: a peer that hangs up after SETTINGS is dialled once per INITIAL_BACKOFF, however many calls are made."""
    driver = Driver(reconnect=reconnect)
    for _ in range(10):
        driver.want()
        if driver.state.phase is m.Phase.HOLDING:
            driver.wake()
        driver.connect(0.01)
        driver.lose(0.02)
        driver.want()

    assert driver.starts == pytest.approx([100.0 + n for n in range(len(driver.starts))])
    assert len(driver.starts) == 10


def test_after_an_outage_a_short_lived_connection_waits_one_initial_only():
    """CB-7: after an outage, the attempt that follows a short-lived connection waits only for INITIAL_BACKOFF."""
    driver = Driver()
    driver.want()
    for _ in range(9):
        driver.fail()
        driver.wake()
    start = driver.starts[-1]
    driver.connect(0.01)
    driver.lose(0.01)
    driver.want()

    assert driver.timer == pytest.approx(start + 1.0)


def test_an_unasked_dial_takes_the_place_of_the_next_one():
    """CB-16: if the core redials while the next attempt is held back, that attempt is postponed by INITIAL_BACKOFF."""
    driver = Driver()
    driver.want()
    driver.connect()
    driver.lose(0.1)
    driver.feed(m.CoreRedialled())
    driver.want()
    assert driver.timer == pytest.approx(102.0)
    driver.feed(m.CoreRedialled())
    assert driver.timer == pytest.approx(103.0)
    assert driver.kinds() == ["AttemptStarted", "Connected", "Disconnected", "CoreRedial", "CoreRedial"]

    later = Driver()
    later.want()
    later.connect()
    later.lose(3.0)
    later.feed(m.CoreRedialled())
    later.want()
    assert later.starts == [100.0, 103.0]


def test_calls_that_ran_as_a_connection_ended_cost_no_second_wait():
    """CB-7: after a GOAWAY on a young connection, a call waits until INITIAL_BACKOFF after that connection's start."""
    driver = Driver()
    driver.want()
    driver.connect()
    driver.lose(0.3, graceful=True, used=driver.now + 0.3)
    driver.want()

    assert driver.timer == pytest.approx(101.0)


def test_stable_after_counts_a_useless_connection_as_a_failure():
    """CB-8: with `stable_after`, a short-lived connection is a failure: fail-fast calls fail and the backoff grows."""
    driver = Driver(stable_after=5.0)
    driver.want()
    for _ in range(4):
        driver.fail()
        driver.wake()
    deadline = driver.state.deadline
    driver.connect(0.01)
    effects = driver.lose(0.5)

    assert driver.state.state is State.TRANSIENT_FAILURE
    assert m.FailCalls() in effects
    assert driver.timer == deadline
    assert driver.state.attempt == 5
    driver.wake()
    assert driver.state.attempt == 6


@pytest.mark.parametrize("how", [{"served": True}, {"graceful": True}])
def test_stable_after_spares_connections_that_served_or_said_goodbye(how):
    """CB-8: a short-lived connection does not count as a failure if a call completed on it or GOAWAY(NO_ERROR) came."""
    driver = Driver(stable_after=5.0)
    driver.want()
    driver.connect()
    driver.lose(2.0, **how)

    assert driver.state.phase is m.Phase.IDLE


def test_reset_wakes_a_sleeping_channel():
    """CB-9: a sleeping channel dials at once after a reset, and the next gap is INITIAL_BACKOFF."""
    driver = Driver()
    driver.want()
    for _ in range(8):
        driver.fail()
        driver.wake()
    driver.fail()
    driver.feed(m.ResetRequested(), driver.now + 1)
    assert driver.state.in_flight
    assert driver.state.attempt == 1
    driver.fail()
    driver.wake()
    assert driver.starts[-1] - driver.starts[-2] == pytest.approx(1.0)


def test_reset_lets_an_attempt_in_flight_go_on():
    """CB-9: a reset does not change the limit of an attempt in flight; the next gap is INITIAL_BACKOFF."""
    driver = Driver(idle_timeout=math.inf)
    driver.want()
    for _ in range(9):
        driver.fail()
        driver.wake()
    started, limit = driver.now, driver.state.limit
    effects = driver.feed(m.ResetRequested(), driver.now + 0.5)
    assert not any(isinstance(effect, (m.StartAttempt, m.AbandonAttempt)) for effect in effects)
    assert driver.state.limit == limit
    driver.fail()
    assert driver.timer == pytest.approx(started + 1.0)


def test_a_reset_after_every_failure_dials_once_per_initial():
    """CB-9: if a reset follows every failure, the first reset dials at once, and the rest once per INITIAL_BACKOFF."""
    driver = Driver()
    driver.want()
    for _ in range(5):
        driver.fail(0.01)
        driver.feed(m.ResetRequested())
        if not driver.state.in_flight:
            driver.wake()

    assert driver.starts == pytest.approx([100.0, 100.01, 101.01, 102.01, 103.01, 104.01])


def test_a_reset_too_soon_takes_effect_later_and_is_not_dropped():
    """CB-9: a reset that comes too soon takes effect later, and resets that follow before then emit no event."""
    driver = Driver(backoff=BackoffPolicy(Exponential(1.0, 1000.0), 900.0, Proportional(0.2)))
    driver.want()
    driver.fail()
    driver.feed(m.ResetRequested())
    driver.fail()
    driver.feed(m.ResetRequested(), driver.now + 0.25)
    for _ in range(3):
        driver.feed(m.ResetRequested(), driver.now + 0.25)
    assert driver.kinds().count("BackoffReset") == 2
    assert driver.timer == pytest.approx(101.0)
    driver.wake()
    assert driver.state.attempt == 1
    driver.fail()
    driver.wake()
    driver.fail()
    assert driver.timer > 800
    driver.feed(m.ResetRequested(), driver.now + 0.5)
    assert driver.timer == pytest.approx(driver.now + 20.0), "INITIAL has passed since the last reset's dial"
    assert driver.starts[-1] == driver.now


def test_a_reset_says_when_the_next_attempt_starts():
    """CB-9: a reset's event says when the next attempt starts, which is later if another reset has just dialled."""
    driver = Driver()
    driver.want()
    driver.fail()
    driver.feed(m.ResetRequested())
    driver.fail()
    driver.feed(m.ResetRequested(), driver.now + 0.25)
    resets = [event for event in driver.events if isinstance(event, events.BackoffReset)]

    assert [reset.retry_in for reset in resets] == [0.0, pytest.approx(0.75)]


def test_a_reset_of_a_channel_that_is_awake_plans_nothing():
    """CB-9: a reset schedules no attempt while the channel is IDLE or READY, or has an attempt in flight."""
    driver = Driver()
    driver.feed(m.ResetRequested())
    driver.want()
    driver.feed(m.ResetRequested())
    driver.feed(m.SettingsReceived())
    driver.feed(m.ResetRequested())
    resets = [event for event in driver.events if isinstance(event, events.BackoffReset)]

    assert [reset.retry_in for reset in resets] == [None, None, None]


def test_a_success_frees_the_next_reset():
    """CB-9: after a success, the next reset dials at once again."""
    driver = Driver()
    driver.want()
    driver.fail()
    driver.feed(m.ResetRequested())
    driver.connect(0.1)
    driver.lose(0.1)
    driver.want()
    driver.feed(m.ResetRequested())

    assert driver.state.in_flight
    assert driver.starts == pytest.approx([100.0, 100.0, 100.2])


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
        if len(driver.starts) > starts and not before.in_flight and (before.key.reset or now in asked):
            dials.append(now)

    assert all(later - earlier >= 1.0 - 1e-9 for earlier, later in itertools.pairwise(dials))
    for moment in asked:
        assert driver.now < moment + 1.0 or any(moment <= start <= moment + 1.0 + 1e-9 for start in driver.starts)


def test_an_outcome_on_its_way_is_waited_for():
    """CB-3: an attempt whose outcome is about to arrive at the limit is given 250 ms more before it is abandoned."""
    driver = Driver()
    driver.want()
    effects = driver.feed(m.TimerFired(busy=True, decided=True), 125.0)
    assert effects == [m.ArmTimer(125.25)]
    driver.connect(0.1)
    assert driver.state.state is State.READY
    assert driver.kinds() == ["AttemptStarted", "Connected"]

    other = Driver()
    other.want()
    other.feed(m.TimerFired(busy=True, decided=True), 125.0)
    assert m.AbandonAttempt() in other.wake()


def back_off(failures, **policy):
    """Return a driver whose channel is asleep after this many failed attempts."""
    driver = Driver(jitter_first=False, **policy)
    driver.want()
    for _ in range(failures - 1):
        driver.fail()
        driver.wake()
    driver.fail()
    return driver


def test_news_causes_one_attempt_soon():
    """LV-4: news moves the planned start of a sleeping channel to now + U(0, INITIAL), which the status shows."""
    driver = back_off(6)
    planned = driver.timer

    driver.now += 2.0
    driver.feed(m.NewsArrived())

    assert driver.now <= driver.timer < driver.now + 1.0 < planned
    assert driver.state.next_start == driver.timer
    driver.wake()
    assert len(driver.starts) == 7


def test_news_never_resets_a_schedule():
    """LV-4: if the attempt that news caused fails, the backoff goes on as it had been planned, with its own numbers."""
    told, untold = back_off(6, seed=3), back_off(6, seed=3)
    told.now += 2.0
    untold.rng.random()  # news draws one number
    told.feed(m.NewsArrived())
    told.wake()
    told.fail(0.1)
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
        plans.add(driver.state.key.deadline)
        news += 0.1
        if driver.timer <= news:
            driver.wake()
            for _ in range(3):
                driver.feed(m.NewsArrived())
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
    driver.state = driver.state._replace(key=driver.state.key.joined())

    assert m.TellOthers() in driver.feed(m.NewsArrived())
    assert m.TellOthers() not in driver.feed(m.NewsArrived()), "the second in a gap changes nothing"


@pytest.mark.parametrize("failures", [1, 6])
def test_news_during_an_attempt(failures):
    """LV-4: news during an attempt that began before it moves the start after its failure, once for the gap."""
    driver = back_off(failures - 1) if failures > 1 else Driver(jitter_first=False)
    driver.wake() if failures > 1 else driver.want()
    planned = driver.state.planned
    for _ in range(3):
        driver.feed(m.NewsArrived(), driver.now + 0.1)
    driver.fail(0.4)

    if failures == 1:  # SH-5: no start is allowed before the planned one
        assert driver.timer == planned
        return
    ended = driver.now
    assert ended <= driver.timer <= ended + 1.0 < planned
    assert driver.events[-1].retry_in == driver.timer - ended
    driver.wake()
    driver.feed(m.NewsArrived(), driver.now + 0.01)
    driver.fail(0.01)
    assert driver.timer == pytest.approx(max(planned, driver.starts[-1] + 1.0)), "one for the gap"
    assert driver.events[-1].attempt == failures


def test_news_during_a_first_attempt_that_hangs():
    """LV-4: news during the first attempt of a series counts as well, unless the next start is due anyway."""
    driver = Driver(jitter_first=False)
    driver.want()
    driver.feed(m.NewsArrived(), driver.now + 2.0)
    driver.fail(3.0)
    assert len(driver.starts) == 2, "the planned start has passed"
    assert not driver.state.key.later
    planned = driver.state.planned
    driver.fail(0.1)
    assert driver.timer == planned, "the second attempt began after the news"


def test_news_during_an_attempt_that_succeeds():
    """LV-4: news during an attempt that succeeds is forgotten."""
    driver = reach(m.Phase.RETRYING)
    driver.feed(m.NewsArrived())
    assert driver.state.key.later
    driver.connect()
    assert not driver.state.key.later


@pytest.mark.parametrize("given_up", [False, True])
def test_news_to_those_that_wait_for_an_attempt(given_up):
    """LV-4, SH-3: news to a manager that sleeps during the attempt of another counts when that ends, or is given up."""
    driver = back_off(6)
    key = driver.state.key.joined()
    driver.now = driver.timer
    key = key.begun(7, key.attempt + 1, driver.now, driver.now + 20.0, driver.now + 30.0)
    driver.state = driver.state._replace(key=key)
    driver.feed(m.NewsArrived(), driver.now + 1.5)
    key = driver.state.key
    assert key.later
    assert driver.timer == key.lease
    driver.state = driver.state._replace(key=key.given_up(7)) if given_up else driver.state
    driver.feed(m.ScheduleChanged(busy=True), driver.now + 1.0)
    assert (driver.now <= driver.timer < driver.now + 1.0) is given_up
    assert driver.state.key.heard is given_up


@pytest.mark.parametrize("phase", list(m.Phase))
def test_reset_is_safe_in_every_state_any_number_of_times(phase):
    """CB-9: a reset in any phase neither raises an error nor starts a second attempt."""
    driver = reach(phase)
    before = driver.state
    for _ in range(5):
        driver.feed(m.ResetRequested())

    if phase is m.Phase.CLOSED:
        assert driver.state == before
    if phase in (m.Phase.HOLDING, m.Phase.BACKOFF):
        assert driver.state.in_flight
    assert len(driver.starts) <= 3


@pytest.mark.parametrize("phase", list(m.Phase))
def test_close_is_final(phase):
    """CB-10: closing cancels the timer and the attempt, and no attempt starts afterwards."""
    driver = reach(phase)
    was_in_flight = driver.state.in_flight
    effects = driver.feed(m.CloseRequested())
    driver.feed(m.CloseRequested())

    assert driver.timer is None or phase is m.Phase.CLOSED
    assert (m.AbandonAttempt() in effects) == was_in_flight
    assert driver.state.state is State.SHUTDOWN
    assert driver.kinds().count("Closed") == 1


def test_closing_says_how_long_the_connection_had_lasted():
    """CB-10: the event `Closed` says how long the connection had lasted, or None if there was none."""
    ready, never = reach(m.Phase.READY), reach(m.Phase.BACKOFF)
    ready.feed(m.CloseRequested(), ready.now + 7.5)
    never.feed(m.CloseRequested(), never.now + 7.5)

    assert [driver.events[-1].lived for driver in (ready, never)] == [7.5, None]


def test_every_event_says_which_channel():
    """CH-11: a channel's events carry its key, which differs from that of another channel to the same target."""
    one, other = (reach(m.Phase.READY, stable_after=5.0) for _ in range(2))
    for driver in (one, other):
        driver.lose(0.1)
        driver.feed(m.CoreRedialled())
        driver.wake()
        driver.fail()
        driver.feed(m.ResetRequested())
        driver.feed(m.CloseRequested())

    of_connections = [kind for kind in events.ConnectionEvent.__subclasses__() if kind.__module__ == events.__name__]
    assert set(one.kinds()) == {kind.__name__ for kind in of_connections}
    assert {event.channel for event in one.events} == {one.machine.channel}
    assert {event.channel for event in other.events} == {other.machine.channel}
    assert one.machine.channel is not other.machine.channel


@pytest.mark.parametrize(
    ("policy", "lived", "retry_in"),
    [
        ({}, 0.25, None),
        ({"reconnect": Reconnect.EAGER}, 0.25, 0.75),
        ({"reconnect": Reconnect.EAGER}, 9.0, 0.0),
        ({"stable_after": 5.0}, 0.25, 0.75),
        ({"stable_after": 5.0}, 3.0, 0.0),
        ({"stable_after": 5.0}, 9.0, None),
    ],
)
def test_a_loss_says_when_the_next_attempt_is(policy, lived, retry_in):
    """CH-11: the event for a lost connection has the wait before the next attempt, or None if none is scheduled."""
    driver = reach(m.Phase.READY, **policy)
    driver.lose(lived)

    lost = next(event for event in driver.events if isinstance(event, events.Disconnected))
    assert lost.retry_in == retry_in
    assert (driver.state.next_start or driver.now) - driver.now == (retry_in or 0.0)


@pytest.mark.parametrize("phase", [m.Phase.BACKOFF, m.Phase.HOLDING, m.Phase.CONNECTING])
def test_a_late_wake_up_leads_to_one_attempt(phase):
    """CB-12: waking up an hour late leads to a single attempt, and the next gap is measured from its start."""
    driver = reach(phase, idle_timeout=math.inf)
    before = len(driver.starts)
    driver.feed(m.TimerFired(busy=True), driver.now + 3600)

    assert len(driver.starts) == before + 1
    assert driver.state.deadline > driver.now


@pytest.mark.parametrize("phase", [m.Phase.BACKOFF, m.Phase.HOLDING])
def test_idle_channels_stop_dialling(phase):
    """CB-14: a channel without calls becomes IDLE, and the next call starts a new series at once."""
    driver = reach(phase, idle_timeout=1.5, backoff=replace(CONNECT.backoff, strategy=Exponential(3.0, 1.6)))
    driver.wake(busy=False)
    assert driver.state.phase is m.Phase.IDLE
    assert driver.timer is None or driver.timer <= driver.now
    driver.feed(m.ConnectionWanted(), driver.now + 60)
    assert driver.state.phase is m.Phase.CONNECTING
    assert driver.state.attempt == 1


@pytest.mark.parametrize("phase", [phase for phase in m.Phase if phase is not m.Phase.CLOSED])
def test_a_request_right_after_another_may_be_left_out(phase):
    """CB-14: outside IDLE, a request within 10 ms of another may be skipped, because it only renews a timestamp."""
    driver = reach(phase)
    if phase is m.Phase.IDLE:
        assert driver.state.heeds_want(driver.now)
        return
    assert driver.want() == []
    before = driver.state
    assert not before.heeds_want(driver.now + 0.009)
    assert before.heeds_want(driver.now + 0.01)
    driver.feed(m.ConnectionWanted(), driver.now + 0.009)
    assert driver.state == before._replace(asked=driver.now, key=before.key._replace(asked=driver.now))


def test_a_hanging_peer_is_left_alone_when_nobody_asks():
    """CB-14: a channel without calls stops dialling, even if its attempts follow each other without a pause."""
    driver = Driver(idle_timeout=50.0)
    driver.want()
    while driver.state.phase is not m.Phase.IDLE:
        driver.wake(busy=False)

    assert len(driver.starts) == 3
    assert driver.timer is None


def test_a_waiting_call_keeps_the_channel_dialling():
    """CB-14: a pending call counts as use, so the channel continues to dial."""
    driver = Driver(idle_timeout=0.5)
    driver.want()
    for _ in range(20):
        driver.fail(busy=True)
        while not driver.state.in_flight:
            driver.wake(busy=True)

    assert len(driver.starts) == 21


def test_eager_leaves_an_idle_channel_alone():
    """CB-14: an eager channel does not replace a connection that was unused for the idle timeout."""
    driver = Driver(reconnect=Reconnect.EAGER, idle_timeout=60.0)
    driver.want()
    driver.connect()
    driver.lose(61.0)
    assert driver.state.phase is m.Phase.IDLE

    used = Driver(reconnect=Reconnect.EAGER, idle_timeout=60.0)
    used.want()
    used.connect()
    used.lose(61.0, used=used.now + 50.0)
    assert used.state.phase is m.Phase.CONNECTING


def test_transient_failure_is_sticky():
    """CH-3: after a failed attempt the channel stays in TRANSIENT_FAILURE until READY, even while it dials (A62)."""
    driver = Driver()
    driver.want()
    assert driver.state.state is State.CONNECTING
    driver.fail()
    assert driver.state.state is State.TRANSIENT_FAILURE
    driver.wake()
    assert driver.state.in_flight
    assert driver.state.state is State.TRANSIENT_FAILURE
    driver.connect()
    assert driver.state.state is State.READY


def test_events_tell_the_whole_story():
    """CH-11: the start, failure or success of an attempt, a lost connection, and a reset emit one event each."""
    driver = Driver()
    driver.want()
    driver.fail(0.25)
    driver.wake()
    driver.connect(0.5)
    driver.lose(2.0)
    driver.feed(m.ResetRequested())

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
    @precondition(lambda self: self.driver.state.phase is not m.Phase.CLOSED)
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
    @precondition(lambda self: self.driver.state.phase is m.Phase.READY)
    def lose(self, after, graceful, served):
        self.feed(m.ConnectionLost("x", graceful=graceful, served=served), after)

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
        waits = self.driver.state.in_flight or self.driver.state.phase in (m.Phase.HOLDING, m.Phase.BACKOFF)
        if self.driver.timer is None:
            assert not waits
        if waits:
            assert self.driver.timer is not None

    @invariant()
    def ready_since_only_when_ready(self):
        assert (self.driver.state.ready_since is not None) == (self.driver.state.phase is m.Phase.READY)


TestLifetimes = Lifetimes.TestCase
TestLifetimes.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestLifetimes.__doc__ = (
    "CB-1, CB-4, CB-10: one attempt and one timer at most, no start before the deadline, closed is final."
)


# A call that arrives after the connection has ended but before its end is reported.


@pytest.mark.parametrize(("lived", "phase"), [(0.1, m.Phase.HOLDING), (5.0, m.Phase.CONNECTING)])
def test_a_call_that_waits_at_the_loss(lived, phase):
    """CB-7: if a call is pending when the connection is lost, one new attempt starts as soon as allowed."""
    driver = reach(m.Phase.READY)
    driver.lose(lived, busy=True)
    assert driver.state.phase is phase
    (lost,) = (event for event in driver.events if type(event).__name__ == "Disconnected")
    assert lost.retry_in == pytest.approx(max(0.0, 1.0 - lived))
    assert len(driver.starts) == (2 if phase is m.Phase.CONNECTING else 1)
    driver.want()
    if phase is m.Phase.HOLDING:
        driver.wake()
    assert len(driver.starts) == 2


def test_a_call_that_waits_keeps_the_channel_from_being_idle():
    """CB-14: a pending call counts as use, however long ago the connection was last used."""
    driver = reach(m.Phase.READY, idle_timeout=10.0)
    driver.lose(100.0, busy=True)
    assert driver.state.phase is m.Phase.CONNECTING


def test_a_failure_behind_its_deadline_is_repeated_at_once():
    """CB-4: if an attempt outlasts its backoff, the failure says that the next attempt starts in 0 s, not earlier."""
    driver = Driver()
    driver.want()
    driver.fail(after=15.0)
    assert driver.events[-2].retry_in == 0.0
    assert driver.starts == [100.0, 115.0]
