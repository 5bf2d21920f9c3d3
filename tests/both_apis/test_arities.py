"""How retried calls of all four arities end on both APIs: server hints, deadlines, cancellation and closing.

The decisions after a failure are the same for all arities, and have pure tests in `tests/decide/calls`. These tests
cover how each arity ends its attempts and reports the end. Limits and pauses are in real time, but a slow machine only
makes the tests slower.
"""

from __future__ import annotations

import time

import grpc
import pytest

from grpc_backoff import CallExhausted, CallRetried, Reason, WaitSource
from tests.both_apis.api import RETRY
from tests.both_apis.tries import counts, fails, hangs
from tests.sync.service import until

CODE = grpc.StatusCode
LATER = "retry: 3, delay: 60s"
BUFFER = "grpc.per_rpc_retry_buffer_size"


# Server hints.


@pytest.mark.parametrize("after", [0, None])
def test_the_server_says_when(trying, way, log, after):
    """RT-3: a pushback in the trailing metadata replaces the schedule's wait, for calls of any arity."""
    with trying(fails(after, trailing=(("grpc-retry-pushback-ms", "30"),)), retry=LATER) as (_, channel):
        assert channel.begin(way).outcome().texts == ["a"]
        event = log.until(CallRetried)
    assert (event.source, event.delay) == (WaitSource.PUSHBACK, pytest.approx(0.03))


# Deadlines.


def test_deadline_of_the_whole(trying, way):
    """RT-7: one deadline bounds all attempts and ends the running attempt."""
    with trying(retry="retry: 9, delay: 10ms") as (service, channel):
        channel.ready()
        for _ in range(20):  # on a busy machine, the first attempt may last until the deadline
            service.behaviours[:] = [fails(), hangs]
            began = time.monotonic()
            error = channel.begin(way, timeout=0.3).outcome().error
            assert 0.28 <= time.monotonic() - began < 20
            if getattr(error, "attempts", 1) > 1:
                break
        assert (error.code(), error.reason, error.attempts) == (CODE.DEADLINE_EXCEEDED, Reason.DEADLINE, 2)


def test_time_remaining(trying, cancellable):
    """RT-7: `time_remaining()` counts down to the deadline of the whole call, over all attempts."""
    with trying(fails(), hangs, retry="retry: 9, delay: 10ms, deadline: 50s") as (service, channel):
        call = channel.begin(cancellable, timeout=60)
        first = call.remaining()
        assert 10 < first <= 50.001
        until(lambda: len(service.got) == 2)
        assert 10 < call.remaining() < first
        call.cancel()


def test_deadline_of_a_blocked_stream(trying, sending):
    """RT-7: the deadline ends a call whose requests cannot be sent because the server does not read."""
    with trying(hangs, options=[(BUFFER, 100_000_000)]) as (service, channel):
        channel.ready()
        call = channel.begin(sending, ["x" * 1_000_000] * 40, timeout=0.5)
        assert call.outcome().code is CODE.DEADLINE_EXCEEDED
        assert service.got in ([[]], [])  # the latter on a busy machine


# Cancelling and closing.


PHASES = {
    "in the first attempt": ([hangs], RETRY, lambda service, _log: service.got),
    "between two attempts": ([fails()], LATER, lambda _service, log: log.of(CallRetried)),
    "in a later attempt": ([fails(), hangs], RETRY, lambda service, _log: len(service.got) == 2),
}


@pytest.fixture(params=PHASES)
def stage(trying, request, log):
    """A service, a channel whose next call enters a given phase, and a function that waits until it has done so."""
    behaviours, retry, there = PHASES[request.param]
    with trying(*behaviours, retry=retry) as (service, channel):
        yield service, channel, lambda: until(lambda: there(service, log))


def test_cancel(stage, cancellable):
    """CH-1: cancelling a call ends it on client and server, in any phase."""
    service, channel, reach = stage
    call, told = channel.begin(cancellable), []
    call.add_done_callback(told.append)
    reach()
    assert not call.done()
    assert call.cancel()
    outcome = call.outcome()
    assert (outcome.code, outcome.details) == (CODE.CANCELLED, "Locally cancelled by application!")
    assert (call.done(), call.cancelled(), call.cancel()) == (True, True, False)
    assert call.metadata("initial") == call.metadata("trailing") == []
    attempts = len(service.got)
    until(lambda: told and service.ended == attempts)
    time.sleep(0.02)
    assert len(service.got) == attempts
    assert told == [True]


def test_close(stage, way):
    """CB-10: closing the channel cancels its calls on client and server, in any phase."""
    service, channel, reach = stage
    call = channel.begin(way)
    reach()
    channel.close()
    assert call.outcome().code is CODE.CANCELLED
    until(lambda: service.ended == len(service.got))


# Many calls.


def test_exhausted_is_said_once(trying, ours, log):
    """RT-6: each failed call, of any kind, emits exactly one event."""
    with trying(*[fails()] * 80, retry="retry: 1, delay: 10ms") as (_, channel):
        calls = [channel.begin(way) for way in ours.ways for _ in range(5)]
        assert {call.outcome().error.attempts for call in calls} == {2}
        log.until(CallExhausted, len(calls))
    assert len(log.of(CallExhausted)) == len(calls)


def test_many_at_once(trying):
    """CH-7: a hundred concurrent streams on one channel get their own responses, although half the attempts fail."""
    with trying(*[fails(1), counts] * 200, retry="retry: 100, delay: 5ms", threads=128) as (_, channel):
        calls = [channel.begin("Both", ["x"] * count) for count in range(1, 101)]
        assert [call.outcome().texts for call in calls] == [[str(count)] for count in range(1, 101)]
