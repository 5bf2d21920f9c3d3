"""The watch over one connection, with a pool that records what it is asked for."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from grpc_backoff.decide.connections.liveness_machine import CallWaits, LivenessMachine, LivenessPhase, News
from grpc_backoff.engine.gate import LivenessReply, Reporting, unheard
from grpc_backoff.engine.liveness import ConnectionWatch
from grpc_backoff.engine.watches import LivenessWatches
from grpc_backoff.policy.pooling import PoolPolicy


class Pool:
    """A pool of one connection, which is also that connection and its gate."""

    def __init__(self):
        self.counts = []  # of calls, when it is asked for the first few times
        self.time, self.calls, self.up, self.done, self.tell, self.timers = 100.0, 0, True, [], None, []
        self.silence, self.proxies = math.inf, []

    def alive(self):
        return self.up

    def call_at(self, when, callback):
        self.timers.append(callback)
        return self

    def cancel(self):
        self.timers.clear()

    def now(self):
        return self.time

    running = property(lambda self: self.counts.pop(0) if self.counts else self.calls)

    def quiet(self):
        return self.silence

    def set_gate(self, _number, _connection, *, shut):
        self.done.append("shut" if shut else "open")

    def ask(self, within, tell):
        self.tell = tell

    def report(self, kind, **fields):
        self.done.append(kind)

    def feed(self, given):
        self.done.append(given.why)


def watch(pool, *, doubted=False):
    machine, doubtful = LivenessMachine(0.2, 5.0), {"a"} if doubted else set()
    return ConnectionWatch(pool, 0, "a", pool, machine, doubtful, pool.proxies.append)


def look(pool):
    pool.time += 0.2
    pool.timers.pop()()


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("OK", "LivenessAnswered"),
        ("UNIMPLEMENTED", "LivenessAnswered"),
        ("UNAUTHENTICATED", "LivenessAnswered"),
        ("UNAVAILABLE", "LivenessAnswered"),
        ("DEADLINE_EXCEEDED", "no answer for 5 s"),
        ("CANCELLED", "no answer for 5 s"),
    ],
)
def test_what_the_answer_shows(code, outcome):
    """LV-1: any code is life but CANCELLED and DEADLINE_EXCEEDED; UNAVAILABLE is, if the connection is READY."""
    pool = Pool()
    pool.calls = 1
    made = watch(pool)
    look(pool)
    pool.tell(LivenessReply(code))
    assert pool.done[:2] == ["LivenessAsked", outcome]
    assert made.state.answered is (outcome == "LivenessAnswered")


@pytest.mark.parametrize(
    ("silence", "waited", "calls", "outcome"),
    [
        (math.inf, 0.0, 1, "no answer for 5 s"),
        (5.0, 0.0, 1, "no answer for 5 s"),
        (4.9, 0.0, 1, "LivenessAnswered"),
        (math.inf, 2.4, 1, "no answer for 5 s"),
        (math.inf, 2.6, 1, "open"),
        (math.inf, math.inf, 1, "open"),
        (math.inf, math.inf, 0, "no answer for 5 s"),
    ],
)
def test_silence(silence, waited, calls, outcome):
    """LV-1: what arrives after the question is life, and no answer to a question that was sent too late is nothing.

    If no call runs, none can have kept the question from being sent.
    """
    pool = Pool()
    pool.calls = 1
    watch(pool)
    look(pool)
    pool.time += 5.0
    pool.silence, pool.calls = silence, calls
    pool.tell(LivenessReply("DEADLINE_EXCEEDED", waited))
    assert pool.done[:2] == ["LivenessAsked", outcome]
    assert pool.proxies == []


def test_an_answer_through_a_proxy():
    """LV-1: a header of a proxy is passed on, whatever the status."""
    pool = Pool()
    made = watch(pool)
    for _ in range(2):
        made.feed(News("x"))
        pool.tell(LivenessReply("UNIMPLEMENTED", proxy="via"))
    assert pool.proxies == ["via"] * 2


def test_a_connection_that_has_left_ready():
    """LV-1: a connection that has left READY is never asked, and an answer that comes after that says nothing."""
    pool = Pool()
    made = watch(pool)
    pool.up = False
    made.feed(News("x"))
    assert (pool.done, made.state.phase) == ([], LivenessPhase.ENDED)
    pool = Pool()
    made = watch(pool)
    made.feed(News("x"))
    pool.up = False
    pool.tell(LivenessReply("UNAVAILABLE"))
    assert (pool.done, made.state.phase) == (["LivenessAsked"], LivenessPhase.ENDED)


def test_a_pause():
    """LV-1: after a pause, calls are kept out until the peer has answered; the timer is armed again after that."""
    pool = Pool()
    made = watch(pool)
    look(pool)
    assert (pool.done, pool.timers) == (["shut"], []), "nothing is planned without calls"
    made.feed(CallWaits())
    made.feed(CallWaits())
    pool.tell(LivenessReply("OK"))
    assert pool.done == ["shut", "LivenessAsked", "LivenessAnswered", "open"]
    assert len(pool.timers) == 1


def test_a_thread_that_was_faster():
    """LV-1: a call that enters a connection while it is being shut has its peer asked."""
    pool = Pool()
    made = watch(pool)
    pool.counts = [0, 1]
    look(pool)
    assert pool.done == ["shut", "LivenessAsked"]
    assert made.state.phase is LivenessPhase.ASKING


def test_a_connection_that_is_watched_no_longer():
    """LV-2: it is told so in the way that connections know, and so notes the ends of its calls no more."""
    connection, watches = Reporting(), LivenessWatches(PoolPolicy(), "a:1")
    connection.unanswered = lambda _began, _heard: None
    watches[0] = SimpleNamespace(connection=connection, left=lambda: None)
    watches.drop(0)
    assert connection.unanswered is unheard
