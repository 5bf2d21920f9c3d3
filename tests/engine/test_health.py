"""The watch over a server's health, with a pool that records what it is asked for."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff.decide.connections.health_machine import (
    AGAIN_AFTER,
    Ended,
    HealthMachine,
    HealthPhase,
    Unwatched,
)
from grpc_backoff.engine.health import HealthWatch, problem_of, request_for
from grpc_backoff.policy.presets import CONNECT

SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
SAYS_NO = "the server reports NOT_SERVING"


class Pool:
    """A pool of one connection, which is also that connection, its gate and its timer."""

    def __init__(self):
        self.time, self.up, self.used = 100.0, True, 100.0
        self.due = self.callback = self.hear = None
        self.told, self.done, self.requests = [], [], []

    def alive(self):
        return self.up

    def last_used(self):
        return self.used

    def call_at(self, when, callback):
        assert self.callback is None, "there is one timer at a time"
        self.due, self.callback = when, callback
        return self

    def cancel(self):
        self.due = self.callback = None

    def now(self):
        return self.time

    def listen(self, request, hear):
        self.requests.append(request)
        self.hear = hear
        return lambda: self.done.append("cancelled")

    def rest(self, connection):
        assert connection is self
        self.done.append("rests")

    def wake(self):
        callback, self.time = self.callback, self.due
        self.cancel()
        callback()


def watch(pool, service="", **more):
    machine, rng = HealthMachine(CONNECT), random.Random(1)
    made = HealthWatch(pool, pool, machine, service, rng, pool.told.append, pool.rest, **more)
    made.look()
    return made


def test_what_the_server_says():
    """RO-1: the stream is started for the service, and each change of the health is reported."""
    pool = Pool()
    made = watch(pool, "shop.Orders")
    assert pool.requests == [b"\x0a\x0bshop.Orders"]
    for message in (SERVING, SERVING, NOT_SERVING, SERVING):
        pool.hear(message)
    assert pool.told == ["", SAYS_NO, ""]
    assert made.state.phase is HealthPhase.ANSWERED


def test_who_is_told_may_change():
    """RO-1: the attempt that proved the health hands its Watch over to the slot."""
    pool, later = Pool(), []
    made = watch(pool)
    pool.hear(SERVING)
    made.tell = later.append
    pool.hear(NOT_SERVING)
    assert (pool.told, later) == ([""], [SAYS_NO])


def test_a_stream_that_ends():
    """RO-1: the next stream is begun when the timer fires, on a connection that is up."""
    pool = Pool()
    watch(pool)
    pool.hear(SERVING)
    pool.time += 60
    pool.hear(Ended("INTERNAL"))
    assert pool.due == pool.time + AGAIN_AFTER
    pool.wake()
    assert len(pool.requests) == 2
    assert pool.told == [""]


@pytest.mark.parametrize("end", ["hear", "wake"])
def test_a_connection_that_has_left_ready(end):
    """RO-1, CB-16: a connection that has ended is never asked, because the core would dial again."""
    pool = Pool()
    made = watch(pool)
    pool.hear(SERVING)
    pool.hear(Ended("OK"))
    pool.up = False
    if end == "hear":
        pool.hear(Ended("UNAVAILABLE"))
    else:
        pool.wake()
    assert made.state.phase is HealthPhase.OVER
    assert (len(pool.requests), pool.told, pool.due) == (1, [""], None)


def test_a_replacement_is_told_in_time():
    """RO-1: a health that is not known in time is taken to be good."""
    pool = Pool()
    watch(pool, prove_within=2.0)
    assert pool.due == 102.0
    pool.wake()
    assert pool.told == [""]


@pytest.mark.parametrize("before", [[], [SERVING], [NOT_SERVING]])
def test_unwatched(before):
    """RO-1: a slot that is watched no longer has neither a stream nor a timer and says nothing more."""
    pool = Pool()
    made = watch(pool)
    for each in before:
        pool.hear(each)
    told = list(pool.told)
    made.feed(Unwatched())
    made.feed(Unwatched())
    assert (pool.done, pool.due) == (["cancelled"], None)
    for late in (NOT_SERVING, SERVING, Ended("CANCELLED")):
        pool.hear(late)
    assert (pool.told, pool.due) == (told, None)


def test_an_unused_connection_rests():
    """RO-1, CB-14: a stream does not keep a connection that no call uses."""
    pool = Pool()
    watch(pool)
    pool.hear(SERVING)
    pool.used = 500.0
    pool.wake()
    assert pool.due == 500.0 + CONNECT.idle_timeout
    pool.wake()
    assert (pool.done, pool.due) == (["cancelled", "rests"], None)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (SERVING, ""),
        (b"\x08\x02\x08\x01", ""),  # the last one counts
        (b"\x12\x02hi\x08\x01\x1d1234\x2112345678\x28\x80\x01", ""),  # fields of later versions
        (b"", "the server reports UNKNOWN"),
        (b"\x08\x03", "the server reports SERVICE_UNKNOWN"),
        (b"\x08\x80\x01", "the server reports the status 128"),
        (b"\x0a\x01x", "the server reports UNKNOWN"),  # a field of another type is one of a later version
    ],
)
def test_messages(message, problem):
    """RO-1: a HealthCheckResponse is read as protobuf says."""
    assert problem_of(message) == problem


@pytest.mark.parametrize(
    "message",
    [b"\xff\xff\xff", b"\x08", b"\x00", b"\x0b", b"\x12\x05x", b"\x15123", b"\x08" + b"\x80" * 20, b"no"],
)
def test_garbage(message):
    """RO-1: anything but a HealthCheckResponse means that the server is not serving."""
    assert problem_of(message) == "its health service sent no HealthCheckResponse"


@given(st.binary(max_size=40))
def test_any_bytes(message):
    """RO-1: whatever a server sends is read, without an exception."""
    assert isinstance(problem_of(message), str)


@given(st.text(max_size=300))
def test_requests(service):
    """RO-1: a request is what protobuf's own code writes."""
    from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

    assert HealthCheckRequest.FromString(request_for(service)).service == service
    for status in HealthCheckResponse.ServingStatus.values():
        named = HealthCheckResponse.ServingStatus.Name(status)
        said = problem_of(HealthCheckResponse(status=status).SerializeToString())
        assert said == ("" if named == "SERVING" else f"the server reports {named}")
