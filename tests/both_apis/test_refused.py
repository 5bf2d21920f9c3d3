"""RT-13: streams that the server refuses, on both APIs, and statuses that only say so."""

from __future__ import annotations

import contextlib

import pytest

from grpc_backoff import CallRetried, CallSucceeded, WaitSource
from grpc_backoff.decide.connections.slot_events import SlotServing
from tests.both_apis.test_retries import CODE
from tests.both_apis.wire import REFUSED_STREAM, Streams
from tests.sync.service import front, until

CANCEL = 8
SLOW = "retry: 3, delay: 100ms, backoff: fixed, jitter: none"


@pytest.fixture
def opened(ours, log):
    """Return a function that opens a channel to a server with these answers."""

    @contextlib.contextmanager
    def opens(streams, retry=SLOW, options=()):
        with front(streams) as made, ours.channel(made.target, options, retry=retry, listeners=[log.hear]) as channel:
            yield channel

    return opens


def sources(log):
    return [(event.attempt, event.code, event.source, event.delay) for event in log.of(CallRetried)]


REFUSED = (1, "UNAVAILABLE", WaitSource.REFUSED, 0.0)


@pytest.mark.parametrize("refusals", [1, 2])
def test_refused(opened, way, log, refusals):
    """RT-13: a call with a policy whose stream is refused is retried once without a wait, as an attempt like others.

    After a second refusal, the call waits as after any first failure.
    """
    streams = Streams(*[REFUSED_STREAM] * refusals)
    with opened(streams) as channel:
        assert channel.begin(way).outcome().texts == ["a"]
        until(lambda: log.of(CallSucceeded))
    assert sources(log) == [REFUSED, (2, "UNAVAILABLE", WaitSource.SCHEDULE, 0.1)][:refusals]
    assert streams.previous == [None, "1", "2"][: refusals + 1]


@pytest.mark.parametrize("retry", [None, "retry: 0", "retry: 3, codes: ABORTED"])
def test_without_a_policy_for_it(opened, way, retry):
    """RT-13, CH-7: a call that does not retry UNAVAILABLE is not repeated: HAProxy refuses what was executed."""
    streams = Streams(REFUSED_STREAM)
    with opened(streams, retry) as channel:
        assert channel.begin(way).outcome().code is CODE.UNAVAILABLE
    assert streams.previous == [None]


def test_what_a_server_forges(opened, log):
    """RT-13: a server that sends the text as its status changes only when a call is retried, never how often."""
    with opened(Streams(REFUSED_STREAM), None) as channel:
        text = channel.begin().outcome().details
    streams = Streams(*[text] * 9)
    with opened(streams, "retry: 1, delay: 1ms") as channel:
        outcome = channel.begin().outcome()
        assert outcome.code is CODE.UNAVAILABLE
        assert outcome.details.startswith(text)
    assert streams.previous == [None, "1"]
    assert sources(log) == [REFUSED]
    streams.previous.clear()
    with opened(streams, None) as channel:
        assert channel.begin().outcome().details == text
    assert streams.previous == [None]


def test_reset_for_another_reason(opened, log):
    """RT-13: a stream that is reset with another code is not refused."""
    with opened(Streams(CANCEL)) as channel:
        assert channel.begin().outcome().code is CODE.CANCELLED
    assert not log.of(CallRetried)


def test_on_another_connection(opened, log):
    """RT-13: the next attempt takes another connection of the pool, if one serves."""
    streams = Streams()
    options = [("grpc_backoff.max_connections", 2), ("grpc_backoff.streams_per_connection", 1)]
    with opened(streams, options=options) as channel:
        channel.ready()
        while len(channel.own.connection_status().connections) < 2:
            streams.answers[:] = [None] * 4
            for call in [channel.begin() for _ in range(4)]:
                call.outcome()
        until(lambda: log.of(SlotServing))  # of the second connection; the first is not announced
        streams.visits.clear()
        streams.answers[:] = [REFUSED_STREAM, None] * 10
        for _ in range(10):
            assert channel.begin().outcome().texts == ["a"]
    assert all(first != second for first, second in zip(streams.visits[::2], streams.visits[1::2], strict=True))
