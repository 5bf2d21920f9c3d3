"""Other libraries put something of their own in the place of grpcio's classes of channels, as tracing agents do."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import subprocess
import sys

import grpc
import grpc._channel
import grpc.aio._channel
import pytest

import grpc_backoff
from grpc_backoff import aio
from tests.echo import EchoStub, Message, serving

APIS = {"threads": grpc, "asyncio": grpc.aio}
OWN = {grpc: grpc._channel.Channel, grpc.aio: grpc.aio._channel.Channel}
OURS = {grpc: grpc_backoff.Channel, grpc.aio: aio.Channel}


class Agent(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.aio.UnaryUnaryClientInterceptor):
    """Sees the calls on each channel that is created while it runs, as SkyWalking's agent does."""

    def __init__(self, api):
        self.seen = 0
        self._module = {grpc: grpc._channel, grpc.aio: grpc.aio._channel}[api]
        before = self._module.Channel
        if api is grpc:
            self._module.Channel = lambda *arguments: grpc.intercept_channel(before(*arguments), self)
            return
        agent = self

        class Traced(before):
            def __init__(self, target, options, credentials, compression, interceptors):
                super().__init__(target, options, credentials, compression, [agent, *(interceptors or [])])

        self._module.Channel = Traced

    def intercept_unary_unary(self, continuation, details, request):
        self.seen += 1
        return continuation(details, request)

    intercept_unary_stream = intercept_unary_unary


class AsyncioAgent(Agent):
    async def intercept_unary_unary(self, continuation, details, request):
        self.seen += 1
        return await continuation(details, request)


def started(api):
    return (Agent if api is grpc else AsyncioAgent)(api)


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    for api, module in ((grpc, grpc._channel), (grpc.aio, grpc.aio._channel)):
        monkeypatch.setattr(module, "Channel", OWN[api])
    yield
    grpc_backoff.uninstall()


async def called(channel):
    """Make a call; return the class of the channel, without the wrappers of threaded interceptors."""
    if isinstance(channel, grpc.aio.Channel):
        async with channel:
            assert (await EchoStub(channel).Unary(Message(text="a"), timeout=20)).text == "a"
            return type(channel)

    def call():
        with channel:
            assert EchoStub(channel).Unary(Message(text="a"), timeout=20).text == "a"

    await asyncio.to_thread(call)
    while type(channel).__module__ == "grpc._interceptor":
        channel = channel._channel
    return type(channel)


@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
async def test_every_order(api):
    """TH-7: whatever is started, installed and uninstalled in whatever order, a call is traced once, on our channel."""
    async with serving() as port:
        for steps in itertools.product(("agent", "install", "uninstall"), repeat=3):
            grpc_backoff.uninstall()
            (grpc._channel if api is grpc else grpc.aio._channel).Channel = OWN[api]
            agents, installed = [], False
            for step in steps:
                if step == "agent":
                    agents.append(started(api))
                else:
                    installed = step == "install"
                    getattr(grpc_backoff, step)()
            kind = await called(api.insecure_channel(f"127.0.0.1:{port}"))
            assert (OURS[api] if installed else OWN[api]) in kind.__mro__, steps
            assert [agent.seen for agent in agents] == [1] * len(agents), steps


@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
async def test_a_refusal(api):
    """TH-7: what grpcio refuses is refused as without the other library, and later channels are ours and traced."""
    agent = started(api)
    grpc_backoff.install()
    with pytest.raises(grpc_backoff.OptionError):
        api.insecure_channel("127.0.0.1:1", [("grpc_backoff.jiter", 0.1)])
    async with serving() as port:
        assert await called(api.insecure_channel(f"127.0.0.1:{port}", [("grpc.enable_retries", 0)])) is OURS[api]
    assert agent.seen == 1


async def test_a_program_s_own_class():
    """TH-7: instances of a program's own class are grpcio's, also of one that is derived after `install`."""
    grpc_backoff.install()

    class Own(grpc.aio._channel.Channel):
        pass

    async with serving() as port:
        assert await called(Own(f"127.0.0.1:{port}", (), None, None, None)) is Own


@pytest.mark.parametrize("api", APIS.values(), ids=APIS)
async def test_checked_by_name(api):
    """CH-1: our channels pass a check for grpcio's class by its private name, taken before or after `install`."""
    module, own = (grpc._channel if api is grpc else grpc.aio._channel), OWN[api]
    signature = inspect.signature(own)
    grpc_backoff.install()
    async with serving() as port:
        channel = api.insecure_channel(f"127.0.0.1:{port}")
        assert isinstance(channel, own)
        assert isinstance(channel, module.Channel)
        await called(channel)
    for other in APIS.values():
        assert not (other is not api and isinstance(channel, OWN[other]))
    assert not isinstance(object(), module.Channel)
    assert list(inspect.signature(module.Channel).parameters) == list(signature.parameters)


IMPORTED_LATER = """if True:
    import asyncio
    import grpc
    import grpc._channel
    import grpc.aio._channel

    class Derived(grpc.aio._channel.Channel):
        pass

    def wrapper(*arguments, own=grpc._channel.Channel):
        return own(*arguments)

    grpc._channel.Channel, grpc.aio._channel.Channel = wrapper, Derived
    import grpc_backoff
    from grpc_backoff import aio
    from tests.grpcio.test_channel_class import called, serving

    async def main():
        async with serving() as port:
            for make in (aio.insecure_channel, grpc_backoff.insecure_channel):
                print((await called(make(f"127.0.0.1:{port}"))).__module__)

    asyncio.run(main())
    """


def test_imported_later():
    """CH-1: the library can be imported after another one has taken the places, and works without `install`."""
    done = subprocess.run([sys.executable, "-c", IMPORTED_LATER], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["grpc_backoff.aio.channel", "grpc_backoff.sync.channel"], done.stderr
