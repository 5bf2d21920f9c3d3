"""One call with retries against a real server, plaintext and TLS: what only asyncio's calls have, and what is sent.

What both faces do is in `tests/faces`; which attempt follows on what, and when, is held by the pure tests of the
machine (`tests/calls`). Waits are real time and short. What is compared are the waits that the channel announces; a
slow machine only makes the tests slower.
"""

from __future__ import annotations

import asyncio
import json

import grpc
import grpc.aio
import pytest

from grpc_backoff import CallExhausted, CallRetried, CallSucceeded, Reason, aio
from grpc_backoff.aio.clock import LoopClock
from grpc_backoff.testing.front import FlakyFront, silent
from tests.aio.retry_service import CODE, HANG, METHOD, Chance, Say, answered, failing, peer
from tests.aio.test_drop_in_transport import Token
from tests.echo import Echo, EchoStub, Message, serving

__all__ = ["peer"]

DOWN = Say()
NEVER = [DOWN] * 1000
QUICK = "retry: 3, delay: 1ms"


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


# Time (RT-7).


def service_config(**entry):
    return [("grpc.service_config", json.dumps({"methodConfig": [{"name": [{}], **entry}]}))]


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
