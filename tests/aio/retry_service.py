"""A service whose attempts fail by script, clients for it, and what both sides saw: what the tests of retries run on.

A script belongs to the text of a request, so that any number of calls can be made at once. The fixture `peer` is a real
server, plaintext and with TLS, and makes channels to it.

Run as a program it is a server to be killed: `python -m tests.aio.retry_service PORT FILE` notes every request that it
begins to execute in the file, and answers after a tenth of a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import grpc.aio
import pytest

from grpc_backoff import CallExhausted, CallRetried, CallSucceeded, RetryPolicy, aio
from tests.aio.test_drop_in_transport import client_credentials, server_credentials
from tests.echo import Echo, EchoStub, Message, serving

CODE = grpc.StatusCode
METHOD = "/echo.v1.Echo/Unary"


@dataclass(frozen=True, slots=True)
class Say:
    """How one attempt is answered, after `hold` seconds; OK is the request itself."""

    code: grpc.StatusCode = CODE.UNAVAILABLE
    details: str = "not now"
    trailing: tuple[tuple[str, str | bytes], ...] = ()
    initial: tuple[tuple[str, str | bytes], ...] = ()
    hold: float = 0.0


OK = Say(CODE.OK)
HANG = Say(CODE.UNKNOWN, "hangs")


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt as the server saw it."""

    at: float
    request: Message
    metadata: tuple[tuple[str, str | bytes], ...]
    remaining: float | None

    @property
    def before(self):
        """What the client says of the attempts before this one."""
        return dict(self.metadata).get("grpc-previous-rpc-attempts")


class RetryService(Echo):
    """Answers the n-th attempt of a text with the n-th thing in its script, and the attempts after those with OK.

    Attributes:
        scripts: what to say, by text.
        always: what to say to the texts that have no script.
        attempts: what came, by text.
        cancelled: how many hanging attempts were cancelled.
    """

    def __init__(self, always=OK):
        super().__init__()
        self.scripts = {}
        self.always = always
        self.tries = defaultdict(list)
        self.cancelled = 0

    async def Unary(self, request, context):  # noqa: N802
        await self._take(request, context)
        return request

    async def Down(self, request, context):  # noqa: N802
        await self._take(request, context)
        yield request

    async def _take(self, request, context):
        metadata = tuple(map(tuple, context.invocation_metadata()))
        tries = self.tries[request.text]
        tries.append(Try(asyncio.get_running_loop().time(), request, metadata, context.time_remaining()))
        await self._say(self._answer(request.text), context)

    def _answer(self, text):
        script, number = self.scripts.get(text), len(self.tries[text])
        if script is None:
            return self.always
        return script[number - 1] if number <= len(script) else OK

    async def _say(self, said, context):
        if said is HANG:
            try:
                await asyncio.Event().wait()
            finally:
                self.cancelled += 1
        if said.initial:
            await context.send_initial_metadata(said.initial)
        await asyncio.sleep(said.hold)
        if said.code is not CODE.OK:
            await context.abort(said.code, said.details, said.trailing)

    async def until(self, count, text="a"):
        """Return once so many attempts of a text have come."""
        async with asyncio.timeout(30):
            while len(self.tries[text]) < count:
                await asyncio.sleep(0.002)


class Chance:
    """A generator that always says the same, and counts how often it was asked."""

    def __init__(self, number=0.0):
        self.number = number
        self.asked = 0

    def random(self):
        self.asked += 1
        return self.number


class Client:
    """A channel, its stub, and the events of its calls."""

    def __init__(self, channel, events):
        self.channel = channel
        self.stub = EchoStub(channel)
        self.events = events

    def call(self, text="a", **how):
        """Make a call."""
        return self.stub.Unary(Message(text=text), **how)

    def of(self, kind):
        """Return the events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, kind, count=1):
        """Return the event, once there are so many of its kind."""
        async with asyncio.timeout(30):
            while len(self.of(kind)) < count:
                await asyncio.sleep(0.002)
        return self.of(kind)[count - 1]

    @property
    def waits(self):
        """How long each wait between two attempts was to be."""
        return [event.delay for event in self.of(CallRetried)]

    @property
    def ends(self):
        """The events that end calls, by name."""
        return [type(event).__name__ for event in self.events if isinstance(event, CallExhausted | CallSucceeded)]


class Peer:
    """A running server and the way to it."""

    def __init__(self, service, port, *, secure):
        self.service = service
        self.port = port
        self.secure = secure
        self._opened = contextlib.AsyncExitStack()

    @property
    def target(self):
        """Where the server listens."""
        return f"127.0.0.1:{self.port}"

    def client(self, retry=None, *, target=None, **how):
        """Open a channel; it is closed with the test."""
        events = []
        listeners = [events.append, *how.pop("listeners", ())]
        target = target or self.target
        if self.secure:
            channel = aio.secure_channel(target, client_credentials(), retry=retry, listeners=listeners, **how)
        else:
            channel = aio.insecure_channel(target, retry=retry, listeners=listeners, **how)
        self._opened.push_async_callback(channel.close)
        return Client(channel, events)

    async def close(self):
        """Close the channels."""
        await self._opened.aclose()


@contextlib.asynccontextmanager
async def peer_of(service, *, secure):
    """Run a server for the service."""
    async with serving(service, credentials=server_credentials() if secure else None) as port:
        peer = Peer(service, port, secure=secure)
        try:
            yield peer
        finally:
            await peer.close()


@pytest.fixture(params=["plaintext", "tls"])
async def peer(request):
    """A running server with a script, without TLS and with it."""
    async with peer_of(RetryService(), secure=request.param == "tls") as peer:
        yield peer


def retried(words="retry: 4, delay: 10ms", **changes):
    """Return a policy for all methods: of words, with some of it changed."""
    return {"*": replace(RetryPolicy.parse(words), **changes)}


async def failing(call):
    """Return the error that a call ends with."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(30):
            await call
    return caught.value


async def answered(call):
    """Return the text that a call is answered with."""
    async with asyncio.timeout(30):
        return (await call).text


class _Noting(Echo):
    def __init__(self, path):
        super().__init__()
        self._path = path

    async def Unary(self, request, context):  # noqa: N802
        with self._path.open("a") as notes:
            notes.write(f"{request.text}\n")
        await asyncio.sleep(0.1)
        return request


async def _main(port, path):
    async with serving(_Noting(Path(path)), port=int(port)):
        print("serving", flush=True)  # noqa: T201
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
