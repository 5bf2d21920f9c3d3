"""The server survives its clients and leaves no task, socket or file descriptor behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import random
import resource
import socket
import ssl
import time
from pathlib import Path

import psutil
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import ProtocolError
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from grpc_judge import flaky
from grpc_judge.flaky.behaviour import Handshake
from grpc_judge.flaky.behaviours import BY_NAME
from grpc_judge.flaky.http2 import Http2
from grpc_judge.flaky.visitor import Visitor
from grpc_judge.flaky.wire import Wire
from grpc_judge.timeline import Ending
from tests.interop_suite.flaky.clients import HEADERS, PREFACE, SOON, TLS, WITHIN, Client

EVERY = [
    *(kind() for kind in BY_NAME.values() if kind is not flaky.Refuse),
    flaky.SlowSettings(0.05),
    flaky.Trickle(0.05),
    flaky.SettingsThenClose(after=0.05),
    flaky.SettingsThenGoaway(after=0.05),
    flaky.Working(latency=0.05),
    flaky.Working(latency=100),
    flaky.Working(lives=100),
    flaky.RollingRestart(after=0.01, grace=0.05, latency=0.03),
    flaky.MaxStreams(limit=0),
]
both = pytest.mark.parametrize("tls", [None, TLS], ids=["plaintext", "tls"])


@contextlib.contextmanager
def raised_limit(number):
    """Raise the limit of open file descriptors to this number, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(number, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def pending_timers():
    """Return the pending timers of asyncio's loop, or nothing for uvloop, which does not expose them."""
    return {timer for timer in getattr(asyncio.get_running_loop(), "_scheduled", ()) if not timer.cancelled()}


@contextlib.asynccontextmanager
async def nothing_left():
    """Fail if the block leaves a task, a timer, a socket or a file descriptor, or reports an error to the loop.

    The check includes leftover visitors and wires, because a timer that the loop does not expose would keep them alive.
    """
    troubles = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
    async with (
        flaky.FlakyServer(flaky.AcceptClose()) as server,
        await Client.open(server),
    ):  # the loop keeps what this opens
        pass
    await asyncio.sleep(0)
    process = psutil.Process()
    tasks, timers, descriptors = asyncio.all_tasks(), pending_timers(), process.num_fds()
    yield
    for _ in range(500):  # for the clients to close
        await asyncio.sleep(0.01)
        if asyncio.all_tasks() == tasks and process.num_fds() <= descriptors:
            break
    gc.collect()
    assert [thing for thing in gc.get_objects() if type(thing) in {Visitor, Wire, Http2}] == []
    assert asyncio.all_tasks() == tasks
    assert pending_timers() <= timers
    assert process.num_fds() <= descriptors
    assert troubles == []


async def working(server):
    """Assert that the server still answers calls."""
    server.play(flaky.Working())
    async with await Client.open(server, tls=bool(server._contexts)) as client:
        client.hello()
        await client.until(HeadersFrame, client.request(), 2)


async def gone(server):
    """Wait until every connection has ended."""
    async with asyncio.timeout(WITHIN):
        await server.wait_for(ended=len(server.timeline().visits))


@contextlib.asynccontextmanager
async def surviving(script, tls=None):
    """Run a server that has to lose its clients, to serve another one, and to leave nothing behind."""
    async with nothing_left(), flaky.FlakyServer(script, tls) as server:
        yield server
        await gone(server)
        await working(server)


PHASES = {
    "idle": lambda client: None,  # it has only connected
    "half a preface": lambda client: client.send(PREFACE[:11]),
    "preface": lambda client: client.hello(),
    "half a frame": lambda client: client.send(PREFACE + SettingsFrame(settings={1: 1}).serialize()[:10]),
    "heard settings": lambda client: client.hello(),
    "half a request": lambda client: (client.hello(), client.request(ends=False)),
    "asked": lambda client: (client.hello(), *(client.request() for _ in range(3))),
    "answered": lambda client: (client.hello(), *(client.request() for _ in range(3))),
}
WAITS = {"heard settings": 1, "answered": 2}
"""How often a client in this phase waits for bytes from the server."""


async def visit(server, phase, leave):
    """Bring a new client to the phase. Have it leave by FIN or RST, or return it connected if `leave` is None."""
    handshake = server._steps[0].behaviour.handshake
    client = await Client.open(server, tls=bool(server._contexts) and handshake is not Handshake.NONE)
    with contextlib.suppress(OSError):
        PHASES[phase](client)
        for _ in range(WAITS.get(phase, 0)):
            await client.silence(0.02)
    if leave is not None:
        await client.leave(reset=leave == "rst")
    return client


@both
@pytest.mark.parametrize("script", EVERY)
async def test_clients_leave_in_every_phase(script, tls):
    """IO-3: clients may leave by FIN or RST in every phase of every behaviour. Takes up to a second of real time."""
    async with surviving(script, tls) as server:
        ways = list(itertools.product(PHASES, ["fin", "rst"]))
        await asyncio.gather(*(visit(server, phase, leave) for phase, leave in ways))
        await gone(server)
        assert len(server.timeline().visits) == len(ways)
        assert all(one.ended is not None for one in server.timeline().visits)


@both
@pytest.mark.parametrize("script", EVERY)
async def test_closing_in_every_phase(script, tls):
    """IO-3: closing the server ends every connection at once, in every phase of every behaviour."""
    async with nothing_left():
        async with flaky.FlakyServer(script, tls) as server:
            clients = await asyncio.gather(*(visit(server, phase, None) for phase in PHASES))
            closing = time.monotonic()
        assert time.monotonic() - closing < 5, "promptly, on a busy machine"
        visits = server.timeline().visits
        assert len(visits) == len(PHASES)
        assert Ending.OPEN not in {one.ending for one in visits}
        for client in clients:
            await client.until_end()
            await client.leave()
        with pytest.raises(ConnectionRefusedError):
            await Client.open(server)


async def test_closing_before_the_script_is_over():
    """IO-3: a closed server does not follow the rest of its script. Waits 0.3 s."""
    async with nothing_left():
        async with flaky.FlakyServer(
            [flaky.Step(flaky.Refuse(), lasting=0.2), flaky.Step(flaky.Working(), lasting=100), flaky.Silent()]
        ) as server:
            pass
        await asyncio.sleep(0.3)
        with pytest.raises(ConnectionRefusedError):
            await Client.open(server)
        async with flaky.FlakyServer([flaky.Step(flaky.Working(), lasting=100), flaky.Silent()]):
            pass


async def test_closing_before_a_client_was_heard_of():
    """IO-3: closing the server also ends connections that the kernel or the server has only just accepted."""
    async with nothing_left():
        for turns in range(6):
            async with flaky.FlakyServer(flaky.Working()) as server:
                opening = asyncio.ensure_future(Client.open(server))
                for _ in range(turns):
                    await asyncio.sleep(0)
            with contextlib.suppress(ConnectionError):
                async with await opening as client:
                    await client.until_end()


@pytest.mark.parametrize("end", ["break_all", "restart", "close"])
async def test_ends_of_just_accepted_connections(end):
    """IO-3: connections may be reset or closed before their behaviour has begun."""
    async with nothing_left(), flaky.FlakyServer(flaky.Working()) as server:
        opening = [asyncio.ensure_future(Client.open(server)) for _ in range(20)]
        await server.wait_for(connections=1)
        if end == "close":
            await server.__aexit__(None, None, None)
        elif end == "restart":
            await server.restart()
        else:
            server.break_all()
        for client in await asyncio.gather(*opening, return_exceptions=True):
            if isinstance(client, Client):
                await client.leave()
        await gone(server)


def frames():
    """Return invalid input by description. Each item is everything that the client of one connection sends."""
    h2 = H2Connection()
    h2.initiate_connection()
    h2.data_to_send()
    h2.send_headers(1, HEADERS)
    request = h2.data_to_send()
    return {
        "nothing of http2": b"GET / HTTP/1.1\r\n\r\n" * 10,
        "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        "zeros": bytes(5000),
        "ones": b"\xff" * 5000,
        "settings out of range": PREFACE[:24] + SettingsFrame(settings={4: 2**32 - 1}).serialize(),
        "settings of odd length": PREFACE + b"\x00\x00\x05\x04\x00\x00\x00\x00\x00" + bytes(5),
        "a frame too large": PREFACE + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + bytes(100),
        "data of no stream": PREFACE + b"\x00\x00\x01\x00\x00\x00\x00\x00\x00x",
        "data of an idle stream": PREFACE + DataFrame(1, b"x").serialize(),
        "an even stream": PREFACE + HeadersFrame(2, b"", flags=["END_HEADERS"]).serialize(),
        "headers that hpack cannot read": PREFACE + HeadersFrame(1, b"\xff" * 50, flags=["END_HEADERS"]).serialize(),
        "no headers at all": PREFACE + HeadersFrame(1, b"", flags=["END_HEADERS"]).serialize(),
        "a lone continuation": PREFACE + ContinuationFrame(1, b"").serialize(),
        "continuations without end": PREFACE
        + HeadersFrame(1, b"").serialize()
        + ContinuationFrame(1, b"\x00").serialize() * 2000,
        "a window that overflows": PREFACE + WindowUpdateFrame(0, window_increment=2**31 - 1).serialize() * 2,
        "a window of nothing": PREFACE + b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x00",
        "more than the window": PREFACE + request + DataFrame(1, bytes(16000)).serialize() * 10,
        "request and reset at once": PREFACE + request + RstStreamFrame(1, 8).serialize(),
        "requests and goaway at once": PREFACE + request + GoAwayFrame(0, 0, 0).serialize(),
        "words behind goaway": PREFACE
        + GoAwayFrame(0, 0, 0).serialize()
        + request
        + PingFrame(0, bytes(8)).serialize(),
        "resets of no stream": PREFACE + RstStreamFrame(99, 8).serialize(),
        "frames of no known type": PREFACE + b"\x00\x00\x01\xee\x00\x00\x00\x00\x00x" * 1000,
        "pings": PREFACE + PingFrame(0, bytes(8)).serialize() * 1000,
    }


@pytest.mark.parametrize(
    "script",
    [
        flaky.Silent(),
        flaky.Working(),
        flaky.SettingsThenGoaway(),
        flaky.PingFlood(),
        flaky.SlowSettings(0.02),
        flaky.MaxStreams(0),
    ],
)
async def test_garbage(script):
    """IO-3: invalid data from a client affects only that client's connection."""
    async with surviving(script) as server:
        for garbage in frames().values():
            async with await Client.open(server) as client:
                client.send(garbage)
                await client.silence(0.04)


async def test_a_client_that_breaks_the_protocol_is_told_and_closed():
    """IO-3: a protocol error is answered with GOAWAY and FIN, but `silent` stays silent. Waits 0.3 s."""
    async with flaky.FlakyServer(flaky.Working()) as server, await Client.open(server) as client:
        client.send(PREFACE + DataFrame(1, b"x").serialize())
        await client.until_end()
        assert client.of(GoAwayFrame)[0].error_code == 1, "PROTOCOL_ERROR"
        await gone(server)
        assert server.timeline().visits[0].ending is Ending.CLOSED
    async with flaky.FlakyServer(flaky.Silent()) as server, await Client.open(server) as client:
        client.send(PREFACE + DataFrame(1, b"x").serialize())
        assert await client.silence() is None
    async with flaky.FlakyServer(flaky.SlowSettings(0.3)) as server, await Client.open(server) as client:
        client.send(PREFACE + DataFrame(1, b"x").serialize())
        await client.until_end()
        assert [type(heard.frame) for heard in client.heard] == [SettingsFrame, SettingsFrame, GoAwayFrame]


async def test_a_client_that_takes_its_leave():
    """IO-3: after a client's GOAWAY, an idle connection stays open until the client closes it. Waits 0.3 s."""
    async with surviving(flaky.Working()) as server, await Client.open(server) as client:
        client.hello()
        await client.until(HeadersFrame, client.request(), 2)
        client.send(GoAwayFrame(0).serialize())
        assert await client.silence() is None
        await client.leave()
    assert server.timeline().visits[0].ending is Ending.PEER_CLOSED


@pytest.mark.parametrize(
    "script", [flaky.Working(latency=0.2), flaky.SlowSettings(0.2), flaky.RollingRestart(after=0.1)]
)
async def test_a_client_that_takes_its_leave_and_waits_for_answers(script):
    """IO-3: a client that has sent GOAWAY still gets the answers to its calls. Waits 0.3 s.

    RFC 9113 (6.8) permits this, and Node's clients do it after a server's GOAWAY.
    """
    async with surviving(script) as server, await Client.open(server) as client:
        client.hello()
        stream = client.request()
        client.send(GoAwayFrame(0).serialize())
        await client.until(HeadersFrame, stream, 2)
        await client.leave()
    assert [request.outcome for request in server.timeline().visits[0].requests] == ["ok"]


@pytest.mark.parametrize("script", [flaky.RollingRestart(after=0.2), flaky.SettingsThenGoaway(after=0.2, closes=True)])
async def test_both_take_their_leave(script):
    """IO-3: a server that is about to send GOAWAY closes on time if the client has already sent one. Waits 0.2 s."""
    async with surviving(script) as server, await Client.open(server) as client:
        client.hello()
        client.send(GoAwayFrame(0).serialize())
        assert await client.until_end() == "closed"


async def test_a_client_whose_requests_are_refused_is_given_its_window_back():
    """IO-3: the data of refused requests counts as read, so the connection's window does not run out."""
    async with flaky.FlakyServer(flaky.MaxStreams(0)) as server, await Client.open(server) as client:
        client.hello()
        for _ in range(3):
            client.request(bytes(16_000))
        assert (await client.until(WindowUpdateFrame, 0)).window_increment >= 16_000


@pytest.mark.parametrize("seed", range(4))
async def test_noise(seed):
    """IO-3: the server survives random bytes, with or without a preface, and valid frames with random errors."""
    rng = random.Random(seed)
    truth = PREFACE + frames()["pings"][24:400] + frames()["request and reset at once"][24:]
    async with surviving(flaky.Working()) as server:
        for _ in range(50):
            bent = bytearray(truth)
            for _ in range(rng.randint(1, 4)):
                bent[rng.randrange(24, len(bent))] = rng.randrange(256)
            for noise in (rng.randbytes(300), PREFACE + rng.randbytes(300), bytes(bent)):
                async with await Client.open(server) as client:
                    client.send(noise)
                    await client.silence(0.002)


async def test_garbage_in_the_place_of_tls():
    """IO-3: a TLS server disconnects a client that does not speak TLS, after any alert that OpenSSL produces."""
    async with surviving(flaky.Working(), TLS) as server:
        for noise in (PREFACE, b"\xff" * 300, b"\x16\x03\x01\x00\x05hello"):
            async with await Client.open(server) as client:
                client.send(noise)
                alert = await client.silence(WITHIN)
                assert alert == b"" or alert[0] == 21, "an alert, where OpenSSL has one to give"
        assert alert, "and for a handshake that is broken, it has"
        await gone(server)
        assert {(one.ending, one.preface) for one in server.timeline().visits} == {(Ending.CLOSED, None)}


@pytest.mark.parametrize("reset", [False, True])
async def test_leaving_within_the_tls_handshake(reset):
    """IO-3: a client may leave in the middle of the TLS handshake. Waits 0.1 s."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="x").do_handshake()
    hello = outgoing.read()
    async with surviving(flaky.Working(), TLS) as server:
        for words in (hello[:100], hello):
            async with await Client.open(server) as client:
                client.send(words)
                await client.silence(0.05)
                await client.leave(reset=reset)
        await gone(server)
        ending = Ending.PEER_RESET if reset else Ending.PEER_CLOSED
        assert {one.ending for one in server.timeline().visits} == {ending}


def narrow(server):
    """Give new connections small kernel buffers."""
    for room in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        server._port._sock.setsockopt(socket.SOL_SOCKET, room, 32 * 1024)
    return server


async def stuffed(server, client):
    """Send PINGs without reading, until the server stops reading; return the server's transport."""
    client.writer.transport.pause_reading()
    client.send(PREFACE)
    pings = PingFrame(0, bytes(8)).serialize() * 10_000
    async with asyncio.timeout(WITHIN):
        while client.writer.transport.get_write_buffer_size() < 256 * 1024:
            client.send(pings)
            await asyncio.sleep(0.005)
    (visitor,) = server._visitors
    return visitor.wire._transport


async def test_a_client_that_asks_and_does_not_listen():
    """IO-3: the server stops reading from a client that does not read its answers, so that answers cannot pile up.

    Once the client reads them, it is served again.
    """
    async with surviving(flaky.Working()) as server, await Client.open_narrow(narrow(server)) as client:
        transport = await stuffed(server, client)
        assert 0 < transport.get_write_buffer_size() <= 1024 * 1024
        client.writer.transport.resume_reading()
        unread = client.writer.transport.get_write_buffer_size()
        async with asyncio.timeout(WITHIN):
            while client.writer.transport.get_write_buffer_size() > unread / 2:
                await client.silence()


class OnWord(flaky.Behaviour):
    """Sends SETTINGS and closes when the test sets `word`."""

    __slots__ = ()
    name = "on_word"
    word = asyncio.Event()

    async def serve(self, connection):
        connection.http2.send_settings()
        await self.word.wait()


async def test_a_client_that_takes_nothing_does_not_hold_up_the_end():
    """IO-3: data that a client does not read is dropped a second after the connection is closed. Waits that second."""
    OnWord.word = asyncio.Event()
    async with nothing_left(), flaky.FlakyServer(OnWord()) as server:
        async with await Client.open_narrow(narrow(server)) as client:
            transport = await stuffed(server, client)
            assert transport.get_write_buffer_size() > 0
            OnWord.word.set()
            await gone(server)
        (one,) = server.timeline().visits
        assert one.ending is Ending.CLOSED
        assert server.timeline().taken - one.ended >= 0.9


async def test_a_client_that_asks_for_too_much_before_it_hears_anything():
    """IO-3: a client that sends too much before the server answers is reset, so its answers cannot pile up."""
    async with surviving(flaky.Silent()) as server, await Client.open(server) as client:
        client.send(PREFACE + PingFrame(0, bytes(8)).serialize() * 100_000)
        assert await client.until_end() == "reset"
    assert server.timeline().visits[0].ending is Ending.RESET


async def ask(client):
    client.hello()
    await client.until(HeadersFrame, client.request(), 2)


@pytest.mark.parametrize(
    "script",
    [flaky.Working(), flaky.AcceptClose(), flaky.AcceptReset(), flaky.SettingsThenClose(), flaky.Silent()],
)
async def test_a_thousand_connections_at_once(script):
    """IO-3: a thousand concurrent connections are accepted, serve, fail or hang alike, and leave nothing behind."""
    with raised_limit(4096):
        async with nothing_left():
            async with flaky.FlakyServer(script) as server:
                clients = await asyncio.gather(*(Client.open(server) for _ in range(1000)))
                async with asyncio.timeout(WITHIN):
                    await server.wait_for(connections=1000)
                if script == flaky.Working():
                    await asyncio.gather(*map(ask, clients))
                    for client in clients[:500]:
                        await client.leave(reset=client is clients[0])
                    async with asyncio.timeout(WITHIN):
                        await server.wait_for(ended=500)
                    assert len(server._visitors) == 500
                elif script != flaky.Silent():
                    assert len({await client.until_end() for client in clients}) == 1
            for client in clients:
                await client.leave()
            visits = server.timeline().visits
            assert len(visits) == 1000
            requests = [request.outcome for one in visits for request in one.requests]
            assert requests == (["ok"] * 1000 if script == flaky.Working() else [])


async def test_half_open_clients():
    """IO-3: clients that connect and send nothing, or half a handshake, do not keep others out. Waits 0.3 s."""
    async with nothing_left():
        async with flaky.FlakyServer(flaky.Working(), TLS) as server:
            clients = [await Client.open(server) for _ in range(50)]
            for client in clients[:25]:
                client.send(b"\x16\x03\x01")
            await working(server)
            assert await clients[0].silence() is None
        assert [await client.until_end() for client in clients] == ["closed"] * 50
        for client in clients:
            await client.leave()


@contextlib.contextmanager
def no_descriptors():
    """Use up all file descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    filling = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(path.name) for path in Path("/proc/self/fd").iterdir()), hard))
    try:
        with contextlib.suppress(OSError):
            while True:
                filling.append(os.dup(filling[0]))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in filling:
            os.close(descriptor)


@pytest.mark.parametrize("closes", [False, True])
async def test_no_descriptor_is_left_to_accept_with(closes):
    """IO-3: without a free file descriptor, the server waits for one, and accepts then unless it was closed.

    Waits 0.3 s.
    """
    loop = asyncio.get_running_loop()
    async with nothing_left():
        async with flaky.FlakyServer(flaky.Working()) as server:
            with socket.socket() as sock:
                sock.setblocking(False)
                with no_descriptors():
                    await loop.sock_connect(sock, ("127.0.0.1", server.port))
                    await asyncio.sleep(0.05 if closes else SOON)
                    assert server.timeline().visits == ()
                if not closes:
                    async with asyncio.timeout(WITHIN):
                        await server.wait_for(connections=1)
            await gone(server)
        if closes:
            await asyncio.sleep(SOON)


def test_h2_raises_nothing_else_on_garbage():
    """IO-3: h2 raises only ProtocolError for malformed input; the server relies on this."""
    rng = random.Random(1)
    truth = frames()["request and reset at once"][24:]
    for _ in range(3000):
        h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        h2.initiate_connection()
        bent = bytearray(truth)
        for _ in range(rng.randint(1, 6)):
            bent[rng.randrange(len(bent))] = rng.randrange(256)
        with contextlib.suppress(ProtocolError):
            h2.receive_data(PREFACE + bytes(bent))
