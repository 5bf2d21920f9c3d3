"""A service whose attempts fail according to a script, and clients that record events: the basis of the retry tests.

Each script belongs to the text of a request, so any number of calls can be made at the same time. The fixture `peer` is
a real server, and opens channels to it; `tests/both_apis/test_replay.py` covers retries over TLS.

Run as a program, this is a server that a test can kill: `python -m tests.aio.retry_service PORT FILE` appends every
request to the file when it starts to execute, and responds after a tenth of a second.
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

from grpc_backoff import aio, parse_policy
from tests.both_apis.log import Log
from tests.echo import Echo, EchoStub, Message, serving

CODE = grpc.StatusCode
METHOD = "/echo.v1.Echo/Unary"


@dataclass(frozen=True, slots=True)
class Say:
    """The answer to one attempt, sent after `hold` seconds; if it is OK, the response is the request itself."""

    code: grpc.StatusCode = CODE.UNAVAILABLE
    details: str = "not now"
    trailing: tuple[tuple[str, str | bytes], ...] = ()
    initial: tuple[tuple[str, str | bytes], ...] = ()
    hold: float = 0.0


OK = Say(CODE.OK)
HANG = Say(CODE.UNKNOWN, "hangs")


@dataclass(frozen=True, slots=True)
class Try:
    """One attempt as seen by the server."""

    at: float
    request: Message
    metadata: tuple[tuple[str, str | bytes], ...]
    remaining: float | None

    @property
    def before(self):
        """The value of `grpc-previous-rpc-attempts`, the number of earlier attempts; None for the first attempt."""
        return dict(self.metadata).get("grpc-previous-rpc-attempts")


class RetryService(Echo):
    """Answers the n-th attempt with the n-th entry of the script for its text, and later attempts with OK.

    Attributes:
        scripts: the answers, by text.
        always: the answer to texts without a script.
        tries: the attempts that arrived, by text.
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
        """Wait until this many attempts with a text have arrived."""
        async with asyncio.timeout(30):
            while len(self.tries[text]) < count:
                await asyncio.sleep(0.002)


class Chance:
    """A random generator that always returns the same number, and counts how often it was called."""

    def __init__(self, number=0.0):
        self.number = number
        self.asked = 0

    def random(self):
        self.asked += 1
        return self.number


class Breaking(Chance):
    """A random generator that raises while `broken` is set."""

    broken = False

    def random(self):
        if self.broken:
            raise ZeroDivisionError("no chance")
        return super().random()


class Client:
    """A channel, its stub, and the events of its calls."""

    def __init__(self, channel, events):
        self.channel = channel
        self.stub = EchoStub(channel)
        self.events = events
        self.of, self.until = events.of, events.arrived

    def call(self, text="a", **how):
        """Make a unary call."""
        return self.stub.Unary(Message(text=text), **how)


class Peer:
    """A running server, and the channels that tests have opened to it."""

    def __init__(self, service, port):
        self.service = service
        self.target = f"127.0.0.1:{port}"
        self._opened = contextlib.AsyncExitStack()

    def client(self, retry=None, **how):
        """Open a channel, which is closed at the end of the test."""
        events = Log()
        channel = aio.insecure_channel(self.target, retry=retry, listeners=[events.append], **how)
        self._opened.push_async_callback(channel.close)
        return Client(channel, events)

    async def close(self):
        """Close all channels."""
        await self._opened.aclose()


@contextlib.asynccontextmanager
async def peer_of(service):
    """Run a server for the service; yield a `Peer`."""
    async with serving(service) as port:
        peer = Peer(service, port)
        try:
            yield peer
        finally:
            await peer.close()


@pytest.fixture
async def peer():
    """A running server with scripts."""
    async with peer_of(RetryService()) as peer:
        yield peer


def retried(words="retry: 4, delay: 10ms", **changes):
    """Return a policy for all methods, parsed from a policy string, with the given fields replaced."""
    return {"*": replace(parse_policy(words), **changes)}


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
