"""RT-8: retried calls of all four arities on both APIs, against a server that fails at every stage of a call.

The waits between attempts are a few milliseconds of real time.
"""

from __future__ import annotations

import threading

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpc_backoff import CallRetried
from grpc_backoff.testing.front import healthy
from tests.both_apis.tries import Tries, counts, fails
from tests.echo import Message
from tests.sync.service import INITIAL, TRAILING, front, place, until

CODE = grpc.StatusCode
BUFFER = "grpc.per_rpc_retry_buffer_size"
PLAINTEXT_AND_TLS = pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])


def joined(way, texts):
    """Return the texts of the responses of an echo to these requests."""
    return list(texts) if way == "Both" else ["".join(texts)]


# Failures before the first response.


@PLAINTEXT_AND_TLS
@pytest.mark.parametrize("headers", [(), INITIAL], ids=["before headers", "after headers"])
def test_failure_before_the_answer(trying, way, tls, headers):
    """RT-8: an attempt that fails before its first response is retried, even if it had sent initial metadata."""
    with trying(fails(headers=headers), fails(1, headers=headers), tls=tls) as (service, channel):
        outcome = channel.begin(way, ["a", "b"]).outcome()
        assert (outcome.code, outcome.texts) == (CODE.OK, joined(way, "ab"))
        assert service.previous == [None, "1", "2"]
        assert "".join(service.got[-1]) == "ab"


@pytest.mark.parametrize("size", [1, 20_000], ids=["small", "large"])
@pytest.mark.parametrize("failures", [(0, 1), (1, 2), (5, 6), (9, 10), (None, None)])
def test_failure_while_requests_are_sent(trying, sending, size, failures):
    """RT-8: if an attempt fails while requests are being sent, or after, the next gets every request from the start."""
    texts = [f"{number} " + "x" * size for number in range(10)]
    with trying(*map(fails, failures)) as (service, channel):
        assert channel.begin(sending, texts).outcome().texts == joined(sending, texts)
        assert service.got == [*(texts[:after] for after in failures), texts]


def test_no_requests_at_all(trying, sending):
    """RT-8: a stream without any requests is empty in each attempt."""
    with trying(fails(None)) as (service, channel):
        assert channel.begin(sending, []).outcome().texts == joined(sending, [])
        assert service.got == [[], []]


# Attempts that end while requests are being sent.

LARGE = [f"{number}" + "x" * 100_000 for number in range(20)]
WIDE = [(BUFFER, 100_000_000)]


@pytest.mark.parametrize("after", [0, 1])
def test_the_status_is_the_servers(trying, sending, after):
    """RT-2: an error that is not retried reaches the caller as the server sent it, even after a failed write."""
    with trying(fails(after, code=CODE.NOT_FOUND, trailing=TRAILING)) as (service, channel):
        outcome = channel.begin(sending, LARGE).outcome()
        assert (outcome.code, outcome.details) == (CODE.NOT_FOUND, "not now")
        assert set(TRAILING) <= {tuple(pair) for pair in outcome.error.trailing_metadata()}
        assert len(service.got) == 1


def answers_early(requests, _context):
    yield next(requests)


@pytest.mark.parametrize("texts", [["a"] * 20, LARGE], ids=["small", "large"])
def test_an_early_answer(trying, sending, texts):
    """CH-7: if the server responds before reading all requests of an iterator, the call ends without a retry."""
    with trying(answers_early) as (service, channel):
        outcome = channel.begin(sending, (text for text in texts)).outcome()
        assert (outcome.code, outcome.texts) == (CODE.OK, texts[:1])
        assert len(service.got) == 1


def test_broken_connection(trying, ours, sending):
    """RT-8: if the connection breaks while requests are being sent, the next attempt gets all of them."""
    options = [*WIDE, ("grpc.initial_reconnect_backoff_ms", 50)]
    with (
        place(Tries(fails(1, when=threading.Event()), *[counts] * 20)) as server,
        front(healthy, server.port) as peer,
        ours.channel(peer.target, options, retry="retry: 20, delay: 50ms") as channel,
    ):
        call = channel.begin(sending, LARGE)
        until(lambda: server.servicer.got and server.servicer.got[0])
        peer.break_all()
        assert call.outcome().texts == [str(len(LARGE))]
        assert server.servicer.got[-1] == LARGE


# The end of retries, which depends on what the caller has seen.


@pytest.mark.parametrize("method", ["Down", "Both"])
def test_headers_that_were_seen(trying, method):
    """RT-8: reading an attempt's initial metadata commits the call."""
    shown = threading.Event()
    with trying(fails(headers=INITIAL, when=shown)) as (service, channel):
        call = channel.begin(method)
        assert set(INITIAL) <= set(call.metadata("initial"))
        shown.set()
        assert call.outcome().details == "not now"
        assert len(service.got) == 1


@PLAINTEXT_AND_TLS
@pytest.mark.parametrize("method", ["Down", "Both"])
def test_failure_behind_the_first_answer(trying, ours, method, tls):
    """RT-8: once a response has reached the caller, the call is not retried, and the error follows that response."""
    with trying(fails(), fails(1, answers=2), tls=tls) as (service, channel):
        call = channel.begin(method)
        assert [call.read(), call.read()] == ["answer 0", "answer 1"]
        outcome = call.outcome()
        assert (outcome.code, outcome.details) == (CODE.UNAVAILABLE, "not now")
        assert not isinstance(outcome.error, ours.module.RetriesExhaustedError)
        assert len(service.got) == 2


# Requests that depend on responses.


def in_turn(texts):
    """Return the steps of a stream that waits for an event before it sends each text, and these events."""
    events = [threading.Event() for _ in texts]

    def steps():
        for event, text in zip(events, texts, strict=True):
            yield event
            yield text

    return steps(), events


def test_ping_pong(trying):
    """RT-8: a call that alternates requests and responses is retried until its first response."""
    steps, events = in_turn("abc")
    with trying(fails(1), fails(1)) as (service, channel):
        call = channel.begin("Both", steps)
        for event, text in zip(events, "abc", strict=True):
            event.set()
            assert call.read() == text
        assert call.outcome().texts == []
        assert service.got == [["a"], ["a"], ["a", "b", "c"]]


def answers_once_then_fails(requests, context):
    yield next(requests)
    next(requests)
    context.abort(CODE.UNAVAILABLE, "not now")


def test_ping_pong_that_fails_behind_an_answer(trying):
    """RT-8: a call that alternates requests and responses is not retried after its first response."""
    steps, events = in_turn("ab")
    with trying(answers_once_then_fails) as (service, channel):
        call = channel.begin("Both", steps)
        events[0].set()
        assert call.read() == "a"
        events[1].set()
        outcome = call.outcome()
        assert (outcome.code, outcome.details) == (CODE.UNAVAILABLE, "not now")
        assert service.got == [["a", "b"]]


# Any failure.


@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 10, 5_000, 70_000]), max_size=8),
    failures=st.lists(st.integers(0, 8) | st.none(), max_size=3),
)
def test_replay(trying, sending, sizes, failures):
    """RT-8: for any requests and failures, the attempt that succeeds gets every request once, in order."""
    texts = [f"{number}" + "x" * size for number, size in enumerate(sizes)]
    with trying(*map(fails, failures), options=[(BUFFER, 1 << 20)]) as (service, channel):
        assert channel.begin(sending, texts).outcome().texts == joined(sending, texts)
        assert service.got == [*(texts[:after] for after in failures), texts]


# The size limit.


def text_of(size):
    """Return the text whose request takes this many bytes."""
    texts = ("x" * text for text in range(size - 10, size))
    return next(text for text in texts if len(Message(text=text).SerializeToString()) == size)


@pytest.mark.parametrize("options", [[], [(BUFFER, 1000)]], ids=["default", "small"])
@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("pieces", [1, 4])
def test_replay_limit(trying, sending, ours, options, over, pieces):
    """RT-8: requests up to the limit, 256 KiB or the option's value, are replayed; with one byte more they are not."""
    limit = options[0][1] if options else 262_144
    texts = [text_of(limit // pieces)] * (pieces - 1) + [text_of(limit // pieces + over)]
    with trying(fails(None), options=options) as (service, channel):
        outcome = channel.begin(sending, texts).outcome()
        if over:
            assert (outcome.code, outcome.details) == (CODE.UNAVAILABLE, "not now")
            assert not isinstance(outcome.error, ours.module.RetriesExhaustedError)
        else:
            assert outcome.texts == joined(sending, texts)
        assert service.got == [texts] * (1 if over else 2)


def test_limit_passed_between_two_attempts(trying, sending, log):
    """RT-8: if a request sent between two attempts exceeds the limit, the next attempt is the last."""
    texts = ["a", "b" * 2000]
    steps, events = in_turn(texts)
    retry = "retry: 3, delay: 200ms, jitter: none"
    with trying(fails(1), fails(None), options=[(BUFFER, 1000)], retry=retry) as (service, channel):
        call = channel.begin(sending, steps)
        events[0].set()
        log.until(CallRetried)
        events[1].set()
        outcome = call.outcome()
        assert (outcome.code, outcome.details) == (CODE.UNAVAILABLE, "not now")
        assert service.got == [["a"], texts]


def test_limit_passed_while_the_next_attempt_runs(trying, sending):
    """RT-8: a request that exceeds the limit reaches the running attempt, even if an earlier attempt was reading it."""
    texts = ["a", "b" * 2000, "c"]
    steps, events = in_turn(texts)
    with trying(fails(1), options=[(BUFFER, 1000)]) as (service, channel):
        call = channel.begin(sending, steps)
        events[0].set()
        until(lambda: service.got == [["a"], ["a"]])
        events[1].set()
        events[2].set()
        assert call.outcome().texts == joined(sending, texts)
        assert service.got == [["a"], texts]


def test_a_stream_beyond_the_limit(trying, sending):
    """RT-8: beyond the limit, the stream continues normally on the attempt to which the call is committed."""
    texts = [f"{number}" + "x" * 500 for number in range(50)]
    retried = threading.Event()
    steps = (each for text in texts for each in ([retried, text] if text == texts[5] else [text]))
    with trying(fails(1), options=[(BUFFER, 10_000)]) as (service, channel):
        call = channel.begin(sending, steps)
        until(lambda: len(service.got) == 2)
        retried.set()
        assert call.outcome().texts == joined(sending, texts)
        assert service.got[1] == texts
