"""RT-1 to RT-10: retried calls on both APIs, however they are made: attempts, waits, metadata and outcomes.

These tests cover what can only be seen on the wire. The pure tests of the state machine (`tests/decide/calls`) cover
which attempts follow which outcomes, and when. Waits are short and in real time. The tests compare the waits that the
channel reports, so a slow machine only makes the tests slower.
"""

from __future__ import annotations

import email.utils
import json
import time

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import DebugInfo, RetryInfo
from google.rpc.status_pb2 import Status

import grpc_backoff
from grpc_backoff import (
    CallExhausted,
    CallRetried,
    CallSucceeded,
    NoConnectionError,
    Reason,
    RetriesExhaustedError,
    RetryHooks,
    WaitSource,
)
from grpc_backoff.policy.checks import STATUS_CODES
from tests.aio.retry_service import Breaking, Chance
from tests.both_apis.api import backoff_ms
from tests.both_apis.tries import Tries, fails, hangs, pushback
from tests.both_apis.wire import counting
from tests.echo import Message
from tests.sync.service import front, place, until

CODE = grpc.StatusCode
DOWN = fails()
QUICK = "retry: 3, delay: 1ms"
RECONNECTS_SOON = backoff_ms(50, 50)


@pytest.fixture
def server():
    with place(Tries()) as made:
        yield made


@pytest.fixture
def opened(ours, server, log):
    """Return a function that opens a channel to the server with a given policy."""

    def open_channel(retry, **how):
        return ours.channel(server.target, listeners=[log.hear], retry=retry, **how)

    return open_channel


def script(server, *behaviours):
    server.servicer.got.clear()
    server.servicer.behaviours[:] = behaviours


def answers_then_hangs(requests, context):
    """Answer once, and then do nothing until the attempt ends."""
    yield next(requests)
    yield from hangs(requests, context)


def attempts(server):
    return len(server.servicer.got)


# A step that raises.


def test_a_generator_that_raises(opened, way, server):
    """CH-1: an exception from a user-supplied random generator ends the call that used it, and no other call."""
    rng = Breaking()
    with opened("retry: 2, delay: 10ms, jitter: full", rng=rng) as channel:
        channel.ready()
        rng.broken = True
        script(server, DOWN, DOWN)
        for _ in range(2):
            call = channel.begin(way)
            with pytest.raises(ZeroDivisionError, match="no chance"):
                call.outcome()
            assert call.done()
        assert channel.begin(way).outcome().texts == ["a"]


# The number of attempts (RT-1) and the retryable codes (RT-2).


@pytest.mark.parametrize("retry", [None, {}, {"echo.v1.Echo/Other": "standard"}, "retry: 0", "max_attempts: 1"])
def test_off_unless_asked_for(opened, ours, server, log, retry):
    """RT-1: a call is not retried unless a policy says so, and its error is then grpc's own."""
    with opened(retry) as channel:
        script(server, *[DOWN] * 9)
        error = channel.begin().outcome().error
        assert (error.code(), attempts(server)) == (CODE.UNAVAILABLE, 1)
        assert type(error) is ours.error
    assert not log.of(CallRetried)
    assert not log.of(CallExhausted)


def test_retried(opened, way, server, log):
    """RT-2, RT-10: a retry repeats the same requests and sends the number of earlier attempts."""
    with opened(QUICK) as channel:
        script(server, DOWN, DOWN)
        assert channel.begin(way).outcome().texts == ["a"]
        until(lambda: log.of(CallSucceeded))
    assert server.servicer.previous == [None, "1", "2"]
    assert server.servicer.got[-1] == ["a"]
    events = log.of(CallRetried)
    assert [(event.attempt, event.code) for event in events] == [(1, "UNAVAILABLE"), (2, "UNAVAILABLE")]
    assert len({event.call_id for event in events}) == 1


def test_metadata_of_each_attempt(opened, ours, way, server):
    """RT-10: each attempt sends the caller's metadata in order, with duplicates; a retry also sends its number."""
    mine = (("mine", "1"), ("mine", "2"), ("mine-bin", b"\x00\xff"))
    with opened(QUICK) as channel:
        script(server, *[DOWN] * 3)
        assert channel.begin(way, metadata=mine).outcome().texts == ["a"]
        script(server, *[DOWN] * 3)
        channel.begin(way, metadata=ours.metadata(*mine, ("grpc-previous-rpc-attempts", "77"))).outcome()
    for pairs in server.servicer.pairs:
        assert [pair for pair in pairs if pair[0].startswith("mine")] == list(mine)
    assert server.servicer.previous[:4] == [None, "1", "2", "3"]
    assert server.servicer.previous[5:] == ["1", "2", "3"]


@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip])
@pytest.mark.parametrize("method", ["Unary", "Down"])
def test_compression_of_each_attempt(ours, server, method, compression):
    """CH-1: the call's compression applies to every attempt."""
    text, sent = "a" * 50_000, []
    script(server, DOWN, DOWN)
    with front(counting(sent), server.port) as peer, ours.channel(peer.target, retry=QUICK) as channel:
        assert channel.begin(method, [text], compression=compression).outcome().texts == [text]
    assert attempts(server) == 3
    assert (sum(sent) < 50_000) == (compression is not None)
    assert (sum(sent) > 150_000) == (compression is None)


@pytest.mark.parametrize("method", ["Unary", "Down"])
def test_metadata_and_request_are_those_of_the_call(trying, log, method):
    """CH-1: changing the request or the metadata after the call was made affects none of its attempts."""
    request, metadata = Message(text="before", count=1), [("mine", "before")]
    with trying(fails(1), fails(1), retry="retry: 2, delay: 50ms, jitter: none") as (service, channel):
        call = channel.begin(method, request, metadata=metadata)
        log.until(CallRetried)
        request.text = "after"
        metadata[0] = ("mine", "after")
        assert call.outcome().texts == ["before"]
    assert service.got == [["before"]] * 3
    assert [sent["mine"] for sent in service.metadata] == ["before"] * 3


@pytest.mark.parametrize("retry", ["retry: 8, delay: 1ms", "max_attempts: 9"])
def test_more_than_the_core_makes(opened, server, log, retry):
    """RT-1: a call makes as many attempts as its policy allows, even more than gRPC's five, and ends with one event."""
    with opened(retry) as channel:
        script(server, *[DOWN] * 9)
        error = channel.begin().outcome().error
        assert attempts(server) == error.attempts == 9
        assert error.reason is Reason.ATTEMPTS
        script(server, *[DOWN] * 8)
        assert channel.begin().outcome().texts == ["a"]
        assert attempts(server) == 9
        until(lambda: log.of(CallSucceeded))
    ends = [event for event in log if isinstance(event, CallExhausted | CallSucceeded)]
    assert [type(event) for event in ends] == [CallExhausted, CallSucceeded]
    assert ends[1].attempt == 9


@pytest.mark.parametrize("code", STATUS_CODES)
def test_codes(opened, ours, server, code):
    """RT-2: only UNAVAILABLE and RESOURCE_EXHAUSTED are retried, unless the policy lists other codes."""
    usual = 2 if code in {"UNAVAILABLE", "RESOURCE_EXHAUSTED"} else 1
    other = "DATA_LOSS" if code == "INTERNAL" else "INTERNAL"
    for listed, count in (("", usual), (f", codes: {code.lower()}", 2), (f", codes: {other.lower()}", 1)):
        with opened(f"retry: 1, delay: 1ms{listed}") as channel:
            script(server, fails(code=CODE[code], details="because"))
            outcome = channel.begin().outcome()
        assert attempts(server) == count
        assert outcome.texts == (["a"] if count == 2 else None)
        assert count == 2 or (type(outcome.error), outcome.code, outcome.details) == (ours.error, CODE[code], "because")


def test_schedule(opened, server, log):
    """RT-1, CB-11: the waits follow the policy, with jitter from the channel's own random generator."""
    with opened("retry: 3, delay: 20ms, backoff: exponential, jitter: full", rng=Chance(0.5)) as channel:
        script(server, *[DOWN] * 3)
        began = time.monotonic()
        assert channel.begin().outcome().texts == ["a"]
        assert time.monotonic() - began >= 0.07 - 0.005  # uvloop counts milliseconds, in each of three waits
        until(lambda: log.of(CallSucceeded))
    assert [event.delay for event in log.of(CallRetried)] == pytest.approx([0.01, 0.02, 0.04])
    assert {event.source for event in log.of(CallRetried)} == {WaitSource.SCHEDULE}


# Server hints (RT-3).


def retry_info(seconds):
    duration = Duration()
    duration.FromNanoseconds(int(seconds * 1e9))
    status = Status(code=14, message="not now")
    for message in (DebugInfo(detail="the first detail is another"), RetryInfo(retry_delay=duration)):
        status.details.add().Pack(message)
    return fails(trailing=(("grpc-status-details-bin", status.SerializeToString()),))


def retry_after(value):
    return fails(trailing=(("retry-after", value),))


def date(seconds):
    return email.utils.formatdate(time.time() + seconds, usegmt=True)


PUSHBACK, RETRY_INFO, RETRY_AFTER = WaitSource.PUSHBACK, WaitSource.RETRY_INFO, WaitSource.RETRY_AFTER

HINTS = {
    "pushback 0": (pushback("0"), 0.0, PUSHBACK),
    "pushback 250": (pushback("250"), 0.25, PUSHBACK),
    "pushback of 25 days": (pushback("2147483647"), 0.26, PUSHBACK),
    "RetryInfo 50 ms": (retry_info(0.05), 0.05 + 0.02, RETRY_INFO),
    "RetryInfo of a day": (retry_info(86_400), 0.26 + 0.02, RETRY_INFO),
    "retry-after 0": (retry_after("0"), 0.02, RETRY_AFTER),
    "retry-after 317 years": (retry_after("9999999999"), 0.26 + 0.02, RETRY_AFTER),
    "a date that has passed": (retry_after(date(-60)), 0.02, RETRY_AFTER),
    "a date to come": (retry_after(date(90_000)), 0.26 + 0.02, RETRY_AFTER),
    "initial metadata": (fails(headers=(("retry-after", "0"),)), 0.02, RETRY_AFTER),
    "nothing that can be read": (retry_after("soon"), 0.01, WaitSource.SCHEDULE),
}
"""Hints, each with its wait and source; `tests/decide/calls/test_server_hint.py` covers all possible hints."""


@pytest.mark.parametrize(("said", "wait", "source"), HINTS.values(), ids=HINTS)
def test_the_server_says_when(opened, server, log, said, wait, source):
    """RT-3: a pushback sets the exact wait; other hints add jitter from the channel's generator.

    `max_server_delay` limits what a server can ask for.
    """
    policy = "retry: 4, delay: 10ms, backoff: exponential, server_delay_jitter: 40ms, max_server_delay: 260ms"
    with opened(policy, rng=Chance(0.5)) as channel:
        script(server, said)
        began = time.monotonic()
        assert channel.begin().outcome().texts == ["a"]
        assert time.monotonic() - began >= wait - 0.002  # uvloop counts milliseconds
        until(lambda: log.of(CallRetried))
    (event,) = log.of(CallRetried)
    assert (event.delay, event.source) == (pytest.approx(wait), source)


@pytest.mark.parametrize("value", ["-1", "abc"])
def test_the_server_wants_no_retry(opened, server, log, value):
    """RT-3: a negative or malformed pushback ends the call, and its error says that the server asked for no retry."""
    with opened(QUICK) as channel:
        script(server, pushback(value))
        error = channel.begin().outcome().error
        until(lambda: log.of(CallExhausted))
    assert attempts(server) == error.attempts == 1
    assert error.reason is log.of(CallExhausted)[0].reason is Reason.STOPPED
    assert f"not now; gave up: {Reason.STOPPED.value} (1 attempt in " in error.details()


TOO_LONG = {
    "the schedule calls": DOWN,
    "the server's grpc-retry-pushback-ms asks": pushback("2147483647"),
    "the server's google.rpc.RetryInfo asks": retry_info(86_400),
    "the server's retry-after asks": retry_after(date(90_000)),
}


@pytest.mark.parametrize("asks", TOO_LONG)
def test_a_wait_past_the_deadline(opened, server, log, asks):
    """RT-3, RT-7: the call fails at once if the wait that follows would exceed the deadline; its error says so."""
    with opened("retry: 5, delay: 1h, max_delay: 1h") as channel:
        script(server, TOO_LONG[asks])
        error = channel.begin(timeout=600).outcome().error  # `outcome` gives up after 20 s
    assert (error.code(), error.attempts, error.reason) == (CODE.UNAVAILABLE, 1, Reason.DEADLINE)
    text = str(error)
    assert "not now" in error.details()
    assert f"; gave up: {Reason.DEADLINE.value} (1 attempt in " in text
    assert f" s; {asks} for a wait of " in text
    assert not log.of(CallRetried)


# Giving up (RT-6).


@pytest.mark.parametrize(("details", "told"), [("quota", "quota; gave up"), ("", "gave up")])
def test_exhausted(opened, ours, way, server, log, details, told):
    """RT-6: the error has the last attempt's code, details and metadata, the number of attempts, and the time taken."""
    trailing = (("last", "2"), ("last-bin", b"\xfe\x00"))
    with opened("retry: 2, delay: 30ms") as channel:
        script(server, DOWN, DOWN, fails(code=CODE.RESOURCE_EXHAUSTED, details=details, trailing=trailing))
        error = channel.begin(way).outcome().error
        until(lambda: log.of(CallExhausted))
    assert isinstance(error, RetriesExhaustedError)
    assert isinstance(error, ours.error)
    assert error.code() is CODE.RESOURCE_EXHAUSTED
    assert error.details().startswith(f"{told}: {Reason.ATTEMPTS.value} (3 attempts in ")
    assert set(trailing) <= {tuple(pair) for pair in error.trailing_metadata()}
    assert (error.attempts, error.reason) == (3, Reason.ATTEMPTS)
    assert 0.06 <= error.took < 30
    assert error.__cause__.details() == details
    (event,) = log.of(CallExhausted)
    assert (event.target, event.attempt, event.code) == (server.target, 3, "RESOURCE_EXHAUSTED")
    assert event.took == error.took


@pytest.mark.parametrize("code", [CODE.RESOURCE_EXHAUSTED, CODE.CANCELLED])
def test_exhausted_with_a_rich_status(opened, way, server, code):
    """RT-6: with a rich status, the details are the server's alone, since readers of that status compare them."""
    rich = Status(code=code.value[0], message="quota")
    with opened("retry: 1, delay: 10ms, codes: RESOURCE_EXHAUSTED, CANCELLED") as channel:
        failing = fails(code=code, details="quota", trailing=(("grpc-status-details-bin", rich.SerializeToString()),))
        script(server, failing, failing)
        error = channel.begin(way).outcome().error
    assert isinstance(error, RetriesExhaustedError)
    assert (error.code(), error.details()) == (code, "quota")
    assert ("grpc-status-details-bin", rich.SerializeToString()) in map(tuple, error.trailing_metadata())
    assert "; gave up: no attempts are left (2 attempts in " in error.debug_error_string()
    assert error.debug_error_string() in str(error)


def test_no_connection_is_retried(ours, way, nowhere):
    """RT-2, RT-6, CH-4: a call without a connection is retried as UNAVAILABLE; its final error still says why."""
    with ours.channel(nowhere.target, retry="retry: 3, delay: 10ms") as channel:
        error = channel.begin(way).outcome().error
    assert (error.code(), error.attempts) == (CODE.UNAVAILABLE, 4)
    assert "last error: tcp: failed to connect" in error.details()
    assert "(4 attempts in " in error.details()
    assert isinstance(error.__cause__, NoConnectionError)
    assert error.__cause__.status.last_error is not None


# Timeouts and deadlines (RT-7).


def test_time_for_each_attempt(opened, way, server, log):
    """RT-7: the policy's `timeout` is sent to the server; an attempt that exceeds it is cancelled there and retried."""
    with opened("retry: 3, delay: 1ms, timeout: 500ms") as channel:
        script(server, hangs)
        assert channel.begin(way, timeout=60).outcome().texts == ["a"]
        until(lambda: log.of(CallSucceeded))
    until(lambda: server.servicer.ended == len(server.servicer.metadata))
    assert {event.code for event in log.of(CallRetried)} == {"DEADLINE_EXCEEDED"}
    assert all(remaining <= 1.5 for remaining in server.servicer.remaining)  # grpc rounds up on the wire


def test_time_that_the_service_config_gives(opened, server):
    """RT-7: a `timeout` in the service config also bounds the call as a whole.

    The test does not check how long the call takes: grpc's core applies this timeout too, and counts it from up to two
    seconds before each attempt.
    """
    options = [("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], "timeout": "0.6s"}]}))]
    with opened("max_attempts: unlimited, delay: 1ms, timeout: 200ms", options=options) as channel:
        script(server, *[hangs] * 1000)
        assert channel.begin(timeout=60).outcome().code is CODE.DEADLINE_EXCEEDED


def test_one_attempt_that_meets_the_deadline(opened, ours, server, log):
    """RT-7: if the call's deadline ends its first attempt, the error is grpc's own, as on a plain channel."""
    with opened("retry: 5, delay: 1ms, timeout: 10s") as channel:
        channel.ready()
        script(server, hangs)
        error = channel.begin(timeout=0.2).outcome().error
        assert (type(error), error.code()) == (ours.error, CODE.DEADLINE_EXCEEDED)
    assert not log.of(CallExhausted)


@pytest.mark.parametrize(
    "retry", ["retry: 5, delay: 1ms", "retry: 0", {"*": QUICK, "echo.v1.Echo": "hedge: 60s, attempts: 2"}]
)
def test_the_text_of_a_deadline(opened, server, way, retry):
    """RT-7: a call with a policy that meets its deadline has the text that a plain unary call has."""
    with opened(retry) as channel:
        channel.ready()
        script(server, hangs)
        outcome = channel.begin(way, timeout=0.2).outcome()
    assert (outcome.code, outcome.details) == (CODE.DEADLINE_EXCEEDED, "Deadline Exceeded")


def test_the_text_of_a_deadline_after_attempts(opened, server, way):
    """RT-6, RT-7: so has one that gives up; the account of the attempts follows."""
    with opened("retry: 1, delay: 1ms, timeout: 200ms") as channel:
        channel.ready()
        script(server, hangs, hangs)
        outcome = channel.begin(way, timeout=60).outcome()
    assert outcome.code is CODE.DEADLINE_EXCEEDED
    assert outcome.details.startswith("Deadline Exceeded; gave up: no attempts are left (2 attempts in ")


def test_a_stream_that_meets_its_deadline_later(opened, server, ours):
    """RT-7, RT-8: a committed stream that meets its deadline has that text, too."""
    with opened("retry: 5, delay: 1ms") as channel:
        channel.ready()
        script(server, answers_then_hangs)
        call = channel.begin("Down", timeout=0.5)
        assert call.read() == "a"
        outcome = call.outcome()
    assert (type(outcome.error), outcome.code) == (
        ours.error if ours.name == "asyncio" else type(outcome.error),
        CODE.DEADLINE_EXCEEDED,
    )
    assert outcome.details == "Deadline Exceeded"


TOO_LARGE = [
    (CODE.RESOURCE_EXHAUSTED, "grpc: received message larger than max (5266822 vs. 4194304)"),
    (CODE.RESOURCE_EXHAUSTED, "gRPC message exceeds maximum size 4194304: 5242886"),
    (CODE.OUT_OF_RANGE, "Error, decoded message length too large: found 5117681 bytes, the limit is: 4194304 bytes"),
]


@pytest.mark.parametrize(("code", "details"), TOO_LARGE)
def test_a_message_that_is_too_large_for_another_stack(opened, server, way, log, code, details):
    """RT-2: a message that is too large for a server in another language is sent once."""
    with opened("retry: 3, delay: 1ms, codes: RESOURCE_EXHAUSTED OUT_OF_RANGE") as channel:
        script(server, *[fails(code=code, details=details)] * 4)
        outcome = channel.begin(way).outcome()
    assert (outcome.code, outcome.details) == (code, details)
    assert attempts(server) == 1
    assert not log.of(CallRetried)


def test_metadata_that_is_too_large(opened, server, way, log):
    """RT-2: a call whose metadata exceed the core's hard limit is sent once; here, the server has executed it."""
    with opened("retry: 3, delay: 1ms") as channel:
        script(server, *[fails(trailing=(("large", "x" * 20_000),))] * 4)
        outcome = channel.begin(way).outcome()
    assert outcome.code is CODE.RESOURCE_EXHAUSTED
    assert attempts(server) == 1
    assert not log.of(CallRetried)


def test_only_what_never_ran(ours, opened, server, way):
    """RT-14: with `never_ran_only`, a text of a proxy that has not passed the call on is retried, and no other."""
    with opened("retry: 3, delay: 1ms, never_ran_only: true") as channel:
        script(server, fails(details="no healthy upstream"), fails(details="upstream request timeout"))
        outcome = channel.begin(way).outcome()
        assert (outcome.code, outcome.details) == (CODE.UNAVAILABLE, "upstream request timeout")
        assert attempts(server) == 2
    with opened(None) as channel:
        script(server, fails(details="no healthy upstream"))
        assert channel.begin().outcome().code is CODE.UNAVAILABLE, "nothing is retried without a policy"
        assert attempts(server) == 1


def test_what_had_no_connection_never_ran(ours, way, nowhere):
    """RT-14: a call without a connection never ran, so it is retried."""
    with ours.channel(nowhere.target, retry="retry: 3, delay: 10ms, never_ran_only: true") as channel:
        error = channel.begin(way).outcome().error
    assert (error.code(), error.attempts) == (CODE.UNAVAILABLE, 4)


def test_waiting_for_a_server(ours, nowhere, log):
    """CH-3, RT-7: an attempt of a wait-for-ready call waits for a connection, and does not fail meanwhile."""
    retry = "max_attempts: unlimited, delay: 20ms"
    with ours.channel(nowhere.target, RECONNECTS_SOON, retry=retry, listeners=[log.hear]) as channel:
        call = channel.begin(wait_for_ready=True, timeout=60)
        time.sleep(0.3)
        assert not log.of(CallRetried)
        nowhere.start()
        assert call.outcome().texts == ["a"]
        assert len(nowhere.servicer.got) == 1


def test_a_restart_amid_retries(opened, way, server, log):
    """RT-2, CH-3: a retried call that is fail-fast succeeds once the killed server has been restarted."""
    with opened("retry: 1000, delay: 20ms", options=RECONNECTS_SOON) as channel:
        assert channel.begin(way).outcome().texts == ["a"]
        server.kill()
        call = channel.begin(way)
        log.until(CallRetried)
        server.start()
        assert call.outcome().texts == ["a"]


# Hooks and budgets (RT-4, RT-6, RT-9).


def test_hooks(ours, way, server):
    """RT-4, RT-6: the next attempt carries the renewed credentials; `on_exhausted` is called when retries end."""
    told = []

    def refresh(failed):
        return [("authorization", f"new {failed.code.name}")]

    async def refresh_later(failed):
        return refresh(failed)

    renews = refresh_later if ours.name == "asyncio" else refresh
    hooks = RetryHooks(refresh_credentials=renews, on_exhausted=told.append)
    with ours.channel(server.target, retry="retry: 1, delay: 10ms", retry_hooks=hooks) as channel:
        script(server, fails(code=CODE.UNAUTHENTICATED), DOWN)
        assert channel.begin(way).outcome().code is CODE.UNAVAILABLE
        assert server.servicer.metadata[-1]["authorization"] == "new UNAUTHENTICATED"
        until(lambda: told)
    assert [(failed.attempt, failed.reason) for failed in told] == [(2, Reason.ATTEMPTS)]


@pytest.mark.parametrize("retry", [None, {"echo.v1.Echo/Unary": "hedge: 1s, attempts: 2"}])
def test_no_hooks_without_retries(opened, server, retry):
    """RT-4 to RT-6: calls without a retry policy, and hedged ones, have no hooks."""
    told = []
    hooks = RetryHooks(refresh_credentials=told.append, on_conflict=told.append, on_exhausted=told.append)
    with opened(retry, retry_hooks=hooks) as channel:
        for code in (CODE.UNAUTHENTICATED, CODE.ABORTED, CODE.UNAVAILABLE):
            script(server, *[fails(code=code)] * 2)
            assert channel.begin().outcome().code is code
    assert told == []


def test_budget(opened, server):
    """RT-9: calls are retried only while more than half of the retry budget is left."""
    with opened(QUICK, retry_budget=grpc_backoff.RetryBudget(max_tokens=4, token_ratio=0.1)) as channel:
        script(server, *[DOWN] * 9)
        assert channel.begin().outcome().error.reason is Reason.BUDGET
        assert attempts(server) == 2
