"""One call with retries against a real server, plaintext and TLS: its attempts, its waits, and what its caller gets.

Here stands what only a wire can show; which attempt follows on what, and when, is held by the pure tests of the machine
(`tests/calls`). Waits are real time and short. What is compared are the waits that the channel announces; a slow
machine only makes the tests slower.
"""

from __future__ import annotations

import asyncio
import copy
import email.utils
import json
import pickle
import time

import grpc
import grpc.aio
import pytest
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import DebugInfo, RetryInfo
from google.rpc.status_pb2 import Status

from grpc_backoff import CallExhausted, CallRetried, CallSucceeded, Reason, WaitSource, aio
from grpc_backoff.aio.clock import LoopClock
from grpc_backoff.policy.checks import STATUS_CODES
from grpc_backoff.testing.front import FlakyFront, silent
from tests.aio.retry_service import CODE, HANG, METHOD, Chance, Say, answered, failing, peer, retried
from tests.aio.test_drop_in_transport import Token
from tests.echo import Echo, EchoStub, Message, serving

__all__ = ["peer"]

DOWN = Say()
NEVER = [DOWN] * 1000
QUICK = "retry: 3, delay: 1ms"
RETRIED = {"UNAVAILABLE", "RESOURCE_EXHAUSTED"}


# How often (RT-1), and after which codes (RT-2).


@pytest.mark.parametrize("retry", [None, {}, {"echo.v1.Echo/Down": "standard"}, "retry: 0", "max_attempts: 1"])
async def test_off_unless_asked_for(peer, retry):
    """RT-1: nothing is retried without a policy that says so, and the error is grpc's own."""
    client = peer.client(retry)
    peer.service.scripts["a"] = NEVER
    assert type(await failing(client.call())) is grpc.aio.AioRpcError
    assert len(peer.service.tries["a"]) == 1
    assert not client.of(CallRetried)
    assert not client.of(CallExhausted)


@pytest.mark.parametrize("retry", ["retry: 8, delay: 1ms", "max_attempts: 9"])
async def test_more_than_the_core_makes(peer, retry):
    """RT-1: there are as many attempts as the policy says, and not gRPC's five; each end is told once."""
    client = peer.client(retry)
    peer.service.scripts |= {"a": NEVER, "b": [DOWN] * 8}
    error = await failing(client.call())
    assert len(peer.service.tries["a"]) == error.attempts == 9
    assert error.reason is Reason.ATTEMPTS
    assert await answered(client.call("b")) == "b"
    assert len(peer.service.tries["b"]) == 9
    assert client.ends == ["CallExhausted", "CallSucceeded"]
    assert client.of(CallSucceeded)[0].attempt == 9


@pytest.mark.parametrize("code", STATUS_CODES)
async def test_codes(peer, code):
    """RT-2: UNAVAILABLE and RESOURCE_EXHAUSTED are retried and no other, unless the policy lists it."""
    said = Say(CODE[code], "because")
    peer.service.scripts |= {"default": [said], "listed": [said], "other": [said]}
    default = peer.client("retry: 1, delay: 1ms")
    if code in RETRIED:
        assert await answered(default.call("default")) == "default"
    else:
        error = await failing(default.call("default"))
        assert (type(error), error.code(), error.details()) == (grpc.aio.AioRpcError, CODE[code], "because")
        assert len(peer.service.tries["default"]) == 1
    listed = peer.client(f"retry: 1, delay: 1ms, codes: {code.lower()}")
    assert await answered(listed.call("listed")) == "listed"
    assert [retry.code for retry in listed.of(CallRetried)] == [code]
    other = "DATA_LOSS" if code == "INTERNAL" else "INTERNAL"
    await failing(peer.client(f"retry: 1, delay: 1ms, codes: {other}").call("other"))
    assert len(peer.service.tries["other"]) == 1


async def test_schedule(peer):
    """RT-1, CB-11: the waits are the policy's, drawn from the channel's own generator, and they are kept."""
    chance = Chance(0.5)
    policy = retried("retry: 3, delay: 20ms, backoff: exponential, jitter: full")
    client = peer.client(policy, rng=chance)
    peer.service.scripts["a"] = [DOWN] * 3
    await answered(client.call())
    assert client.waits == pytest.approx([0.01, 0.02, 0.04])
    assert {retry.source for retry in client.of(CallRetried)} == {WaitSource.SCHEDULE}
    arrived = [seen.at for seen in peer.service.tries["a"]]
    for before, after, wait in zip(arrived, arrived[1:], client.waits, strict=False):
        assert after - before >= wait - 0.005
    assert chance.asked >= 3


# The server's word (RT-3).


def pushback(value, code=CODE.UNAVAILABLE):
    return Say(code, trailing=(("grpc-retry-pushback-ms", value),))


def rich(*messages):
    """Return a status with these details, as a server puts it into its trailers."""
    status = Status(code=14, message="not now")
    for message in messages:
        status.details.append(Any())
        status.details[-1].Pack(message)
    return Say(trailing=(("grpc-status-details-bin", status.SerializeToString()),))


def retry_info(seconds):
    duration = Duration()
    duration.FromNanoseconds(int(seconds * 1e9))
    return rich(DebugInfo(detail="the first detail is another"), RetryInfo(retry_delay=duration))


def retry_after(value):
    return Say(trailing=(("retry-after", value),))


def date(seconds):
    return email.utils.formatdate(time.time() + seconds, usegmt=True)


SCHEDULE = "retry: 4, delay: 10ms, backoff: exponential, server_delay_jitter: 40ms"
PUSHBACK, RETRY_INFO, RETRY_AFTER = WaitSource.PUSHBACK, WaitSource.RETRY_INFO, WaitSource.RETRY_AFTER

HINTS = {
    "pushback 0": (pushback("0"), 0.0, PUSHBACK),
    "pushback 250": (pushback("250"), 0.25, PUSHBACK),
    "RetryInfo 50 ms": (retry_info(0.05), 0.05 + 0.02, RETRY_INFO),
    "retry-after 0": (retry_after("0"), 0.02, RETRY_AFTER),
    "initial metadata": (Say(initial=(("retry-after", "0"),)), 0.02, RETRY_AFTER),
    "nothing that can be read": (retry_after("soon"), 0.01, WaitSource.SCHEDULE),
}
"""How hints get from the server to the schedule; `tests/calls/test_server_hint.py` has all that they can be."""


@pytest.mark.parametrize(("said", "wait", "source"), HINTS.values(), ids=HINTS)
async def test_the_server_says_when(peer, said, wait, source):
    """RT-3: pushback to the millisecond, RetryInfo and retry-after with jitter of the channel's own generator."""
    client = peer.client(SCHEDULE, rng=Chance(0.5))
    peer.service.scripts["a"] = [said]
    assert await answered(client.call()) == "a"
    (retry,) = client.of(CallRetried)
    assert (retry.delay, retry.source) == (pytest.approx(wait), source)
    first, second = peer.service.tries["a"]
    assert second.at - first.at >= wait - 0.005


@pytest.mark.parametrize("value", ["-1", "abc"])
async def test_the_server_wants_no_retry(peer, value):
    """RT-3: a pushback below 0 or unreadable stops the call, and the error says that the server did."""
    client = peer.client(SCHEDULE)
    peer.service.scripts["a"] = [pushback(value)]
    error = await failing(client.call())
    assert len(peer.service.tries["a"]) == error.attempts == 1
    assert error.reason is client.of(CallExhausted)[0].reason is Reason.STOPPED
    assert error.details().startswith("not now; gave up: the server asked for no retry (1 attempt in ")
    assert error.details().endswith(" s)")


@pytest.mark.parametrize(
    "said",
    [pushback("2147483647"), retry_info(86_400), retry_after("9999999999"), retry_after(date(86_400))],
    ids=["pushback", "RetryInfo", "seconds", "date"],
)
async def test_absurd_waits(peer, said):
    """RT-3: `max_server_delay` caps what the server asks for; past the deadline the call fails at once and says so."""
    peer.service.scripts |= {"capped": [said], "late": [said] * 2}
    capped = peer.client("retry: 1, delay: 1ms, max_server_delay: 30ms, server_delay_jitter: 0")
    assert await answered(capped.call("capped")) == "capped"
    assert capped.waits == [pytest.approx(0.03)]
    assert capped.of(CallRetried)[0].server_delay > 80_000
    client = peer.client(retried("retry: 1, delay: 1ms", server_delay_jitter=0.0))
    error = await failing(client.call("late", timeout=3600))  # `failing` does not wait that long
    assert (error.code(), error.attempts, error.reason) == (CODE.UNAVAILABLE, 1, Reason.DEADLINE)
    source = next(source for source in (PUSHBACK, RETRY_INFO, RETRY_AFTER) if source.value in error.details())
    assert error.details().startswith("not now; gave up: the deadline leaves no time for another (1 attempt in ")
    assert f"; the server's {source.value} asks for a wait of " in error.details()
    assert error.details().endswith("e+03 s are left)")
    assert not client.of(CallRetried)


@pytest.mark.parametrize("said", [retry_after("9999999999"), pushback("2147483647"), pushback("86400001")])
async def test_an_absurd_wait_without_a_deadline(peer, said):
    """RT-3: where nothing bounds it, what nobody can have meant is passed over, and the schedule holds."""
    client = peer.client("retry: 1, delay: 1ms")
    peer.service.scripts["a"] = [said]
    assert await answered(client.call()) == "a"
    (retried,) = client.of(CallRetried)
    assert (retried.delay, retried.source, retried.server_delay) == (0.001, WaitSource.SCHEDULE, None)


async def test_a_pushback_of_a_day(peer):
    """RT-3: it is waited for, as told, and can be cancelled."""
    client = peer.client("retry: 1, delay: 1ms")
    peer.service.scripts["a"] = [pushback("86400000")]
    call = client.call()
    assert (await client.until(CallRetried)).delay == 86_400
    await asyncio.sleep(0.05)
    assert not call.done()
    assert call.cancel()
    assert await call.code() is CODE.CANCELLED


async def test_a_date_to_come(peer):
    """RT-3: the wait is counted from the wall clock, here a minute of it."""
    client = peer.client(retried("retry: 1, delay: 1ms", server_delay_jitter=0.0))
    peer.service.scripts["a"] = [retry_after(date(60))]
    call = client.call()
    assert 20 < (await client.until(CallRetried)).delay <= 60
    call.cancel()


# The end of it (RT-6).


async def test_exhausted(peer):
    """RT-6: code, details and metadata of the last attempt, with the number of attempts and the time; one event."""
    last = Say(CODE.RESOURCE_EXHAUSTED, "quota", trailing=(("last", "2"), ("last-bin", b"\xfe\x00")))
    client = peer.client("retry: 2, delay: 30ms")
    peer.service.scripts["a"] = [DOWN, DOWN, last]
    call, callbacks = client.call(), []
    call.add_done_callback(callbacks.append)
    error = await failing(call)
    assert isinstance(error, aio.RetriesExhaustedError)
    assert isinstance(error, grpc.RpcError)
    assert error.code() is await call.code() is CODE.RESOURCE_EXHAUSTED
    assert error.details() == await call.details()
    assert error.details().startswith("quota; gave up: no attempts are left (3 attempts in ")
    assert error.details().endswith(" s)")
    assert set(last.trailing) <= set(error.trailing_metadata())
    assert error.trailing_metadata() == await call.trailing_metadata()
    assert error.initial_metadata() == await call.initial_metadata()
    assert error.debug_error_string() == await call.debug_error_string()
    assert (error.attempts, error.reason) == (3, Reason.ATTEMPTS)
    assert 0.06 <= error.took < 30
    (event,) = client.of(CallExhausted)
    assert (event.target, event.method, event.attempt, event.code) == (peer.target, METHOD, 3, "RESOURCE_EXHAUSTED")
    assert event.took == error.took
    assert call.done()
    assert not call.cancelled()
    assert not call.cancel()
    assert callbacks == [call]
    assert "quota" in repr(call)


async def test_exhausted_without_words(peer):
    """RT-6: where the server says nothing, the account stands alone."""
    peer.service.scripts["a"] = [Say(details="")] * 2
    error = await failing(peer.client("retry: 1, delay: 1ms").call())
    assert error.details().startswith("gave up: no attempts are left (2 attempts in ")


@pytest.mark.parametrize("again", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
async def test_exhausted_survives_copies(peer, again):
    """RT-6: the error can be pickled and copied, with its account."""
    peer.service.scripts["a"] = [Say(trailing=(("last-bin", b"\xfe\x00"),))] * 2
    error = await failing(peer.client("retry: 1, delay: 1ms").call())
    twin = again(error)
    assert type(twin) is type(error)
    assert (twin.attempts, twin.took, twin.reason) == (error.attempts, error.took, error.reason)
    assert (twin.code(), twin.details()) == (error.code(), error.details())
    assert twin.trailing_metadata() == error.trailing_metadata()
    assert repr(twin) == repr(error)


async def test_no_connection_is_retried():
    """RT-2, RT-6, CH-4: a call without a connection is UNAVAILABLE, is tried again, and its end still says why."""
    async with FlakyFront() as front:
        await front.refuse()
        async with aio.insecure_channel(front.target, retry="retry: 3, delay: 10ms") as channel:
            error = await failing(EchoStub(channel).Unary(Message()))
    assert (error.code(), error.attempts) == (CODE.UNAVAILABLE, 4)
    assert "last error: tcp: failed to connect" in error.details()
    assert "(4 attempts in " in error.details()
    assert isinstance(error.__cause__, aio.NoConnectionError)
    assert error.__cause__.status.last_error is not None


# Time (RT-7).


async def test_time_for_each_try(peer):
    """RT-7: an attempt that takes too long is ended and made again; the server is told each time how long it has."""
    client = peer.client("retry: 3, delay: 1ms, timeout: 400ms")
    peer.service.scripts["a"] = [HANG, HANG]
    assert await answered(client.call(timeout=60)) == "a"
    assert [retry.code for retry in client.of(CallRetried)] == ["DEADLINE_EXCEEDED"] * 2
    assert all(seen.remaining <= 1.4 for seen in peer.service.tries["a"])  # grpc rounds up on the wire


def service_config(**entry):
    return [("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], **entry}]}))]


async def test_time_that_the_service_config_gives(peer):
    """RT-7: a service config's timeout bounds the whole as well.

    Not to the millisecond: grpc's core, which has it too, counts it from up to two seconds before each attempt.
    """
    policy = "max_attempts: unlimited, delay: 1ms, timeout: 200ms"
    client = peer.client(policy, options=service_config(timeout="0.6s"))
    peer.service.scripts["a"] = [HANG] * 1000
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert (await failing(client.call(timeout=60))).code() is CODE.DEADLINE_EXCEEDED
    assert loop.time() - began < 20


async def test_one_try_that_meets_the_deadline(peer):
    """RT-7: the overall deadline ends the first attempt as on a plain channel: there is nothing to account for."""
    client = peer.client("retry: 5, delay: 1ms, timeout: 10s")
    peer.service.scripts["a"] = [HANG]
    error = await failing(client.call(timeout=0.2))
    assert (type(error), error.code()) == (grpc.aio.AioRpcError, CODE.DEADLINE_EXCEEDED)
    assert not client.of(CallExhausted)


async def test_a_wait_of_the_schedule_past_the_deadline(peer):
    """RT-3, RT-7: the schedule's wait is held to the deadline as well, and the call fails at once."""
    client = peer.client("retry: 5, delay: 1h, max_delay: 1h")
    peer.service.scripts["a"] = [DOWN]
    error = await failing(client.call(timeout=600))
    assert (error.code(), error.attempts, error.reason) == (CODE.UNAVAILABLE, 1, Reason.DEADLINE)
    assert "; the schedule calls for a wait of 3.6e+03 s, " in error.details()


@pytest.mark.parametrize("seconds", [-1, float("nan")])
@pytest.mark.parametrize("phase", ["fresh", "ready"])
async def test_a_deadline_that_has_passed(peer, phase, seconds):
    """CH-1, RT-7: it is met at once, and nothing is sent."""
    client = peer.client("retry: 5, delay: 1ms, deadline: 60s")
    if phase == "ready":
        await client.channel.channel_ready()
    for text in map(str, range(20 if phase == "ready" else 1)):
        assert (await failing(client.call(text, timeout=seconds))).code() is CODE.DEADLINE_EXCEEDED
    assert not client.of(CallRetried)
    assert not peer.service.tries


async def test_timeout_that_is_no_number(peer):
    """CH-1: TypeError at once."""
    with pytest.raises(TypeError):
        peer.client("retry: 1").call(timeout="1")


async def test_time_remaining(peer):
    """RT-7: it is the call's, over all its attempts; the service config's bound is not shown, as on a plain call."""
    client = peer.client("retry: 1, delay: 1ms", options=service_config(timeout="50s"))
    assert client.call().time_remaining() is None
    call = client.call(timeout=100)
    assert 95 < call.time_remaining() <= 100
    await call
    assert 0 < call.time_remaining() < 100
    bounded = peer.client("retry: 1, delay: 1ms, deadline: 20s").call(timeout=100)
    assert 15 < bounded.time_remaining() <= 20
    await bounded


# What goes over the wire (RT-10).


async def test_metadata_of_each_try(peer):
    """RT-10: every attempt has the caller's own metadata, with duplicates, in order; later ones say which they are."""
    mine = (("mine", "1"), ("mine", "2"), ("mine-bin", b"\x00\xff"), ("grpc-previous-rpc-attempts", "77"))
    client = peer.client("retry: 3, delay: 1ms")
    peer.service.scripts |= {"a": [DOWN] * 3, "b": [DOWN] * 3}
    await answered(client.call(metadata=mine[:3]))
    assert [seen.before for seen in peer.service.tries["a"]] == [None, "1", "2", "3"]
    for seen in peer.service.tries["a"]:
        assert [pair for pair in seen.metadata if pair[0].startswith("mine")] == list(mine[:3])
    await answered(client.call("b", metadata=grpc.aio.Metadata(*mine)))
    assert [seen.before for seen in peer.service.tries["b"]][1:] == ["1", "2", "3"]


async def test_metadata_and_request_are_those_of_the_call(peer):
    """CH-1: what the caller does to them after the call was made changes nothing, for no attempt."""
    client = peer.client("retry: 2, delay: 50ms")
    peer.service.scripts["a"] = [DOWN] * 2
    request, metadata = Message(text="a", count=1), grpc.aio.Metadata(("mine", "1"))
    call = client.stub.Unary(request, metadata=metadata)
    await client.until(CallRetried)
    request.count = 2
    metadata.add("mine", "2")
    assert (await call).count == 1
    assert [seen.request.count for seen in peer.service.tries["a"]] == [1, 1, 1]
    assert [[value for key, value in seen.metadata if key == "mine"] for seen in peer.service.tries["a"]] == [["1"]] * 3


@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip])
async def test_compression_of_each_try(peer, compression):
    """CH-1: compression asked for by the call holds for every attempt."""
    sent = 0

    async def counted(visit):
        nonlocal sent
        reader, writer = await asyncio.open_connection(*visit.upstream)
        back = asyncio.create_task(_pump(reader, visit.writer))
        try:
            while data := await visit.reader.read(65536):
                sent += len(data)
                writer.write(data)
        finally:
            back.cancel()
            writer.transport.abort()

    text = "a" * 50_000
    peer.service.scripts[text] = [DOWN] * 2
    async with FlakyFront(counted, upstream=("127.0.0.1", peer.port)) as front:
        client = peer.client("retry: 2, delay: 1ms", target=front.target)
        assert await answered(client.call(text, compression=compression)) == text
        await client.channel.close()
    assert len(peer.service.tries[text]) == 3
    assert (sent < 50_000) == (compression is not None)
    assert (sent > 150_000) == (compression is None)


async def _pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)


async def test_call_credentials_of_each_try(peer):
    """CH-1, CH-8: credentials of the call are asked for each attempt; without TLS they are refused at once."""

    class Counted(Token):
        def __call__(self, context, callback):
            asked.append(context.method_name)
            super().__call__(context, callback)

    asked = []
    credentials = grpc.metadata_call_credentials(Counted("secret"))
    client = peer.client("retry: 2, delay: 1ms")
    peer.service.scripts["a"] = [DOWN] * 2
    if not peer.secure:
        with pytest.raises(grpc.aio.UsageError):
            client.call(credentials=credentials)
        return
    assert await answered(client.call(credentials=credentials)) == "a"
    assert [dict(seen.metadata)["authorization"] for seen in peer.service.tries["a"]] == ["secret"] * 3
    assert asked == ["Unary"] * 3


# The caller's side.


@pytest.mark.parametrize("wait_for_ready", [True, False])
async def test_waiting_for_a_server(peer, wait_for_ready):
    """CH-3, RT-7: a wait-for-ready attempt waits as long as an attempt may; a fail-fast one fails and is retried."""
    async with FlakyFront(upstream=("127.0.0.1", peer.port)) as front:
        await front.refuse()
        quick = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 50)]
        client = peer.client("max_attempts: unlimited, delay: 20ms", target=front.target, options=quick)
        call = client.call(wait_for_ready=wait_for_ready, timeout=60)
        if wait_for_ready:
            await asyncio.sleep(0.3)
            assert not client.of(CallRetried)
        else:
            await client.until(CallRetried, 3)
        await front.listen()
        assert await answered(call) == "a"
        assert len(peer.service.tries["a"]) == 1


async def test_a_patient_try_has_its_own_time():
    """RT-7: waiting for a connection is part of an attempt, and ends with its timeout."""
    async with (
        FlakyFront(silent) as front,
        aio.insecure_channel(front.target, retry="retry: 2, delay: 1ms, timeout: 50ms") as channel,
    ):
        error = await failing(EchoStub(channel).Unary(Message(), wait_for_ready=True))
    assert (error.code(), error.attempts) == (CODE.DEADLINE_EXCEEDED, 3)
    assert "the first attempt has not ended" in error.details()


async def test_awaited_twice(peer):
    """CH-1: a call may be awaited by many, before and after its end, and says the same to all."""
    client = peer.client("retry: 2, delay: 30ms")
    peer.service.scripts |= {"a": [DOWN], "b": NEVER}
    call = client.call()
    assert await asyncio.gather(*(answered(call) for _ in range(3))) == ["a"] * 3
    assert await answered(call) == "a"
    call = client.call("b")
    errors = await asyncio.gather(*(failing(call) for _ in range(3)))
    errors.append(await failing(call))
    assert {error.details() for error in errors} == {await call.details()}
    assert len(peer.service.tries["b"]) == 3
    assert len(client.of(CallExhausted)) == 1


async def test_never_awaited(peer):
    """RT-1: a call that nobody awaits, and nobody holds, is tried again all the same."""
    client = peer.client("retry: 2, delay: 10ms")
    peer.service.scripts |= {"a": [DOWN] * 2, "b": NEVER}
    client.call()
    client.call("b")
    await client.until(CallSucceeded)
    await client.until(CallExhausted)
    assert [len(peer.service.tries[text]) for text in "ab"] == [3, 3]


async def test_questions_while_it_runs(peer):
    """CH-1: whoever asks for the outcome waits for the last attempt's; cancelling that leaves the call alone."""
    client = peer.client("retry: 1, delay: 200ms")
    peer.service.scripts["a"] = [Say(trailing=(("try", "first"),))]
    call = client.call()
    questions = [asyncio.ensure_future(ask()) for ask in (call.code, call.details, call.trailing_metadata)]
    dropped = asyncio.ensure_future(call.code())
    await client.until(CallRetried)
    assert not call.done()
    assert "attempt 1" in repr(call)
    dropped.cancel()
    await asyncio.gather(dropped, return_exceptions=True)
    code, text, trailing = await asyncio.wait_for(asyncio.gather(*questions), 30)
    assert (code, text) == (CODE.OK, "")
    assert "try" not in trailing
    assert "attempt 2" in repr(call)


async def test_connection_and_initial_metadata(peer):
    """RT-8: waiting for them goes on over attempts; those of an attempt that runs bind the call to it."""
    client = peer.client("retry: 2, delay: 10ms")
    greeting = (("greeting", "hello"),)
    peer.service.scripts |= {"a": [DOWN, Say(CODE.OK, initial=greeting)], "b": NEVER}
    call = client.call()
    await call.wait_for_connection()
    assert (await call.initial_metadata())["greeting"] == "hello"
    assert await answered(call) == "a"
    call = client.call("b")
    assert "greeting" not in await call.initial_metadata()
    with pytest.raises(aio.RetriesExhaustedError):
        await call.wait_for_connection()
    assert len(peer.service.tries["b"]) == 3


async def test_callables_that_raise(peer, caplog):
    """CH-1: a serializer or a deserializer that raises ends the call as on a plain channel, and is tried once."""

    def broken(_):
        raise ZeroDivisionError("broken")

    secure = peer.client("retry: 3, delay: 1ms").channel
    outcomes = []
    for serialize, deserialize in (
        (broken, Message.FromString),
        (Message.SerializeToString, broken),
    ):
        call = secure.unary_unary(METHOD, serialize, deserialize)(Message(text="a"))
        async with asyncio.timeout(30):
            outcomes.append((await call, await call.code()))
    assert outcomes == [(Message(), CODE.OK), (None, CODE.OK)]
    assert [len(peer.service.tries[text]) for text in ("", "a")] == [1, 1]
    assert caplog.text.count("ZeroDivisionError: broken") >= 2


@pytest.mark.parametrize("side", ["client", "server"])
async def test_a_message_that_is_too_large(side):
    """RT-2: it is RESOURCE_EXHAUSTED, and no smaller the next time; the server may have executed the call."""
    service, limit = Echo(), [("grpc.max_receive_message_length", 100)]
    async with serving(service, options=limit if side == "server" else ()) as port:
        options = limit if side == "client" else ()
        async with aio.insecure_channel(f"127.0.0.1:{port}", options=options, retry=QUICK) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await EchoStub(channel).Unary(Message(text="a" * 1000))
    assert type(caught.value) is grpc.aio.AioRpcError
    assert caught.value.code() is CODE.RESOURCE_EXHAUSTED
    assert service.executed.total() == (1 if side == "client" else 0)


async def test_an_error_is_as_long_as_it_was(peer):
    """RT-6: who awaits a failed call again gets the same error, which does not grow."""
    client = peer.client(QUICK)
    peer.service.scripts["a"] = [Say()] * 4
    call = client.call()
    lengths = []
    for _ in range(3):
        traceback, length = (await failing(call)).__traceback__, 0
        while traceback is not None:
            traceback, length = traceback.tb_next, length + 1
        lengths.append(length)
    assert len(set(lengths)) == 1


class Breaking(Chance):
    """A generator that raises once it is broken."""

    broken = False

    def random(self):
        if self.broken:
            raise ZeroDivisionError("no chance")
        return super().random()


@pytest.mark.parametrize("ask", [lambda call: call, lambda call: call.code()], ids=["response", "code"])
async def test_a_generator_that_raises(peer, ask):
    """CH-1: an error of the program's own generator ends the call that asked for jitter; no other is concerned."""
    rng = Breaking()
    client = peer.client("retry: 2, delay: 10ms, jitter: full", rng=rng)
    await client.channel.channel_ready()
    rng.broken = True
    peer.service.scripts["a"] = NEVER
    for _ in range(2):
        call = client.call()
        async with asyncio.timeout(30):
            with pytest.raises(ZeroDivisionError, match="no chance"):
                await ask(call)
        assert call.done()
    assert await answered(client.call("b")) == "b"
    async with asyncio.timeout(30):
        await client.channel.close()


class BreakingClock(LoopClock):
    """The loop's clock, which raises once when it is broken."""

    broken = False

    def __init__(self, loop):
        super().__init__(loop)
        self.now = self._time

    def _time(self):
        if self.broken:
            self.broken = False
            raise ZeroDivisionError("no time")
        return self._loop.time()


async def test_a_clock_that_raises(peer):
    """CH-1: an error of the program's own clock ends the call with it, and its attempt, which runs, as well."""
    clock = BreakingClock(asyncio.get_running_loop())
    client = peer.client("retry: 2, delay: 10ms", clock=clock)
    peer.service.scripts["a"] = [HANG]
    call = client.call()
    answer = asyncio.ensure_future(answered(call))
    await peer.service.until(1)
    clock.broken = True
    assert call.cancel()
    async with asyncio.timeout(30):
        for waiting in (answer, call):
            with pytest.raises(ZeroDivisionError, match="no time"):
                await waiting
        while not peer.service.cancelled:
            await asyncio.sleep(0.01)
