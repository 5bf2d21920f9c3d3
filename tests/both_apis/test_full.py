"""PO-14: calls beyond what the connections may carry wait for room, on both APIs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter

import pytest

from grpc_backoff import NoConnectionError
from grpc_backoff.decide.connections.slot_events import SlotServing
from tests.both_apis.api import backoff_ms
from tests.both_apis.test_retries import CODE
from tests.sync.service import Echo, place, until

FAST = backoff_ms(50, 100)


def narrow(connections, streams):
    return [*FAST, ("grpc_backoff.max_connections", connections), ("grpc_backoff.streams_per_connection", streams)]


class Counting(Echo):
    """Counts the calls of each connection that run at the same time; each takes a few milliseconds."""

    def __init__(self):
        super().__init__()
        self.running, self.most = Counter(), Counter()
        self._lock = threading.Lock()

    def Unary(self, request, context):  # noqa: N802
        peer = context.peer()
        with self._lock:
            self.running[peer] += 1
            self.most[peer] = max(self.most[peer], self.running[peer])
        time.sleep(0.005)
        answer = super().Unary(request, context)
        with self._lock:
            self.running[peer] -= 1
        return answer


def calls_of(channel):
    return [slot.calls for slot in channel.own.connection_status().connections]


@pytest.fixture
def full(ready):
    """A function that yields a server, a channel whose two connections have two calls each, and these calls."""

    @contextlib.contextmanager
    def opens(service=None, **how):
        with place(service or Echo()) as server, ready(server.target, narrow(2, 2), **how) as channel:
            held = [channel.begin("Down", ["then hang"], timeout=60) for _ in range(4)]
            assert {call.read() for call in held} == {"then hang"}
            assert calls_of(channel) == [2, 2]
            yield server, channel, held

    return opens


def waiting(channel, count):
    until(lambda: len(channel.own._pool.pending) == count)


def test_they_wait_in_order(full, way):
    """PO-14: calls of every arity wait until others end, also fail-fast ones; those that came first go first."""
    with full() as (server, channel, held):
        first = channel.begin("Down", ["then hang"], timeout=60)
        waiting(channel, 1)
        later = channel.begin(way, ["b"], timeout=60)
        waiting(channel, 2)
        time.sleep(0.1)
        assert calls_of(channel) == [2, 2]
        held[0].cancel()
        assert first.read() == "then hang"
        assert not later.done()
        held[1].cancel()
        assert later.outcome().texts == ["b"]
        assert [got for got in server.servicer.got if got == ["b"]] == [["b"]]
        server.servicer.end()


def test_a_new_connection_takes_them(ready, log):
    """PO-14, PO-8: a call that waits causes one more connection, which takes it."""
    with place() as server, ready(server.target, narrow(3, 1)) as channel:
        held = [channel.begin("Down", ["then hang"], timeout=60) for _ in range(3)]
        assert {call.read() for call in held} == {"then hang"}
        assert calls_of(channel) == [1, 1, 1]
        log.exactly(SlotServing, 2)
        server.servicer.end()


def test_the_deadline(full, cancellable):
    """PO-14, CH-4: the wait counts against the deadline, and the error says what the call has waited for."""
    with full() as (server, channel, _):
        outcome = channel.begin(cancellable, ["late"], timeout=0.2).outcome()
        assert outcome.code is CODE.DEADLINE_EXCEEDED
        text = f"Deadline Exceeded while waiting: every connection to {server.target} had as many calls as it may have"
        assert outcome.details == text
        assert isinstance(outcome.error, NoConnectionError) or outcome.error is None
        assert ["late"] not in server.servicer.got
        server.servicer.end()


def test_cancelled(full, cancellable):
    """PO-14: a call that waits can be cancelled, and never reaches the server."""
    with full() as (server, channel, held):
        call = channel.begin(cancellable, ["never"], timeout=60)
        waiting(channel, 1)
        call.cancel()
        assert call.outcome().code is CODE.CANCELLED
        waiting(channel, 0)
        held[0].cancel()
        assert channel.unary("after", timeout=60) == "after"
        assert ["never"] not in server.servicer.got
        server.servicer.end()


def test_close(ours, full, cancellable):
    """PO-14, CB-10: closing the channel cancels the calls that wait."""
    with full() as (server, channel, _):
        call = channel.begin(cancellable, ["never"], timeout=60)
        waiting(channel, 1)
        channel.close()
        outcome = call.outcome()
        assert outcome.code is CODE.CANCELLED
        server.servicer.end()


def test_lost_connections(full, cancellable):
    """PO-14, CH-3: if all connections are lost, calls that wait become as those that find no connection."""
    with full() as (server, channel, _):
        fails = channel.begin(cancellable, ["a"], timeout=60)
        waits = channel.begin(cancellable, ["b"], timeout=60, wait_for_ready=True)
        waiting(channel, 2)
        server.kill()
        outcome = fails.outcome()
        assert outcome.code is CODE.UNAVAILABLE
        assert f"no connection to {server.target}; last error: tcp" in outcome.details
        server.start()
        assert waits.outcome().texts == ["b"]


def test_a_retry_waits(full):
    """PO-14, RT-7: an attempt of a call with a policy waits, too, and its own timeout counts the wait."""
    with full() as (server, channel, held):
        policy = "retry: 2, timeout: 200ms, delay: 10ms, jitter: none, codes: DEADLINE_EXCEEDED"
        call = channel.begin("Down", ["b"], timeout=60, retry=policy)
        outcome = call.outcome()
        assert outcome.code is CODE.DEADLINE_EXCEEDED
        assert "every connection to" in outcome.details
        held[0].cancel()
        assert channel.begin("Down", ["c"], timeout=60, retry=policy).outcome().texts == ["c"]
        server.servicer.end()


def test_no_connection_has_more(ours, ready):
    """PO-14: however many calls there are, no connection has more than it may have, and all are answered."""
    service = Counting()
    with place(service, threads=40) as server, ready(server.target, narrow(4, 5)) as channel:
        way = ours.cancellable[0]
        for _ in range(2):
            calls = [channel.begin(way, ["a"], timeout=60) for _ in range(120)]
            assert Counter(call.outcome().code for call in calls) == {CODE.OK: 120}
        until(lambda: len(channel.own._pool.pending) == 0)
    assert len(service.most) == 4
    assert max(service.most.values()) <= 5


def test_one_connection_carries_any_number(ready):
    """PO-14: a channel that may have one connection leaves calls beyond the server's limit to grpcio."""
    with (
        place(threads=40) as server,
        ready(server.target, [*FAST, ("grpc_backoff.streams_per_connection", 2)]) as channel,
    ):
        held = [channel.begin("Down", ["then hang"], timeout=60) for _ in range(10)]
        assert {call.read() for call in held} == {"then hang"}
        assert calls_of(channel) == [10]
        server.servicer.end()


def test_after_a_pause(ready):
    """PO-14, LV-1: where every peer has to answer first, calls wait for that, and then for room."""
    options = [*narrow(2, 1), ("grpc_backoff.quiet_after", 0.2)]
    with place() as server, ready(server.target, options) as channel:
        held = [channel.begin("Down", ["then hang"], timeout=60) for _ in range(2)]
        assert {call.read() for call in held} == {"then hang"}
        for call in held:
            call.cancel()
        for _ in range(3):
            time.sleep(0.4)
            calls = [channel.begin("Down", ["a"], timeout=60) for _ in range(6)]
            assert [call.outcome().texts for call in calls] == [["a"]] * 6
