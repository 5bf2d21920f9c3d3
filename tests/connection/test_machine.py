"""The machine alone: no loop, no socket, no clock but a number."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from grpc_backoff.config.options import read_options
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
    m.AttemptBegan: m.AttemptBegan(),
    m.SettingsReceived: m.SettingsReceived(),
    m.ConnectFailed: m.ConnectFailed(REFUSED),
    m.TimerFired: m.TimerFired(),
    m.ConnectionLost: m.ConnectionLost("closed"),
    m.CoreRedialled: m.CoreRedialled(),
    m.ResetRequested: m.ResetRequested(),
    m.CloseRequested: m.CloseRequested(),
}


class Driver:
    """Feeds a machine by hand and keeps what it asks for."""

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
    """Return a driver whose machine is in `phase`."""
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
    """CB-1: a pair of phase and input leads to a phase, or it is an IllegalTransition that names both."""
    driver = reach(phase)
    if (phase, kind) in m.transitions():
        driver.feed(INPUTS[kind])
        assert driver.state.phase in m.Phase
    else:
        with pytest.raises(IllegalTransition, match=f"{kind.__name__} in phase {phase.name}"):
            driver.feed(INPUTS[kind])


def seed_document(rng, failures, *, initial=1.0, multiplier=1.6, cap=120.0, jitter=0.2, timeout=20.0):
    """The pseudo-code of gRPC's connection-backoff protocol, line by line, with attempts that last as long as given."""
    now = 100.0
    starts, limits = [], []
    rng.random()  # ours draws one number for each attempt, of which the protocol's first deadline has no need
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
    """CB-2 to CB-5: a client under a seeded generator starts when the seed's own loop starts, and has its limits."""
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


SET = {"initial": 0.25, "multiplier": 3.0, "cap": 4.0, "jitter": 0.5, "timeout": 1.5}
AS_OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.max_reconnect_backoff_ms", 4000),
    ("grpc.min_reconnect_backoff_ms", 1500),
    ("grpc_backoff.multiplier", 3),
    ("grpc_backoff.jitter", 0.5),
)
AS_FILE = """
[connection]
initial_backoff = "250ms"
max_backoff = 4
min_connect_timeout = 1.5
multiplier = 3
jitter = 0.5
"""


@pytest.mark.parametrize("how", ["options", "file"])
@pytest.mark.parametrize("lasts", [0.0, 0.5, 2.0, math.inf])
def test_parameters_from_options_and_file(tmp_path, how, lasts):
    """BP-3: with parameters from options and from a file a client starts when the seed's loop does with these."""
    file = tmp_path / "backoff.toml"
    file.write_text(AS_FILE)
    policy = read_options(AS_OPTIONS if how == "options" else [("grpc_backoff.config", file)]).policy
    expected_starts, expected_limits = seed_document(random.Random(7), [lasts] * 12, **SET)
    driver = Driver(seed=7, **{field.name: getattr(policy, field.name) for field in fields(policy)})
    driver.want()
    for _ in range(12):
        if driver.now + lasts < driver.state.limit:
            driver.fail(lasts)
        else:
            driver.wake()
        while not driver.state.in_flight:
            driver.wake()

    assert driver.starts[:12] == pytest.approx(expected_starts, rel=1e-12)
    assert driver.limits[:12] == pytest.approx(expected_limits, rel=1e-9)


def test_first_attempt_at_once_and_one_at_a_time():
    """CB-1: a wanted connection is dialled at once, and asking again starts nothing more."""
    driver = Driver()
    driver.want()
    driver.want()
    driver.want()

    assert driver.starts == [100.0]


def test_first_gap_has_no_jitter_unless_asked():
    """CB-2: the first gap is INITIAL to the letter; `jitter_first` spreads it as well."""
    plain, spread = Driver(), Driver(jitter_first=True)
    for driver in (plain, spread):
        driver.want()
        driver.fail()
        driver.wake()

    assert plain.starts == [100.0, 101.0]
    assert spread.starts[1] != 101.0
    assert 100.8 <= spread.starts[1] <= 101.2


def test_limit_is_the_larger_of_timeout_and_backoff():
    """CB-3: an attempt may last MIN_CONNECT_TIMEOUT, or as long as its backoff when that is longer."""
    driver = Driver(idle_timeout=math.inf)
    driver.want()
    for _ in range(14):
        driver.fail()
        driver.wake()

    assert driver.limits[0] == 20.0
    assert driver.limits[-1] > 90.0
    for start, limit, following in zip(driver.starts, driver.limits, driver.starts[1:], strict=False):
        assert limit == pytest.approx(max(20.0, following - start))


def test_at_the_limit_the_attempt_is_abandoned_and_the_next_follows_without_pause():
    """CB-3, CB-4: a silent peer is given up at the limit; the deadline has passed by then, so there is no sleep."""
    driver = Driver()
    driver.want()
    effects = driver.wake()

    assert m.AbandonAttempt() in effects
    assert driver.starts == [100.0, 120.0]
    failed = next(event for event in driver.events if isinstance(event, events.AttemptFailed))
    assert failed.failure.stage is Stage.SETTINGS
    assert failed.failure.reason == "no SETTINGS frame within the attempt's time limit"


def test_one_cause_has_one_text():
    """CH-4: neither the limit, which grows, nor the life of a lost connection is in the reason, but in the event."""
    driver = Driver()
    driver.want()
    for _ in range(30):  # until the gap, and with it the limit, is longer than 20 s
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
    """CB-3: a timer that fires too early ends nothing."""
    driver = Driver()
    driver.want()
    driver.feed(m.TimerFired(), 119.0)

    assert driver.state.phase is m.Phase.CONNECTING
    assert driver.timer == 120.0


def test_sleeps_until_the_deadline_and_not_longer():
    """CB-4: the gap runs from start to start: an attempt that took 0.7 s is followed 0.3 s later."""
    driver = Driver()
    driver.want()
    driver.fail(0.7)
    assert driver.timer == pytest.approx(101.0)
    assert driver.events[-1].retry_in == pytest.approx(0.3)


def test_ten_thousandth_attempt_waits_the_maximum():
    """CB-13: no overflow, no growth past MAX, and jitter comes after the cap."""
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
    """CB-6: after success the next series begins at INITIAL."""
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
    """CB-7: gRPC's own rule is to redial with the next RPC; `eager` redials at once."""
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
    """CB-7: a peer that sends SETTINGS and hangs up is dialled once per INITIAL, however many RPCs are tried."""
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
    """CB-7: the reset at SETTINGS includes the deadline that a long backoff had set."""
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
    """CB-7: where the library underneath redialled by itself, a next start that has to wait waits one INITIAL more."""
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
    """CB-7: after a GOAWAY on a young connection a call waits for what is left to one INITIAL after the start."""
    driver = Driver()
    driver.want()
    driver.connect()
    driver.lose(0.3, graceful=True, used=driver.now + 0.3)
    driver.want()

    assert driver.timer == pytest.approx(101.0)


def test_stable_after_counts_a_useless_connection_as_a_failure():
    """CB-8: the backoff goes on growing from where it stood, and fail-fast calls fail."""
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
    """CB-8: a completed RPC or a GOAWAY(NO_ERROR) makes even a short connection a good one."""
    driver = Driver(stable_after=5.0)
    driver.want()
    driver.connect()
    driver.lose(2.0, **how)

    assert driver.state.phase is m.Phase.IDLE


def test_stable_after_is_off_by_default():
    """CB-8: without the option every SETTINGS frame resets."""
    driver = Driver()
    driver.want()
    driver.connect()
    driver.lose(0.001)

    assert driver.state.phase is m.Phase.IDLE


def test_reset_wakes_a_sleeping_channel():
    """CB-9: it dials at once, and the gap after is INITIAL's."""
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
    """CB-9: the attempt keeps its limit; the delay after it is INITIAL's, counted from its start."""
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
    """CB-9: the first dials at once; each of the others when INITIAL has passed since the dial of the one before."""
    driver = Driver()
    driver.want()
    for _ in range(5):
        driver.fail(0.01)
        driver.feed(m.ResetRequested())
        if not driver.state.in_flight:
            driver.wake()

    assert driver.starts == pytest.approx([100.0, 100.01, 101.01, 102.01, 103.01, 104.01])


def test_a_reset_too_soon_takes_effect_later_and_is_not_dropped():
    """CB-9: however long the backoff; resets that come meanwhile change nothing and make no event."""
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
    """CB-9: a sleeping channel starts now, or when INITIAL has passed since the last reset caused a dial."""
    driver = Driver()
    driver.want()
    driver.fail()
    driver.feed(m.ResetRequested())
    driver.fail()
    driver.feed(m.ResetRequested(), driver.now + 0.25)
    resets = [event for event in driver.events if isinstance(event, events.BackoffReset)]

    assert [reset.retry_in for reset in resets] == [0.0, pytest.approx(0.75)]


def test_a_reset_of_a_channel_that_is_awake_plans_nothing():
    """CB-9: when the channel is idle, with an attempt in flight, or READY, a reset plans no attempt."""
    driver = Driver()
    driver.feed(m.ResetRequested())
    driver.want()
    driver.feed(m.ResetRequested())
    driver.feed(m.SettingsReceived())
    driver.feed(m.ResetRequested())
    resets = [event for event in driver.events if isinstance(event, events.BackoffReset)]

    assert [reset.retry_in for reset in resets] == [None, None, None]


def test_a_success_frees_the_next_reset():
    """CB-9: after a success a reset dials at once again."""
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
    """CB-9: two dials of resets are INITIAL apart, and a reset of a sleeping channel is followed by one within that."""
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
    """CB-3: at the limit an attempt whose outcome is there, though unseen, is not given up; nor waited for for ever."""
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


@pytest.mark.parametrize("phase", list(m.Phase))
def test_reset_is_safe_in_every_state_any_number_of_times(phase):
    """CB-9: never an error, never more than one attempt in flight."""
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
    """CB-10: no timer and no attempt is left, and nothing starts any more."""
    driver = reach(phase)
    was_in_flight = driver.state.in_flight
    effects = driver.feed(m.CloseRequested())
    driver.feed(m.CloseRequested())

    assert driver.timer is None or phase is m.Phase.CLOSED
    assert (m.AbandonAttempt() in effects) == was_in_flight
    assert driver.state.state is State.SHUTDOWN
    assert driver.kinds().count("Closed") == 1


def test_closing_says_how_long_the_connection_had_lasted():
    """CB-10: the last event has what the end of the channel ended; without a connection that is nothing."""
    ready, never = reach(m.Phase.READY), reach(m.Phase.BACKOFF)
    ready.feed(m.CloseRequested(), ready.now + 7.5)
    never.feed(m.CloseRequested(), never.now + 7.5)

    assert [driver.events[-1].lived for driver in (ready, never)] == [7.5, None]


def test_every_event_says_which_channel():
    """CH-11: the events of one channel share a key that those of another channel to the same target have not."""
    one, other = (reach(m.Phase.READY, stable_after=5.0) for _ in range(2))
    for driver in (one, other):
        driver.lose(0.1)
        driver.feed(m.CoreRedialled())
        driver.wake()
        driver.fail()
        driver.feed(m.ResetRequested())
        driver.feed(m.CloseRequested())

    assert set(one.kinds()) == {kind.__name__ for kind in events.ConnectionEvent.__subclasses__()}
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
    """CH-11: a lost connection's event has the wait before the next attempt; None where no attempt is planned."""
    driver = reach(m.Phase.READY, **policy)
    driver.lose(lived)

    lost = next(event for event in driver.events if isinstance(event, events.Disconnected))
    assert lost.retry_in == retry_in
    assert (driver.state.next_start or driver.now) - driver.now == (retry_in or 0.0)


def test_two_clients_disperse():
    """CB-11: two channels that lose one server at the same moment do not go on in step."""
    clients = [Driver(seed=1), Driver(seed=2)]
    for driver in clients:
        driver.want()
        for _ in range(5):
            driver.fail()
            driver.wake()

    assert clients[0].starts[:2] == clients[1].starts[:2]
    assert all(
        abs(one - other) > 0.001 for one, other in zip(clients[0].starts[2:], clients[1].starts[2:], strict=True)
    )


@pytest.mark.parametrize("phase", [m.Phase.BACKOFF, m.Phase.HOLDING, m.Phase.CONNECTING])
def test_a_late_wake_up_leads_to_one_attempt(phase):
    """CB-12: after an hour's sleep there is one start, and its gap counts from now."""
    driver = reach(phase, idle_timeout=math.inf)
    before = len(driver.starts)
    driver.feed(m.TimerFired(busy=True), driver.now + 3600)

    assert len(driver.starts) == before + 1
    assert driver.state.deadline > driver.now


@pytest.mark.parametrize("phase", [m.Phase.BACKOFF, m.Phase.HOLDING])
def test_idle_channels_stop_dialling(phase):
    """CB-14: when no RPC asked for anything the channel is IDLE, and the next RPC begins afresh at once."""
    driver = reach(phase, idle_timeout=1.5, backoff=replace(CONNECT.backoff, strategy=Exponential(3.0, 1.6)))
    driver.wake(busy=False)
    assert driver.state.phase is m.Phase.IDLE
    assert driver.timer is None or driver.timer <= driver.now
    driver.feed(m.ConnectionWanted(), driver.now + 60)
    assert driver.state.phase is m.Phase.CONNECTING
    assert driver.state.attempt == 1


@pytest.mark.parametrize("phase", [phase for phase in m.Phase if phase is not m.Phase.CLOSED])
def test_a_request_right_after_another_may_be_left_out(phase):
    """CB-14: outside IDLE a request only renews the time of the last one, so that one within 10 ms of it is spared."""
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
    """CB-14: attempts that follow each other without a sleep end with idleness too."""
    driver = Driver(idle_timeout=50.0)
    driver.want()
    while driver.state.phase is not m.Phase.IDLE:
        driver.wake(busy=False)

    assert len(driver.starts) == 3
    assert driver.timer is None


def test_a_waiting_call_keeps_the_channel_dialling():
    """CB-14: a call that waits is asking all the while."""
    driver = Driver(idle_timeout=0.5)
    driver.want()
    for _ in range(20):
        driver.fail(busy=True)
        while not driver.state.in_flight:
            driver.wake(busy=True)

    assert len(driver.starts) == 21


def test_eager_leaves_an_idle_channel_alone():
    """CB-14: a connection that nobody used for the idle timeout is not replaced, not even by `eager`."""
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
    """CH-3: once an attempt failed the channel shows TRANSIENT_FAILURE until READY, also while it dials (A62)."""
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
    """CH-11: started, failed, connected, disconnected and reset each leave one event with its figures."""
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
    """Random inputs in random order, each at a legal moment; the invariants hold after every one."""

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


# A call that came between the end of a connection and the news of it.


@pytest.mark.parametrize(("lived", "phase"), [(0.1, m.Phase.HOLDING), (5.0, m.Phase.CONNECTING)])
def test_a_call_that_waits_at_the_loss(lived, phase):
    """CB-7: the next attempt follows for a call that waits already: when the flood guard allows, and once."""
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
    """CB-14: waiting is asking, however long ago the connection was last used."""
    driver = reach(m.Phase.READY, idle_timeout=10.0)
    driver.lose(100.0, busy=True)
    assert driver.state.phase is m.Phase.CONNECTING
