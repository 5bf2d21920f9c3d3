"""CH-1: features that only asyncio's interceptors have, such as lists on the channel to which client libraries add.

`tests/both_apis/test_interceptors.py` covers what interceptors do on both APIs.
"""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

import grpc_backoff
from grpc_backoff import aio
from grpc_backoff.aio import interceptor_channel
from tests.aio.test_drop_in_calls import ANSWERS, make
from tests.aio.trying import finish
from tests.both_apis.interceptors import notes
from tests.echo import EchoStub, Message, serving

NAMES = {
    "Unary": "_unary_unary_interceptors",
    "Down": "_unary_stream_interceptors",
    "Up": "_stream_unary_interceptors",
    "Both": "_stream_stream_interceptors",
}
ARITIES = pytest.mark.parametrize("method", ANSWERS)


def add(channel, noted, name):
    """Append an interceptor of each kind to the channel's lists, as client libraries do."""
    for listed, one in zip(NAMES.values(), notes(noted, name), strict=True):
        getattr(channel, listed).append(one)


def through(server):
    return [value for key, value in server.servicer.pairs[-1] if key == "through"]


@pytest.mark.parametrize("api", [grpc.aio, aio])
async def test_they_hold_what_was_given(api):
    """CH-1: each attribute is a real list, with the interceptors of its kind that the channel was created with."""
    given = notes([], "one", "two")
    channel = api.insecure_channel("127.0.0.1:1", interceptors=given)
    for position, name in enumerate(NAMES.values()):
        assert type(getattr(channel, name)) is list
        assert getattr(channel, name) == [given[position], given[position + 4]]
    await channel.close()


@ARITIES
async def test_appended_later(channel, server, method):
    """CH-1: an interceptor that is appended to a channel in use applies to the next call of its own arity."""
    noted = []
    stub = EchoStub(channel)
    await finish(make(stub, method))
    add(channel, noted, "late")
    assert await finish(make(stub, method)) == ANSWERS[method]
    assert noted == [("late", f"/echo.v1.Echo/{method}".encode())]
    assert through(server) == ["late"]


async def test_order(channel, server):
    """CH-1: interceptors run in the order of their list, which may change between calls."""
    noted = []
    stub = EchoStub(channel)
    add(channel, noted, "first")
    await stub.Unary(Message())
    assert through(server) == ["first"]
    add(channel, noted, "second")
    await stub.Unary(Message())
    assert through(server) == ["first", "second"]
    channel._unary_unary_interceptors.reverse()
    await stub.Unary(Message())
    assert through(server) == ["second", "first"]
    channel._unary_unary_interceptors.clear()
    await stub.Unary(Message())
    assert through(server) == []


@pytest.mark.parametrize("kind_of_list", [list, tuple])
async def test_assigned(kind, server, kind_of_list):
    """CH-1: a list can be assigned, for example that of another channel, as Bigtable's swappable channel does.

    On a plain channel, this affects only stubs that are made afterwards.
    """
    noted = []
    async with kind.insecure_channel(server.target) as old, kind.insecure_channel(server.target) as new:
        add(old, noted, "old")
        for name in NAMES.values():
            setattr(new, name, kind_of_list(getattr(old, name)))
        stub = EchoStub(new)
        for method, expected in ANSWERS.items():
            assert await finish(make(stub, method)) == expected
    assert sorted(noted) == sorted(("old", f"/echo.v1.Echo/{method}".encode()) for method in ANSWERS)


async def test_assigned_none(kind, server):
    """CH-1: None instead of a list means no interceptors."""
    async with kind.insecure_channel(server.target) as channel:
        channel._unary_unary_interceptors = None
        assert (await EchoStub(channel).Unary(Message(text="a"))).text == "a"


@pytest.mark.skipif(
    not hasattr(grpc.aio._channel.Channel, "_register_call"), reason="grpcio's own call raised it twice"
)
async def test_on_a_closed_channel(kind, server):
    """CH-1: a call on a closed channel raises an error even if the channel has interceptors."""
    async with kind.insecure_channel(server.target) as channel:
        stub = EchoStub(channel)
        add(channel, [], "late")
    with pytest.raises(grpc.aio.UsageError, match=r"[Cc]losed"):
        await stub.Unary(Message())


async def test_a_method_that_is_retried_otherwise(server):
    """BP-2: the channel's interceptors also apply to a method that `retrying` returned."""
    noted = []
    async with aio.insecure_channel(server.target) as channel:
        method = aio.retrying(EchoStub(channel).Unary, "retry: 1, delay: 10ms")
        add(channel, noted, "late")
        await method(Message())
    assert noted == [("late", b"/echo.v1.Echo/Unary")]


class Own(grpc.aio.Channel):
    """A channel class that counts calls and delegates; it has no lists of interceptors."""

    def __init__(self, channel, calls):
        self.inner = channel
        self.calls = calls

    def unary_unary(self, method, *args, **kwargs):
        made = self.inner.unary_unary(method, *args, **kwargs)

        def call(*args, **kwargs):
            self.calls.append(method)
            return made(*args, **kwargs)

        return call

    async def close(self, grace=None):
        await self.inner.close(grace)

    unary_stream = stream_unary = stream_stream = unary_unary
    get_state = wait_for_state_change = channel_ready = __aenter__ = __aexit__ = None


class Passing(Own):
    def __getattr__(self, name):
        return getattr(self.inner, name)


def wrapper(plain, noted):
    """Return a constructor that adds interceptors."""

    def make(*args, interceptors=(), **how):
        return plain(*args, interceptors=[*notes(noted, "wrapper"), *(interceptors or ())], **how)

    return make


class Proxy:
    """A constructor that compares equal to grpc's own, such as one made by `wrapt`."""

    def __init__(self, plain, noted):
        self.plain = plain
        self.make = wrapper(plain, noted)

    def __eq__(self, other):
        return other is self.plain or other is self

    def __hash__(self):
        return hash(self.plain)

    def __call__(self, *args, **how):
        return self.make(*args, **how)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda plain, noted: lambda *args, **how: Own(plain(*args, **how), noted),
        lambda plain, noted: lambda *args, **how: Passing(plain(*args, **how), noted),
        wrapper,
        Proxy,
    ],
    ids=["a class of its own", "a class that delegates", "wrapper", "proxy"],
)
async def test_a_constructor_in_the_place_of_grpcs(monkeypatch, wrap):
    """CH-1: what replaces grpc's constructor, even after a channel was made, is not bypassed and sees a call once."""
    await aio.insecure_channel("127.0.0.1:1").close()
    noted, mine = [], []
    monkeypatch.setattr(grpc.aio, "insecure_channel", wrap(grpc.aio.insecure_channel, noted))
    async with (
        serving() as port,
        aio.insecure_channel(f"127.0.0.1:{port}", interceptors=notes(mine, "mine")) as channel,
    ):
        assert (await EchoStub(channel).Unary(Message(text="a"))).text == "a"
    assert (len(noted), len(mine)) == (1, 1)


@pytest.mark.parametrize("wrapped", [False, True])
async def test_assigned_to_grpc(monkeypatch, wrapped):
    """CH-1: this library's constructors can replace grpc's own and can be wrapped; a wrapper sees each call once."""
    noted = []
    for name in ("insecure_channel", "secure_channel"):
        monkeypatch.setattr(grpc.aio, name, getattr(grpc_backoff.aio, name))
    if wrapped:
        monkeypatch.setattr(grpc.aio, "insecure_channel", wrapper(grpc.aio.insecure_channel, noted))
    async with serving() as port, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert isinstance(channel, aio.Channel)
        assert (await EchoStub(channel).Unary(Message(text="a"))).text == "a"
    assert noted == [("wrapper", b"/echo.v1.Echo/Unary")] * wrapped


@pytest.mark.parametrize("bad", [object(), [1]])
async def test_refused_whatever_was_accepted(bad):
    """CH-10: an option value that grpc rejects raises a TypeError, even if another value was accepted before."""
    for _ in range(2):
        await aio.insecure_channel("127.0.0.1:1", [("grpc.anything", 1)]).close()
    for _ in range(2):
        with pytest.raises(TypeError):
            grpc.aio.insecure_channel("127.0.0.1:1", [("grpc.anything", bad)])
        with pytest.raises(TypeError):
            aio.insecure_channel("127.0.0.1:1", [("grpc.anything", bad)])


async def test_the_table_of_what_grpc_accepts_is_bounded():
    """SH-8: the table of arguments that grpc has accepted stays bounded, however many targets there are."""
    for port in range(1, 300):
        await aio.insecure_channel(f"127.0.0.1:{port}").close()
    assert len(interceptor_channel._accepted) == interceptor_channel._MOST_ACCEPTED


@pytest.fixture
async def intercepted(kind, phase, server):
    """Open a channel to the server with interceptors, in the phase that the fixture selects."""
    async with kind.insecure_channel(server.target, interceptors=notes([], "one")) as channel:
        if phase == "ready":
            await channel.channel_ready()
        yield channel


async def test_write_and_read(intercepted):
    """CH-1: `write()` and `read()` work through interceptors."""
    call = EchoStub(intercepted).Both()
    for text in "ab":
        await call.write(Message(text=text))
        assert (await call.read()).text == text
    await call.done_writing()
    assert await call.code() is grpc.StatusCode.OK


@ARITIES
async def test_closed_in_the_same_tick(intercepted, method):
    """CB-10, CH-1: a call is cancelled even if the channel closes before its interceptors have started."""
    call = make(EchoStub(intercepted), method)
    await intercepted.close()
    with pytest.raises(asyncio.CancelledError):
        await finish(call)
    assert await call.code() is grpc.StatusCode.CANCELLED


class Answering(grpc.aio.UnaryStreamClientInterceptor):
    """Answers with its own messages, as grpc allows; but it passes on the call "hang"."""

    async def intercept_unary_stream(self, continuation, client_call_details, request):
        if request.text == "hang":
            return await continuation(client_call_details, request)

        async def messages():
            yield Message(text="cached")

        return messages()


@pytest.mark.parametrize("grace", [None, 0.2])
async def test_closed_after_an_interceptors_own_answer(server, grace):
    """CB-10: `close()` ends all calls and frees everything, also after an interceptor has returned what is no call."""
    asyncio.get_running_loop().set_exception_handler(lambda *_problem: None)  # grpcio calls `done` of the answers
    channel = aio.insecure_channel(server.target, interceptors=[Answering()])
    stub = EchoStub(channel)
    running = [stub.Down(Message(text="hang")) for _ in range(3)]
    answered = [stub.Down(Message(text="cached")) for _ in range(3)]
    for call in answered:
        assert [got.text async for got in call] == ["cached"]
    await channel.close(grace)
    assert all(call.done() for call in running)
    assert channel._polling is None
    cancelled = asyncio.get_running_loop().create_future()
    cancelled.cancel()
    for call in answered:
        call._interceptors_task = cancelled  # when a call is freed, grpcio cancels its answer, which raises
