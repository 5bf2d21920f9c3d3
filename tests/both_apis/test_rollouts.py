"""RO-3: calls that a stopping server cancels, and policies that list CANCELLED. Runs in real time."""

from __future__ import annotations

import threading

import grpc
import pytest

from grpc_backoff import CallRetried
from tests.both_apis.tries import Tries, fails
from tests.sync.service import place, until

CODE = grpc.StatusCode
LISTED = "retry: 3, delay: 1ms, codes: UNAVAILABLE, CANCELLED"


def test_a_policy_that_lists_it(ours, way, log):
    """RO-3: a policy whose codes list CANCELLED repeats a call that the server has cancelled."""
    service = Tries(fails(code=CODE.CANCELLED))
    with place(service) as server, ours.channel(server.target, listeners=[log.hear]) as channel:
        channel.ready()
        assert channel.begin(way, retry=LISTED, timeout=20).outcome().code is CODE.OK
        until(lambda: log.of(CallRetried))
    assert len(service.got) == 2
    assert [event.code for event in log.of(CallRetried)] == [CODE.CANCELLED.name]


@pytest.mark.parametrize("retry", ["standard", "retry: 3, delay: 1ms"])
def test_a_policy_that_does_not(ours, way, retry):
    """RO-3: without CANCELLED among the codes, a call that the server has cancelled ends with CANCELLED."""
    service = Tries(fails(code=CODE.CANCELLED))
    with place(service) as server, ours.channel(server.target) as channel:
        channel.ready()
        assert channel.begin(way, retry=retry, timeout=20).outcome().code is CODE.CANCELLED
    assert len(service.got) == 1


def test_the_callers_own_cancellation(ours, cancellable):
    """RO-3: a call that its own caller cancels is not repeated, even if the codes of its policy list CANCELLED."""
    service = Tries(fails(when=threading.Event()))
    with place(service) as server, ours.channel(server.target) as channel:
        channel.ready()
        call = channel.begin(cancellable, retry=LISTED, timeout=20)
        until(lambda: service.got)
        call.cancel()
        assert call.outcome().code is CODE.CANCELLED
        assert channel.unary(timeout=20) == "a"
    assert len(service.got) == 2
