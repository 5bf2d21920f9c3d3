"""RT-15: calls that a draining server or a proxy turns away with an HTTP status, on both APIs."""

from __future__ import annotations

import contextlib

import grpc
import pytest

from grpc_backoff import AttemptStarted, CallExhausted, State
from grpc_backoff.decide.connections.slot_events import SlotOpened, SlotRetiring
from grpc_backoff.testing.front import accept_close
from tests.both_apis.api import backoff_ms
from tests.both_apis.test_subscriptions import Reader
from tests.both_apis.wire import Streams
from tests.echo import Message
from tests.sync.service import front, until

CODE = grpc.StatusCode
SLOW = "retry: 100, delay: 50ms, backoff: fixed, jitter: none"
QUICK = "max_attempts: unlimited, delay: 5ms, backoff: fixed, jitter: none, deadline: 60s"
SHORT = [*backoff_ms(50, 400), ("grpc_backoff.jitter", 0)]
STEEP = [*backoff_ms(50, 60_000), ("grpc_backoff.jitter", 0), ("grpc_backoff.multiplier", 1000)]
"""The second gap is as long as a test may take."""


class Draining(Streams):
    """Answers with an HTTP status on the first connections; a call with the text `hang` runs until others are echoed.

    Attributes:
        turning: how many connections turn calls away; a test may set it.
    """

    def __init__(self, status=503, turning=1):
        super().__init__()
        self.turning = turning
        self._status = str(status)
        self._slots = []

    def _serve(self, visit, number, wire, stream, body):
        if b"hang" in body:
            self._slots.append((visit, wire, stream, body))
        elif number < self.turning:
            wire.send_headers(stream, [(":status", self._status)], end_stream=True)
        else:
            self._answer(wire, stream, body)
            for held, *call in self._slots:
                self._answer(*call)
                held.writer.write(call[0].data_to_send())
            self._slots.clear()


@pytest.fixture
def opened(ours, log):
    """Return a function that runs a server, and opens a channel to it that is READY."""

    @contextlib.contextmanager
    def opens(behaviour, retry=SLOW, options=SHORT):
        with (
            front(behaviour) as made,
            ours.channel(made.target, options, retry=retry, listeners=[log.hear]) as channel,
        ):
            channel.ready()
            yield channel

    return opens


def test_a_draining_server(opened, way, log):
    """RT-15: a retry takes a connection made beside the old one, whose running calls finish there."""
    streams = Draining()
    with opened(streams) as channel:
        running = channel.begin(texts=["hang"], retry="retry: 0")
        until(lambda: streams.visits == [0])
        assert channel.begin(way).outcome().texts == ["a"]
        assert running.outcome().texts == ["hang"]
        assert set(streams.visits) == {0, 1}
        log.exactly(SlotRetiring, 1)
    (opening,) = log.of(SlotOpened)
    assert opening.why == "a call was answered with HTTP status 503"


@pytest.mark.parametrize("status", [502, 504])
def test_a_proxys_status(opened, status):
    """RT-15: the same holds for 502 and 504."""
    streams = Draining(status)
    with opened(streams) as channel:
        assert channel.begin().outcome().texts == ["a"]
        assert streams.visits[-1] == 1


@pytest.mark.parametrize("status", [429, 500])
def test_another_status(opened, log, status):
    """RT-15: another HTTP status says nothing of the connection."""
    streams = Draining(status, turning=9)
    with opened(streams, "retry: 3, delay: 50ms, jitter: none, backoff: fixed, codes: UNAVAILABLE, UNKNOWN") as channel:
        assert channel.begin().outcome().code is not CODE.OK
    assert streams.visits == [0] * 4
    assert not log.of(SlotOpened)


@pytest.mark.parametrize("retry", [None, "retry: 0", "retry: 3, codes: ABORTED"])
def test_without_a_retry(opened, log, retry):
    """RT-15: nothing changes for a call that is not retried."""
    streams = Draining()
    with opened(streams, retry) as channel:
        for _ in range(5):
            assert channel.begin().outcome().details == "Received http2 header with status: 503"
    assert streams.visits == [0] * 5
    assert not log.of(SlotOpened)


def test_no_other_connection(opened, log):
    """RT-15, PO-3: if the replacement cannot be made, the call goes on the old connection."""
    streams, accepted = Draining(turning=9), []

    async def behave(visit):
        accepted.append(visit)
        await (streams if len(accepted) == 1 else accept_close)(visit)

    with opened(behave) as channel:
        call = channel.begin()
        until(lambda: len(accepted) > 2 and len(streams.visits) > 3)
        assert channel.own.connection_status().state is State.READY
        streams.turning = 0
        assert call.outcome().texts == ["a"]
    assert set(streams.visits) == {0}
    log.exactly(SlotOpened, 1)


def test_a_proxy_without_a_server(opened, log):
    """RT-15: while no call is answered, connections follow each other no faster than attempts that fail."""
    streams = Draining(502, turning=1000)
    with opened(streams, QUICK) as channel:
        call = channel.begin()
        log.until(AttemptStarted, 8)
        streams.turning = 0
        assert call.outcome(60).texts == ["a"]
    gaps = log.gaps()[:7]
    assert all(gap > 0.9 * least for gap, least in zip(gaps, (0.05, 0.08, 0.128, 0.205, 0.328, 0.4, 0.4), strict=True))
    assert not log.of(CallExhausted)


def test_what_ends_the_series(opened):
    """RT-15: the gaps grow from connection to connection, until a call is answered."""
    streams = Draining(turning=2)
    with opened(streams, QUICK, STEEP) as channel:
        call = channel.begin()
        until(lambda: streams.visits.count(1) > 20)
        assert set(streams.visits) == {0, 1}, "the third would come after 50 s"
        streams.turning = 0
        assert call.outcome().texts == ["a"]
        streams.turning = 2
        assert channel.begin().outcome().texts == ["a"], "the third comes at once"
        assert streams.visits[-1] == 2


def test_hedged(opened, hedgeable):
    """RT-15: copies that are turned away lead to another connection, too, which the next call takes."""
    streams = Draining()
    with opened(streams, "hedge: 10ms, attempts: 3") as channel:
        until(lambda: channel.begin(hedgeable).outcome().code is CODE.OK)
    assert set(streams.visits) == {0, 1}  # in any order: a copy that has lost may arrive last


def test_subscription(opened):
    """RT-15: so do the streams of a subscription."""
    streams = Draining()
    with opened(streams, None) as channel:
        reader = Reader(channel, policy=SLOW, request=Message(text="a"))
        assert reader.next().text == "a"
        reader.close()
    assert streams.visits[-1] == 1
