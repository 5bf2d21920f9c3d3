"""The servers that are called, each run in its own process (`apart.serving`)."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import grpc
import grpc.aio
import trustme

from benchmarks.apart import Served
from grpc_backoff.testing.front import Behaviour, FlakyFront, accept_close, healthy, settings_then_close
from tests import echo

__all__ = [
    "Outage",
    "Place",
    "Returns",
    "echoing",
    "failing",
    "failing_calls",
    "going_away",
    "hanging_up",
    "hanging_up_with_tls",
    "visited",
]

_SETTINGS = b"\0\0\0\4\0\0\0\0\0"  # an empty frame


@contextlib.asynccontextmanager
async def echoing() -> AsyncIterator[Served]:
    """Answer."""
    async with echo.serving() as port:
        yield Served(f"127.0.0.1:{port}")


class _FailingEcho(echo.Echo):
    """Fails each call as often as its request's count says, and then answers.

    If the text begins with `told`, it sends a pushback, as in gRFC A6.
    """

    def __init__(self, pushback_ms: int) -> None:
        super().__init__()
        self._pushback = (("grpc-retry-pushback-ms", str(pushback_ms)),)

    async def Unary(self, request: echo.Message, context: grpc.aio.ServicerContext) -> echo.Message:  # noqa: N802
        if self.executed[request.text] < request.count:
            self.executed[request.text] += 1
            told = self._pushback if request.text.startswith("told") else ()
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not yet", told)
        del self.executed[request.text]
        return request


@contextlib.asynccontextmanager
async def failing_calls(pushback_ms: int) -> AsyncIterator[Served]:
    """Answer calls once they have failed as often as they request."""
    async with echo.serving(_FailingEcho(pushback_ms)) as port:
        yield Served(f"127.0.0.1:{port}")


@contextlib.asynccontextmanager
async def hanging_up() -> AsyncIterator[Served]:
    """Send SETTINGS and hang up, like a proxy whose upstream is down."""
    async with _counting(settings_then_close(0)) as served:
        yield served


@contextlib.asynccontextmanager
async def failing() -> AsyncIterator[Served]:
    """Accept and hang up: every attempt fails, and can be counted."""
    async with _counting(accept_close) as served:
        yield served


@contextlib.asynccontextmanager
async def _counting(behaviour: Behaviour) -> AsyncIterator[Served]:
    async with FlakyFront(behaviour) as front:

        def connections(span: tuple[float, float]) -> int:
            """Count the connections accepted between two moments of the machine's monotonic clock."""
            begin, end = span
            return sum(begin <= visit.at < end for visit in front.visits)

        yield Served(front.target, connections)


class Place(NamedTuple):
    """The address of a server, and the certificate to trust; None without TLS."""

    target: str
    root: bytes | None = None


@contextlib.asynccontextmanager
async def visited(tls: bool) -> AsyncIterator[Served]:
    """Answer, and count connections."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    pair = issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes()
    credentials = grpc.ssl_server_credentials([pair]) if tls else None
    async with echo.serving(credentials=credentials) as port, FlakyFront(upstream=("127.0.0.1", port)) as front:
        root = authority.cert_pem.bytes() if tls else None
        yield Served(
            Place(front.target, root), lambda span: sum(span[0] <= visit.at < span[1] for visit in front.visits)
        )


@contextlib.asynccontextmanager
async def hanging_up_with_tls() -> AsyncIterator[Served]:
    """Send SETTINGS over TLS and hang up, and count connections."""
    authority, accepted = trustme.CA(), []
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    context.set_alpn_protocols(["h2"])

    def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(asyncio.get_running_loop().time())
        writer.write(_SETTINGS)
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=context)
    async with server:
        target = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        place = Place(target, authority.cert_pem.bytes())
        yield Served(place, lambda span: sum(span[0] <= at < span[1] for at in accepted))


@dataclass(frozen=True, slots=True)
class Outage:
    """When a server goes away, and for how many seconds, on the machine's monotonic clock."""

    begin: float
    seconds: float


class Returns(NamedTuple):
    """The addresses of servers that go away, and where their return is announced."""

    targets: Sequence[str]
    news: int
    """A port. Each client that connects is sent a line for each server that is back, with its place and the moment."""


@contextlib.asynccontextmanager
async def going_away(count: int) -> AsyncIterator[Served]:
    """Answer on this many ports; during an outage of one of them, hang up on every client there."""
    readers: list[asyncio.StreamWriter] = []
    async with (
        echo.serving() as port,
        contextlib.AsyncExitStack() as stack,
        await asyncio.start_server(lambda _, writer: readers.append(writer), "127.0.0.1", 0) as news,
        asyncio.TaskGroup() as group,
    ):
        fronts = [await stack.enter_async_context(FlakyFront(upstream=("127.0.0.1", port))) for _ in range(count)]

        async def go_away(place: int, outage: Outage) -> None:
            front, loop = fronts[place], asyncio.get_running_loop()
            await asyncio.sleep(outage.begin - loop.time())
            front.behaviour = accept_close
            await front.break_all()
            await asyncio.sleep(outage.begin + outage.seconds - loop.time())
            front.behaviour = healthy
            for reader in readers:
                reader.write(b"%d %f\n" % (place, loop.time()))

        def plan(outages: Sequence[Outage]) -> None:
            for place, outage in enumerate(outages):
                group.create_task(go_away(place, outage))

        yield Served(Returns([front.target for front in fronts], news.sockets[0].getsockname()[1]), plan)
        for reader in readers:
            reader.close()
