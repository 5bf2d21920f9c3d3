"""The servers that subjects call. Each runs in its own process (`apart.serving`)."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
    "limited",
    "visited",
]

_SETTINGS = b"\0\0\0\4\0\0\0\0\0"  # an empty SETTINGS frame


@contextlib.asynccontextmanager
async def echoing() -> AsyncIterator[Served]:
    """Run a server that echoes each request."""
    async with echo.serving() as port:
        yield Served(f"127.0.0.1:{port}")


@contextlib.asynccontextmanager
async def limited(streams: int, workers: int | None = None) -> AsyncIterator[Served]:
    """Run grpcio's threaded server with this limit of concurrent streams; it answers after 20 ms.

    By default, it has as many workers.
    """

    def answer(request: bytes, _context: grpc.ServicerContext) -> bytes:
        time.sleep(0.02)
        return request

    handler = grpc.unary_unary_rpc_method_handler(answer)
    server = grpc.server(ThreadPoolExecutor(workers or streams), options=[("grpc.max_concurrent_streams", streams)])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("echo.v1.Echo", {"Unary": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield Served(f"127.0.0.1:{port}")
    finally:
        server.stop(None).wait()


class _FailingEcho(echo.Echo):
    """Fails each call as many times as its request says, and then answers it.

    If the request's text begins with `told`, each failure carries a pushback, as in gRFC A6.
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
    """Run a server that answers a call after failing it as many times as its request says."""
    async with echo.serving(_FailingEcho(pushback_ms)) as port:
        yield Served(f"127.0.0.1:{port}")


@contextlib.asynccontextmanager
async def hanging_up() -> AsyncIterator[Served]:
    """Run a server that sends SETTINGS and hangs up."""
    async with _counting(settings_then_close(0)) as served:
        yield served


@contextlib.asynccontextmanager
async def failing() -> AsyncIterator[Served]:
    """Run a server that accepts each connection and closes it, so that every attempt fails and is counted."""
    async with _counting(accept_close) as served:
        yield served


@contextlib.asynccontextmanager
async def _counting(behaviour: Behaviour) -> AsyncIterator[Served]:
    async with FlakyFront(behaviour) as front:

        def connections(span: tuple[float, float]) -> int:
            """Return how many connections were accepted between two times of the machine's monotonic clock."""
            begin, end = span
            return sum(begin <= visit.at < end for visit in front.visits)

        yield Served(front.target, connections)


class Place(NamedTuple):
    """The address of a server and the root certificate to trust, which is None without TLS."""

    target: str
    root: bytes | None = None


@contextlib.asynccontextmanager
async def visited(tls: bool) -> AsyncIterator[Served]:
    """Run a server that echoes each request and counts connections."""
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
    """Run a server that counts connections, sends SETTINGS over TLS and hangs up."""
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
    """When an outage begins, on the machine's monotonic clock, and how many seconds it lasts."""

    begin: float
    seconds: float


class Returns(NamedTuple):
    """The targets of servers that have outages, and the port that announces their return."""

    targets: Sequence[str]
    news: int
    """A port that sends its clients a line for each server that returns: the server's index and the time."""


@contextlib.asynccontextmanager
async def going_away(count: int) -> AsyncIterator[Served]:
    """Run servers on this many ports. During its outage, each hangs up on every client."""
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
