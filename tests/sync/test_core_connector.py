"""The core's connector: one attempt on one core channel, the attempt's outcome, and its connection.

Calls enter and leave a connection while another thread retires it, at every point where threads may switch.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time

import grpc
import pytest

from grpc_backoff.decide.connections import dial_times
from grpc_backoff.decide.connections.dial_machine import IDLE, READY, SHUTDOWN
from grpc_backoff.engine.spares import SPARES
from grpc_backoff.grpcio.sync_private import close_channel
from grpc_backoff.sync import core_connector
from grpc_backoff.sync.conductor import Conductor
from grpc_backoff.sync.core_connector import CoreConnector, RunningCalls
from grpc_backoff.testing.front import healthy, silent
from tests.setups import pool_setup
from tests.sync.service import connect_policy, dialled, front, place, until


@pytest.fixture
def conductor():
    made = Conductor()
    user = object()
    made.join(user)
    yield made
    made.stop()


def connector(conductor, target, **policy):
    return CoreConnector(pool_setup(target, policy=connect_policy(**policy), clock=conductor), "", conductor)


def run(conductor, work):
    done, result = threading.Event(), []
    conductor.post(lambda: (result.append(work()), done.set()))
    assert done.wait(20)
    return result[0]


def outcome(conductor, made, limit=5.0):
    told = []
    run(conductor, lambda: made.connect(limit, told.append))
    until(lambda: told)
    return told[0]


def close(conductor, made):
    for thread in run(conductor, made.close):
        thread.join(20)


def test_abandoned(conductor):
    """CB-3: an abandoned attempt reports no outcome, and its socket is closed within 250 ms of its limit."""
    with front(silent) as peer:
        told = []
        attempt = run(conductor, lambda: connector(conductor, peer.target).connect(0.5, told.append))
        until(lambda: peer.visits)
        began = time.monotonic()
        until(lambda: not run(conductor, attempt.decided))  # a young dial counts as decided
        run(conductor, attempt.abandon)
        assert dialled() == []
        until(lambda: peer.visits[0].ended is not None)
        assert time.monotonic() - began < 0.75 + 5  # with slack for a busy machine
        assert told == []


def test_decided(conductor):
    """CB-3: `decided` is true once an attempt has an outcome, even before the conductor has polled for it."""
    with place() as server:
        told = []

        def begin():
            attempt = connector(conductor, server.target).connect(5.0, told.append)
            end = time.monotonic() + 20
            while not attempt.decided() and time.monotonic() < end:
                time.sleep(0.001)  # keeps the conductor from polling
            decided = attempt.decided()
            attempt.abandon()
            return decided

        assert run(conductor, begin)
        assert told == []


def test_the_end_of_a_connection(conductor):
    """CB-16: a call that fails with its connection reports the loss; a retired one closes after its last call."""
    with place() as server, front(healthy, server.port) as peer:
        made = connector(conductor, peer.target)
        told = threading.Event()
        made.lost = told.set
        connection = outcome(conductor, made)
        token = object()
        connection.calls.enter(token)
        peer.break_all()
        until(lambda: not connection.alive())
        connection.failed(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        assert told.wait(20)
        assert run(conductor, connection.loss) is not None
        run(conductor, connection.retire)
        assert made.open == {connection}
        connection.ended(token)
        until(lambda: made.open == set())
    until(lambda: dialled() == [])


def test_a_call_that_does_not_begin(conductor, locked):
    """TH-5: while a call holds its channel, because the core repeats it (CB-16), the conductor goes on without it."""
    with place() as server:
        made = connector(conductor, server.target)
        lost = threading.Event()
        made.lost = lost.set
        connection = outcome(conductor, made)
        assert run(conductor, connection.alive)
        unlock = locked(connection)
        for _ in range(3):
            run(conductor, connection.look)
        assert run(conductor, connection.alive)
        server.kill()
        unlock()
        assert lost.wait(20)
        close(conductor, made)


def test_a_redial_takes_no_new_call(conductor):
    """CB-16: once a connection was seen to end, no call enters, although the core has redialled and is READY again."""
    with place() as server, front(healthy, server.port) as peer:
        made = connector(conductor, peer.target)
        connection = outcome(conductor, made)
        assert connection.entered(object())
        peer.break_all()
        until(lambda: connection.shown() == IDLE)
        run(conductor, connection.look)
        connection.check(True)
        until(lambda: connection.shown() == READY)
        assert not connection.alive()
        assert not connection.entered(object())
        close(conductor, made)


def test_a_call_that_saw_the_end(conductor):
    """CB-16, CB-17: a call that finds that the core has left READY ends the connection, even if it is READY again."""
    with place() as server:
        made = connector(conductor, server.target)
        connection = outcome(conductor, made)
        shows, connection.check = connection.check, lambda _connect: IDLE
        assert not connection.entered(object())
        connection.check = shows
        assert connection.shown() == READY
        until(lambda: run(conductor, connection.loss) is not None)
        close(conductor, made)


def test_a_call_at_a_shut_gate(conductor):
    """LV-3, CB-16: a call that a shut gate keeps out says nothing about the connection, which has not ended."""
    with place() as server:
        made = connector(conductor, server.target)
        connection = outcome(conductor, made)
        run(conductor, lambda: connection.set_gate(shut=True))
        assert not connection.entered(object())
        run(conductor, lambda: connection.set_gate(shut=False))
        assert run(conductor, connection.loss) is None
        assert connection.entered(object())
        close(conductor, made)


def test_stable_after(conductor):
    """CB-8: soon after a young connection ends, it is known how it ended and whether a call was answered on it."""
    with place() as server, front(healthy, server.port) as peer:
        made = connector(conductor, peer.target, stable_after=20.0)
        connection = outcome(conductor, made)
        peer.break_all()
        until(lambda: not connection.alive())
        until(lambda: run(conductor, connection.loss) is not None)
        assert run(conductor, connection.loss) == connection._loss
        assert not connection._loss.served
        run(conductor, connection.retire)


def test_left_alone(conductor):
    """FK-1: in a forked child, an inherited connection accepts no calls, and the core is not asked to close it."""
    with place() as server:
        made = connector(conductor, server.target)
        connection = outcome(conductor, made)
        connection.leave_alone()
        run(conductor, connection.retire)
        connection.ended(object())
        time.sleep(0.05)
        assert connection.calls.retired
        assert not connection.alive()
        assert len(dialled()) == 1
        close(conductor, made)
        assert len(dialled()) == 1
        close_channel(connection.channel)


def test_a_spare_channel(conductor, monkeypatch):
    """SH-8: the next connection takes it, and the one before it takes no calls."""
    monkeypatch.setattr(dial_times, "SPARE_FOR", 20.0)
    with place() as server:
        made = [connector(conductor, server.target) for _ in range(2)]
        for each in made:
            each.familiar = True
        first = outcome(conductor, made[0])
        first.served = True
        close(conductor, made[0])
        assert first.shown() == SHUTDOWN
        assert not first.entered(object())
        second = outcome(conductor, made[1])
        assert second.channel is first.channel
        assert second.entered(object())
        close(conductor, made[1])
        SPARES.close()


def interrupted(work, at, other):
    """Do `work`, and `other` before its `at`-th instruction in the module; return both results.

    The second result is a list, which is empty if `work` has fewer instructions.
    """
    count, results = 0, []

    def trace(frame, event, _argument):
        nonlocal count
        if frame.f_code.co_filename != core_connector.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            count += 1
            if count == at:
                sys.settrace(None)
                results.append(other())
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return work(), results
    finally:
        sys.settrace(before)


def at_every_point(work, other, *, running=("a",)):
    """Yield the results of `work` and `other` on the same calls, for each instruction of `work`; see `interrupted`."""
    for at in itertools.count(1):
        calls = RunningCalls()
        for token in running:
            calls.enter(token)
        result, results = interrupted(lambda: work(calls), at, lambda: other(calls))  # noqa: B023 - called at once
        if not results:
            assert at > 5
            return
        yield result, results[0]


def enter(calls):
    return calls.enter("b")


def leave(calls):
    return calls.leave("a")


def retire(calls):
    return calls.retire()


@pytest.mark.parametrize("interrupts", [False, True])
def test_a_call_that_enters_as_the_connection_is_retired(interrupts):
    """CB-16: the call does not stay, or whoever retires the connection sees it."""
    pairs = at_every_point(retire, enter) if interrupts else at_every_point(enter, retire)
    for results in pairs:
        stays, running = results[::-1] if interrupts else results
        assert not stays or running == 2


@pytest.mark.parametrize("interrupts", [False, True])
def test_a_call_that_leaves_as_the_connection_is_retired(interrupts):
    """CH-6: the call learns that it was the last, or whoever retires the connection sees that none is left."""
    pairs = at_every_point(retire, leave) if interrupts else at_every_point(leave, retire)
    for results in pairs:
        was_last, running = results[::-1] if interrupts else results
        assert was_last or running == 0


def test_two_calls_that_leave_a_retired_connection_together():
    """CH-6: at least one of them learns that none is left."""

    def leave_retired(calls):
        calls.retired = True
        return calls.leave("a")

    for results in at_every_point(leave_retired, lambda calls: calls.leave("b"), running=("a", "b")):
        assert any(results)


def test_leaving_twice():
    """CH-6: a call may be reported as ended more than once."""
    calls = RunningCalls()
    calls.enter("a")
    calls.enter("b")
    assert len(calls) == 2
    assert not calls.leave("a")
    assert not calls.leave("a")
    assert calls.retire() == 1
    assert not calls.enter("c")
    assert not calls.leave("c")
    assert calls.leave("b")
