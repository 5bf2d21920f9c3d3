"""The conductor: a thread that runs posted work and timers in order, and exists only while it is needed.

Its agenda takes turns: posted work, then timers, then what is polled.
"""

from __future__ import annotations

import asyncio
import math
import queue
import sys
import threading
import time
from queue import Empty, SimpleQueue
from types import SimpleNamespace

import pytest

from grpc_backoff.sync import conductor as conductor_module
from grpc_backoff.sync.conductor import POLL_EVERY, Agenda, Conductor, Timers
from tests.sync.service import until


@pytest.fixture
def conductor():
    made = Conductor()
    yield made
    made.stop()


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "grpc-backoff"]


def test_in_order_on_one_thread(conductor):
    """TH-5: posted functions run in order, on one thread, which is not the poster's."""
    done = []
    for number in range(100):
        conductor.post(lambda number=number: done.append((number, threading.current_thread())))
    until(lambda: len(done) == 100)
    assert [number for number, _ in done] == list(range(100))
    assert len({thread for _, thread in done} | {threading.current_thread()}) == 2


def test_timers(conductor):
    """TH-5: timers fire in the order of their times, never early, and not at all if they are cancelled."""
    done, now = [], conductor.now()
    conductor.call_at(now + 0.06, lambda: done.append((2, conductor.now())))
    conductor.call_at(now + 0.03, lambda: done.append((1, conductor.now())))
    conductor.call_at(now + 0.04, lambda: done.append((9, 0.0))).cancel()
    until(lambda: len(done) == 2)
    assert [number for number, _ in done] == [1, 2]
    assert done[0][1] >= now + 0.03
    assert done[1][1] >= now + 0.06


def test_timers_do_not_wake_the_thread(conductor, monkeypatch):
    """TH-5: a timer that is due after the thread wakes anyway does not wake it, and fires in its turn."""
    fired, turns, turn = [], [], conductor._turn
    conductor.join(fired.append)
    conductor.call_at(conductor.now() + 1.0, lambda: fired.append(1))
    until(lambda: conductor._agenda.timers.wakes < conductor.now() + 10)
    monkeypatch.setattr(conductor, "_turn", lambda until: turns.append(1) or turn(until))
    for _ in range(50):
        conductor.call_at(conductor.now() + 60, int).cancel()
    conductor.call_at(conductor.now() + 1.2, lambda: fired.append(2))
    assert len(turns) <= 1
    until(lambda: fired == [1, 2])


def test_what_raises_harms_nobody(conductor, caplog):
    """TH-5: an exception from posted work or a timer is logged, and the thread continues."""
    done = threading.Event()
    conductor.post(lambda: 1 / 0)
    conductor.call_at(conductor.now(), lambda: 1 / 0)
    conductor.call_at(conductor.now() + 0.01, done.set)
    assert done.wait(20)
    assert caplog.text.count("ZeroDivisionError") == 2


def test_what_exits_harms_nobody(conductor, caplog):
    """TH-5: the thread goes on after a program's clock, or whatever it calls, has raised what is no `Exception`."""
    done = []

    def cancel():
        raise asyncio.CancelledError

    for work in (sys.exit, cancel, lambda: done.append(threading.current_thread())):
        conductor.post(work)
        conductor.call_at(conductor.now(), work)
    until(lambda: len(done) == 2)
    assert len(set(done)) == 1
    assert [caplog.text.count(f"\n{name}") for name in ("SystemExit", "asyncio.exceptions.CancelledError")] == [2, 2]


def test_its_life(conductor):
    """TH-5: the thread starts with the first posted work and ends within a second after its last user has left."""
    before = len(threads())
    user = object()
    conductor.join(user)
    conductor.post(int)
    assert len(threads()) == before + 1
    time.sleep(0.3)
    assert len(threads()) == before + 1
    conductor.leave(user)
    until(lambda: len(threads()) == before, within=1.0)
    done = threading.Event()
    conductor.post(done.set)
    assert done.wait(20)


def test_nothing_is_lost_as_it_ends(conductor):
    """TH-5: work that is posted while the thread is ending still runs."""
    for _ in range(5):
        time.sleep(0.098)  # about as long as an unused thread keeps running
        done = threading.Event()
        conductor.post(done.set)
        assert done.wait(20)


def test_a_thread_that_cannot_start(conductor, monkeypatch):
    """TH-5: if the process has too many threads, work waits for the next that can be started."""
    done = []
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _fail)
        conductor.post(lambda: done.append("early"))
        with pytest.raises(RuntimeError, match="can't start new thread"):
            conductor.require()
        assert not conductor.is_served()
    assert done == []
    conductor.post(lambda: done.append("late"))
    until(lambda: done == ["early", "late"])


@pytest.mark.parametrize("begins", [False, True])
def test_a_start_that_a_signal_handler_interrupts(conductor, monkeypatch, begins):
    """TH-6: what a signal handler raises while the thread starts is raised; all work is run nevertheless."""
    done = []

    def start(thread):
        if begins or thread.name != "grpc-backoff":  # others may start meanwhile
            beginning(thread)
        if thread.name == "grpc-backoff":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        beginning = threading.Thread.start
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(KeyboardInterrupt):
            conductor.post(lambda: done.append(1))
    conductor.post(lambda: done.append(2))
    until(lambda: done == [1, 2])
    until(lambda: not threads())


def test_without_a_thread_those_who_wait_run_the_work(conductor, monkeypatch):
    """TH-5: where no thread can be started, work and timers run on a thread that waits, one at a time."""
    monkeypatch.setattr(threading.Thread, "start", _fail)
    ran, answers = [], SimpleQueue()

    def work(name):
        ran.append((name, conductor.is_here(), threading.current_thread() is threading.main_thread()))

    conductor.post(lambda: work("posted"))
    conductor.call_at(conductor.now() + 0.1, lambda: (work("timed"), answers.put("answer")))
    assert conductor.take(answers, 20) == "answer"
    assert ran == [("posted", True, True), ("timed", True, True)]
    assert not conductor.is_here()
    with pytest.raises(Empty):
        conductor.take(answers, 0.01)


def test_a_thread_that_can_start_later_takes_over(conductor, monkeypatch):
    """TH-5: as soon as a thread can be started, it runs the work for those who wait."""
    answers, starts, start = SimpleQueue(), [], threading.Thread.start

    def third(thread):
        starts.append(thread)
        return _fail(thread) if len(starts) < 3 else start(thread)

    conductor.join(answers)
    monkeypatch.setattr(threading.Thread, "start", third)
    conductor.call_at(conductor.now() + 0.2, lambda: answers.put(threading.current_thread()))
    assert conductor.take(answers, 20) is starts[2]
    conductor.leave(answers)


@pytest.mark.parametrize("far", [1e10, 1e300, float("inf")])
def test_timers_beyond_the_limit_of_the_system(conductor, far):
    """TH-5: a timer later than the system can wait for does not end the thread."""
    done = threading.Event()
    conductor.call_at(conductor.now() + far, int)
    conductor.post(int)
    time.sleep(0.05)  # the thread now waits for the timer
    conductor.post(done.set)
    assert done.wait(20)


@pytest.mark.parametrize("runs", ["its thread", "a caller"])
def test_a_pump_that_cannot_start(conductor, monkeypatch, runs):
    """TH-5: where the pump gets no thread, whoever runs the work waits for the core instead."""

    def none(_work, _name):
        raise RuntimeError("can't start new thread")

    waited, answers = [], SimpleQueue()
    monkeypatch.setattr("grpc_backoff.sync.conductor.needs_pump", lambda: True)
    monkeypatch.setattr("grpc_backoff.base.threads.start", none)
    core = SimpleNamespace(watch_connectivity_state=lambda _state, deadline: waited.append(deadline))
    monkeypatch.setattr("grpc_backoff.sync.pump.inner_channel", lambda _channel: core)
    if runs == "a caller":
        monkeypatch.setattr(threading.Thread, "start", _fail)
    user = object()
    conductor.join(user)
    conductor.call_at(conductor.now() + 0.1, lambda: answers.put("answer"))
    assert conductor.take(answers, 20) == "answer"
    assert waited
    conductor.leave(user)


def _fail(_thread):
    raise RuntimeError("can't start new thread")


def test_polling(conductor):
    """TH-5: an object is polled five times a second until that is stopped."""

    class Looked:
        looks = 0

        def look(self):
            self.looks += 1

    looked = Looked()
    conductor.join(looked)
    conductor.post(lambda: conductor.poll(looked))
    until(lambda: looked.looks >= 2)
    conductor.post(lambda: conductor.stop_polling(looked))
    conductor.leave(looked)
    seen = looked.looks
    time.sleep(0.3)
    assert looked.looks <= seen + 1


def test_stopped(conductor):
    """TH-6: after `stop`, which runs at interpreter exit, no thread is started; those who wait run the work."""
    before, answers = len(threads()), SimpleQueue()
    conductor.post(int)
    conductor.stop()
    conductor.post(lambda: answers.put("answer"))
    assert len(threads()) == before
    assert conductor.take(answers, 20) == "answer"


def test_queues_that_are_replaced_after_the_import(conductor, monkeypatch):
    """FK-4: if gevent replaces the class of queues before the thread starts, the thread uses the new class."""

    class Replaced(SimpleQueue):
        pass

    done, now = [], conductor.now()
    monkeypatch.setattr(Conductor, "is_served", lambda _: False)
    conductor.post(lambda: done.append(1))
    conductor.call_at(now, lambda: done.append(2))
    monkeypatch.undo()
    monkeypatch.setattr(queue, "SimpleQueue", Replaced)
    conductor.post(lambda: done.append(3))
    until(lambda: len(done) == 3)
    assert sorted(done) == [1, 2, 3]
    assert type(conductor._agenda.work) is Replaced


def due(timers, now):
    return [done() for done in iter(lambda: timers.take_due(now), None)]


def work(result):
    return lambda: result


@pytest.fixture
def woken():
    return []


@pytest.fixture
def timers(woken):
    return Timers(lambda: woken.append(1))


def test_in_the_order_of_their_times(timers):
    """TH-5: work becomes due at its time, earlier work first, and is forgotten once taken or cancelled."""
    timers.keep(3.0, work("c"))
    timers.keep(1.0, work("a"))
    timers.keep(1.0, work("b"))
    timers.keep(2.0, work("x")).cancel()
    assert timers.wait_until(10.0) == 1.0
    assert due(timers, 0.9) == []
    assert due(timers, 2.5) == ["a", "b"]
    assert timers.wait_until(10.0) == 3.0
    assert due(timers, 3.0) == ["c"]
    assert timers.wait_until(10.0) == 10.0


def test_only_an_earlier_timer_wakes_the_thread(timers, woken):
    """TH-5: a timer of another thread is kept by the next turn, and wakes the thread only if that would come late."""
    timers.wait_until(5.0)
    timers.pass_on(6.0, work("b"))
    assert not woken
    timers.pass_on(4.0, work("a"))
    assert woken
    timers.pass_on(5.5, work("x")).cancel()
    assert timers.wait_until(math.inf) == 4.0
    assert due(timers, 7.0) == ["a", "b"]


def test_many_that_are_passed_on_wake_the_thread(timers, woken):
    """CB-13: timers that other threads pass on do not pile up until the thread wakes."""
    timers.wait_until(5.0)
    for _ in range(100):
        timers.pass_on(6.0, work("a"))
    assert woken


@pytest.mark.parametrize("others", [0, 500])
def test_cancelled_timers_do_not_pile_up(timers, others):
    """CB-13: cancelled timers are removed even if others remain, and the remaining ones still become due."""
    for _ in range(others):
        timers.keep(1000.0, work("kept"))
    for _ in range(5000):
        timers.keep(1000.0, work("cancelled")).cancel()
    assert others <= len(timers._kept) < 200 + 2 * others
    assert due(timers, 1000.0) == ["kept"] * others


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Looked:
    looks = 0

    def look(self):
        self.looks += 1
        raise ValueError("a bug")


@pytest.fixture
def clock(monkeypatch):
    """A clock that a wait for posted work advances, as if none came."""
    made, take = Clock(), conductor_module.take

    def wait(queue, timeout):
        made.now += timeout
        return take(queue, 0)

    monkeypatch.setattr(conductor_module, "take", wait)
    return made


def test_a_turn(clock):
    """TH-5: a turn runs what is posted and what is due; what raises is logged, and the rest is done nevertheless."""
    agenda, done = Agenda(clock, int), []
    agenda.timers.keep(0.0, lambda: done.append("timer"))
    agenda.work.put(lambda: 1 / 0)
    agenda.work.put(lambda: done.append("posted"))
    agenda.turn(5.0)
    assert done == ["posted", "timer"]
    assert clock.now == 0.0


def test_posted_work_leaves_timers_their_turn(clock):
    """TH-5: work that posts more work does not keep timers waiting."""
    agenda, done = Agenda(clock, int), []

    def again():
        done.append("posted")
        agenda.work.put(again)

    agenda.work.put(again)
    agenda.timers.keep(0.0, lambda: done.append("timer"))
    agenda.turn(5.0)
    assert done == ["posted", "posted", "timer"]


def test_a_turn_that_polls(clock):
    """TH-5: a turn ends when an object is to be polled, until that is stopped; otherwise when it is told to."""
    agenda, looked = Agenda(clock, int), Looked()
    agenda.poll(looked)
    agenda.turn(5.0)
    assert (clock.now, looked.looks) == (POLL_EVERY, 1)
    agenda.stop_polling(looked)
    agenda.stop_polling(looked)
    agenda.turn(5.0)
    assert (clock.now, looked.looks) == (5.0, 1)
