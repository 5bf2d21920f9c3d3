"""The threaded connection manager, with a connector whose outcomes the test decides."""

from __future__ import annotations

import threading
from random import Random

import pytest

from grpc_backoff.connection import events as e
from grpc_backoff.connection.connector import Loss
from grpc_backoff.connection.events import Failure, Stage, State
from grpc_backoff.connection.machine import Machine, ResetRequested
from grpc_backoff.sharing.registry import Registry
from grpc_backoff.sync.conductor import Conductor
from grpc_backoff.sync.manager import ConnectionManager
from tests.sync.service import connect_policy, until

REFUSED = Failure(Stage.TCP, "refused")


class Connection:
    def __init__(self):
        self.ended = None
        self.retired = False
        self.known = True

    def alive(self):
        return self.ended is None

    def last_used(self):
        return float("-inf")

    def loss(self):
        return self.ended if self.known else None

    def retire(self):
        self.retired = True


class Connector:
    """A connector that keeps every attempt open until the test decides its outcome."""

    def __init__(self):
        self.attempts = []
        self.abandoned = 0
        self.is_decided = False

    def connect(self, limit, tell):
        self.attempts.append(tell)
        return self

    def decided(self):
        return self.is_decided

    def abandon(self):
        self.abandoned += 1


class Slot(list):
    """A list of pending calls, which also records what it hears, and on which threads."""

    def __init__(self):
        super().__init__()
        self.events, self.states, self.threads = [], [], set()

    def release(self):
        self.released = True

    def fail(self):
        self.failed = True

    def hear(self, event):
        self.events.append(event)
        self.threads.add(threading.current_thread())

    changed = property(lambda self: self.states.append)

    def kinds(self):
        return [type(event) for event in self.events]


class Parts:
    def __init__(self, conductor, key=None, schedules=None, **policy):
        self.conductor = conductor
        self.connector, self.slot = Connector(), Slot()
        self.manager = ConnectionManager(
            Machine("target", connect_policy(**policy)),
            self.connector,
            self.slot,
            conductor=conductor,
            clock=conductor,
            rng=Random(1),
            key=key,
            schedules=Registry() if schedules is None else schedules,
        )

    def do(self, work):
        done = threading.Event()
        self.conductor.post(lambda: (work(), done.set()))
        assert done.wait(20)

    def end(self, outcome):
        until(lambda: self.connector.attempts)
        tell = self.connector.attempts.pop()
        self.do(lambda: tell(outcome))


@pytest.fixture
def conductor():
    made = Conductor()
    yield made
    made.stop()


@pytest.fixture
def parts(conductor):
    made = Parts(conductor, initial=0.05, min_connect_timeout=0.3)
    yield made
    made.do(made.manager.close)


def test_connects(parts):
    """CB-1, CB-6: a wanted connection is dialled; then the channel is READY and pending calls are released."""
    assert parts.manager.state is State.IDLE
    parts.do(parts.manager.want)
    assert parts.manager.state is State.CONNECTING
    connection = Connection()
    parts.end(connection)
    assert parts.manager.state is State.READY
    assert parts.manager.connection is connection
    assert parts.slot.released
    assert parts.slot.kinds() == [e.AttemptStarted, e.Connected]
    assert parts.slot.states == [State.CONNECTING, State.READY]
    assert parts.slot.threads == {parts.conductor._thread}
    assert parts.manager.status().made == 1


def test_fails_and_goes_on(parts):
    """CB-4: after a failed attempt, the manager sleeps and dials again."""
    parts.do(parts.manager.want)
    parts.end(REFUSED)
    assert parts.manager.state is State.TRANSIENT_FAILURE
    assert parts.manager.status().last_error == REFUSED
    assert parts.slot.failed
    parts.end(Connection())
    assert parts.manager.state is State.READY
    assert parts.slot.kinds() == [e.AttemptStarted, e.AttemptFailed, e.AttemptStarted, e.Connected]


def test_the_limit(parts):
    """CB-3: an attempt without an outcome is abandoned at its limit; a connection that it makes later is retired."""
    parts.do(parts.manager.want)
    until(lambda: parts.connector.abandoned == 1)
    late = parts.connector.attempts.pop(0)
    until(lambda: parts.connector.attempts)
    connection = Connection()
    parts.do(lambda: late(connection))
    assert connection.retired
    assert parts.manager.connection is None


def test_a_loss_is_seen(parts):
    """TH-5: once the connector knows how a connection has ended, the manager announces it, even without calls."""
    parts.do(parts.manager.want)
    connection = Connection()
    parts.end(connection)
    connection.ended = Loss("broken")
    assert parts.manager.state is State.IDLE  # asking for the state notices the loss at once
    parts.do(parts.manager.look)
    until(lambda: parts.slot.kinds()[-1] is e.Disconnected)
    assert connection.retired
    assert parts.manager.connection is None


def test_a_loss_that_is_being_found_out(parts):
    """CB-8: a lost connection is reported only once it is known how it ended."""
    parts.do(parts.manager.want)
    connection = Connection()
    parts.end(connection)
    connection.known, connection.ended = False, Loss("broken", graceful=True)
    parts.do(parts.manager.look)
    assert parts.slot.kinds()[-1] is e.Connected
    connection.known = True
    parts.do(parts.manager.look)
    until(lambda: parts.slot.kinds()[-1] is e.Disconnected)


def test_a_loss_is_handled_once(parts):
    """CB-14, CB-16: an idle connection that has already been reported as lost is not closed a second time."""
    parts.do(parts.manager.want)
    connection = Connection()
    parts.end(connection)
    for _ in range(2):
        parts.do(lambda: parts.manager.rest(connection))
    assert parts.slot.kinds().count(e.Disconnected) == 1


def test_over_as_it_is_made(parts):
    """CB-15: a connection that is made but ends before it is reported counts as made and lost, and is not used."""
    connection = Connection()
    connection.ended = Loss("hung up")
    parts.do(parts.manager.want)
    parts.end(connection)
    assert parts.slot.kinds() == [e.AttemptStarted, e.Connected, e.Disconnected]
    assert parts.manager.connection is None


def test_a_connector_that_raises(parts, caplog):
    """CB-4: an exception from the connector counts as a failed attempt and is logged."""
    parts.connector.connect = lambda limit, tell: 1 / 0
    parts.do(parts.manager.want)
    until(lambda: e.AttemptFailed in parts.slot.kinds())
    assert "ZeroDivisionError" in parts.manager.status().last_error.reason
    assert "an attempt to connect raised" in caplog.text


def test_reset(parts):
    """CB-9: after a reset, a manager in backoff dials at once."""
    slow = Parts(parts.conductor, initial=100.0)
    slow.do(slow.manager.want)
    slow.end(REFUSED)
    assert slow.connector.attempts == []
    slow.do(lambda: slow.manager.feed(ResetRequested()))
    assert len(slow.connector.attempts) == 1
    slow.do(slow.manager.close)


def test_redialled(parts):
    """CB-16: a redial by the core is reported as `CoreRedial`."""
    parts.do(parts.manager.want)
    parts.do(parts.manager.redialled)
    assert parts.slot.kinds()[-1] is e.CoreRedial


@pytest.mark.parametrize("phase", ["idle", "connecting", "ready", "backoff"])
def test_close(conductor, phase):
    """CB-10: after `close`, in any phase, no attempt remains and no further event is emitted."""
    parts = Parts(conductor, initial=0.05)
    if phase != "idle":
        parts.do(parts.manager.want)
    if phase == "ready":
        parts.end(Connection())
    if phase == "backoff":
        parts.end(REFUSED)
    parts.do(parts.manager.close)
    parts.do(parts.manager.close)
    assert parts.slot.kinds()[-1] is e.Closed
    assert parts.connector.abandoned == (phase == "connecting")
    assert parts.manager.state is State.SHUTDOWN
    said = len(parts.slot.events)
    parts.do(parts.manager.want)
    parts.do(lambda: parts.manager.feed(ResetRequested()))
    until(lambda: conductor._thread is None)
    assert len(parts.slot.events) == said


def test_one_schedule(conductor):
    """SH-3: managers of one key share a schedule: in backoff, one attempt is in flight, and all share its failure."""
    schedules = Registry()
    one, other = (Parts(conductor, "key", schedules, initial=0.5) for _ in range(2))
    one.do(one.manager.want)
    one.end(REFUSED)
    other.do(other.manager.want)
    until(lambda: len(one.connector.attempts) + len(other.connector.attempts) == 1)
    assert other.manager.state is State.TRANSIENT_FAILURE
    assert other.manager.status().last_error == REFUSED
    dialler, sleeper = (one, other) if one.connector.attempts else (other, one)
    dialler.end(Connection())
    until(lambda: sleeper.connector.attempts)  # SH-4: the success lets the others dial at once
    assert e.Connected in sleeper.slot.kinds()
    assert [event.elsewhere for event in sleeper.slot.events if isinstance(event, e.Connected)] == [True]
    for parts in (one, other):
        parts.do(parts.manager.close)
