"""The connector on asyncio and h2, with real peers: each stage, its failures, and that nothing is left open.

Timing is checked only to see whether a limit was kept, with slack for a busy machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import socket
import subprocess
import sys
import time
from functools import partialmethod

import pytest
import trustme

from grpc_backoff import ConnectError, Stage
from grpc_backoff.probe.http2 import Http2Connector
from grpc_backoff.probe.stages import NoSettings, StageListener, WrongAlpn
from grpc_backoff.probe.wire import Wire
from grpc_backoff.testing.front import (
    FlakyFront,
    accept_close,
    http1_answer,
    settings_only,
    settings_then_close,
    silent,
)
from tests.connectors import check_connector
from tests.echo import serving
from tests.peers import (
    PING,
    SETTINGS,
    client_tls,
    deaf_port,
    goaway,
    nothing_left,
    peer,
    says,
    server_tls,
)

CA = trustme.CA()
CERTIFICATE = CA.issue_cert("localhost", "127.0.0.1")
SLOW = 10.0
"""A time limit in seconds, much longer than anything here takes."""
CLOSED_WITHIN = 0.25 + 0.5  # CB-3, and slack for a busy machine


@pytest.fixture(params=[False, True], ids=["plaintext", "TLS"])
def tls(request):
    """Return how to dial a server, and how to serve, in plaintext and with TLS."""
    return ({"tls": client_tls(CA)}, {"tls": server_tls(CERTIFICATE)}) if request.param else ({}, {})


STAGES = ("resolved", "reached", "tunnelled", "secured", "settled", "passed_over")


class Seen(StageListener):
    """Records what it hears: the names of the methods, what they were told by name, and the durations."""

    def __init__(self):
        self.names, self.told, self.took = [], {}, []

    def _heard(self, name, took, *found):
        self.names.append(name)
        self.told[name] = found
        self.took.append(took)


for stage in STAGES:
    setattr(Seen, stage, partialmethod(Seen._heard, stage))


async def connected(target, **how):
    connector = Http2Connector(target, **how)
    return connector, await asyncio.wait_for(connector.connect(5.0), SLOW)


async def failure(target, *, limit=5.0, **how):
    with pytest.raises(ConnectError) as caught:
        await asyncio.wait_for(Http2Connector(target, **how).connect(limit), SLOW)
    return caught.value


async def test_it_passes_the_checks_of_any_connector():
    """CB-3, CB-6: `check_connector` accepts the connector. Takes about five seconds of real time."""
    async with nothing_left():
        await check_connector(Http2Connector)


# Success, and the stages that precede it.


async def test_a_real_server():
    """CB-6, CH-11: connecting to a real grpc server reports each stage in order, with its time."""
    seen = Seen()
    async with serving() as port, nothing_left():
        began = time.perf_counter()
        connector, connection = await connected(f"localhost:{port}", listener=seen)
        took = time.perf_counter() - began
        assert connection.alive()
        await connector.close(None)
    assert seen.names == ["resolved", "reached", "settled"]
    assert seen.told["reached"][0] in seen.told["resolved"][0]
    assert seen.told["reached"][0] == connector.address
    assert seen.told["settled"][0]["MAX_FRAME_SIZE"] >= 16384
    assert seen.told["settled"][0] == connection.wire.settings
    assert min(seen.took) >= 0
    assert sum(seen.took) <= took


async def test_a_real_server_behind_tls():
    """CH-8, CH-11: with TLS, the handshake's result is reported before SETTINGS."""
    seen = Seen()
    async with peer(says(SETTINGS, "hold"), tls=server_tls(CERTIFICATE)) as target, nothing_left():
        connector, connection = await connected(target, tls=client_tls(CA), listener=seen)
        await connector.close(None)
    assert seen.names == ["resolved", "reached", "secured", "settled"]
    [security] = seen.told["secured"]
    assert security.alpn == "h2"
    assert security.certificate.names == ("localhost", "127.0.0.1")
    assert connection.wire.settings == {"MAX_CONCURRENT_STREAMS": 100, "INITIAL_WINDOW_SIZE": 65535}


async def test_a_unix_socket(tmp_path):
    """CH-8: a target may be a Unix socket; with TLS, its certificate must be for localhost."""
    tls = server_tls(CERTIFICATE)
    for how, path in (({}, f"{tmp_path}/a"), ({"tls": client_tls(CA)}, f"{tmp_path}/b")):
        async with peer(says(SETTINGS, "hold"), path=path, tls=tls if how else None) as target, nothing_left():
            connector, _ = await connected(target, **how)
            assert str(connector.address) == target
            await connector.close(None)


async def test_another_server_name():
    """CH-8: `server_name` sets the name that the certificate must have."""
    certificate = CA.issue_cert("orders.example")
    async with peer(says(SETTINGS, "hold"), tls=server_tls(certificate)) as target:
        assert (await failure(target, tls=client_tls(CA))).failure.stage is Stage.TLS
        connector, _ = await connected(target, tls=client_tls(CA), server_name="orders.example")
        await connector.close(None)


@pytest.mark.parametrize("name", ["resolved", "reached", "secured", "settled"])
async def test_what_listens_to_the_stages_may_raise(name):
    """CH-11: an exception of the listener ends the attempt, and nothing is left open."""
    listener = StageListener()
    setattr(listener, name, lambda *_: {}["missing"])
    async with peer(says(SETTINGS, "hold"), tls=server_tls(CERTIFICATE)) as target, nothing_left():
        connector = Http2Connector(target, tls=client_tls(CA), listener=listener)
        with pytest.raises(KeyError):
            await connector.connect(5.0)
        await connector.close(None)


# Failures at every stage.


@pytest.mark.parametrize("alpn", [(), ("http/1.1",)])
async def test_no_http2_behind_tls(alpn):
    """CH-8: without h2 by ALPN, the attempt fails at stage tls, as with gRPC, and no preface is sent."""
    heard = []

    async def behave(reader, writer):
        try:
            heard.append(await reader.read(1000))
        except ConnectionError:
            heard.append(b"")

    async with peer(behave, tls=server_tls(CERTIFICATE, alpn=alpn)) as target, nothing_left():
        error = await failure(target, tls=client_tls(CA))
        await asyncio.sleep(0.1)
    assert error.failure.stage is Stage.TLS
    assert "ALPN 'h2' is required; the server chose none" in error.failure.reason
    assert isinstance(error.__cause__, WrongAlpn)
    assert b"".join(heard) == b""


async def test_a_client_certificate():
    """CH-8: mutual TLS works if the server trusts the client's certificate."""
    shown = CA.issue_cert("client.example")
    server = server_tls(CERTIFICATE, clients=CA)
    async with peer(says(SETTINGS, "hold"), tls=server) as target, nothing_left():
        connector, connection = await connected(target, tls=client_tls(CA, certificate=shown))
        assert connection.alive()
        await connector.close(None)


# The limit (CB-3).


async def kept(front_or_target, limit, **how):
    """Return the failure of an attempt, after checking that the attempt took exactly as long as its limit allows."""
    began = time.monotonic()
    error = await failure(front_or_target, limit=limit, **how)
    lasted = time.monotonic() - began
    assert limit - 0.01 <= lasted <= limit + CLOSED_WITHIN
    assert f"within {limit:.3g} s" in error.failure.reason
    return error


async def test_limit_at_resolve(monkeypatch):
    """CB-3: if the resolver does not answer, the attempt fails at its limit, at stage resolve."""

    async def hang(*_, **__):
        await asyncio.sleep(SLOW)

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", hang)
    async with nothing_left():
        error = await kept("orders.example:1", 0.3)
    assert error.failure.stage is Stage.RESOLVE
    assert "orders.example" in error.failure.reason
    assert isinstance(error.__cause__, TimeoutError)


async def test_limit_at_tcp():
    """CB-3: if a host does not answer the connection request, the attempt fails at its limit, at stage tcp."""
    with deaf_port() as target:
        async with nothing_left():
            error = await kept(target, 0.5)
    assert error.failure.stage is Stage.TCP
    assert target in error.failure.reason
    assert isinstance(error.__cause__, TimeoutError)


@pytest.mark.parametrize("behind_tls", [False, True])
async def test_limit_with_a_silent_server(behind_tls):
    """CB-3: with a silent server, the attempt fails at stage tls or settings, and its socket is closed promptly."""
    how = {"tls": client_tls(CA)} if behind_tls else {}
    async with FlakyFront(silent) as front:
        async with nothing_left():
            error = await kept(front.target, 0.5, **how)
            while front.visits[0].ended is None:
                await asyncio.sleep(0.01)
        assert front.visits[0].ended - front.visits[0].at <= 0.5 + CLOSED_WITHIN
    assert error.failure.stage is (Stage.TLS if behind_tls else Stage.SETTINGS)
    cause = error.__cause__
    assert isinstance(cause if behind_tls else cause.error, TimeoutError)


async def test_limit_behind_a_finished_handshake():
    """CB-3: if no SETTINGS follow a TLS handshake, the limit holds, and closing TLS does not prolong the attempt."""
    closed = asyncio.Event()

    async def behave(reader, writer):
        while await reader.read(1000):
            pass
        closed.set()

    async with peer(behave, tls=server_tls(CERTIFICATE)) as target, nothing_left():
        error = await kept(target, 0.5, tls=client_tls(CA))
        await asyncio.wait_for(closed.wait(), SLOW)
    assert error.failure.stage is Stage.SETTINGS


async def test_limit_with_trickled_bytes():
    """CB-3: a server that sends its SETTINGS byte by byte does not extend the limit."""
    drops = itertools.chain.from_iterable((SETTINGS[n : n + 1], 0.1) for n in range(len(SETTINGS)))
    async with nothing_left(), peer(says(*drops)) as target:
        error = await kept(target, 0.5)
    assert error.failure.stage is Stage.SETTINGS
    assert "it sent only" in error.failure.reason


async def test_limit_at_the_second_address():
    """CB-3, CH-11: bytes received from the first address do not appear in the failure of the second."""
    async with FlakyFront(http1_answer) as first, FlakyFront(silent) as second, nothing_left():
        error = await kept(f"ipv4:{first.target},{second.target}", 0.5)
    assert error.failure.reason.startswith(f"{second.target}: no SETTINGS frame")
    assert "HTTP/1" not in error.failure.reason
    assert error.__cause__.head == b""


async def test_settings_before_the_limit_end_it():
    """CB-3, CB-6: once SETTINGS have arrived, the limit no longer applies. Waits 0.6 s."""
    async with peer(says(0.2, SETTINGS, "hold")) as target, nothing_left():
        connector = Http2Connector(target)
        connection = await connector.connect(0.5)
        await asyncio.sleep(0.4)
        assert connection.alive()
        await connector.close(None)


async def test_no_limit():
    """CB-3: an attempt's limit may be infinite."""
    async with FlakyFront(settings_only) as front, nothing_left():
        connector = Http2Connector(front.target)
        assert (await connector.connect(float("inf"))).alive()
        await connector.close(None)


# Cancellation (CB-10).


async def cancelled_at(moment, target, **how):
    """Cancel an attempt after this many steps of the loop and check that nothing is left of it."""
    connector = Http2Connector(target, **how)
    async with nothing_left():
        attempt = asyncio.ensure_future(connector.connect(5.0))
        for _ in range(moment):
            if attempt.done():
                break
            await asyncio.sleep(0)
        attempt.cancel()
        outcome = (await asyncio.gather(attempt, return_exceptions=True))[0]
        await connector.close(None)
    return outcome


async def test_cancelled_at_every_step(tls):
    """CB-10: an attempt may be cancelled at any step and leaves neither socket nor task."""
    dial, serve = tls
    async with peer(says(SETTINGS, "hold"), **serve) as target:
        outcomes = [await cancelled_at(moment, target, **dial) for moment in (*range(60), 100_000)]
    cancelled = [isinstance(each, asyncio.CancelledError) for each in outcomes]
    assert cancelled[0]
    assert not cancelled[-1], "the last ones were over before"
    assert not [each for each in outcomes if isinstance(each, Exception)]


# Addresses.


async def test_an_address_that_fails_behind_tcp_is_passed_over(monkeypatch):
    """CH-8: an address that accepts and then hangs up is skipped in favour of the next one, as with gRPC."""
    seen = Seen()
    async with FlakyFront(accept_close) as bad, FlakyFront(settings_only) as good, nothing_left():
        target = f"ipv4:{bad.target},{good.target}"
        connector, _ = await connected(target, listener=seen)
        await connector.close(None)
    assert seen.names == ["resolved", "reached", "passed_over", "reached", "settled"]
    address, failed = seen.told["passed_over"]
    assert str(address) == bad.target
    assert failed.stage is Stage.SETTINGS
    assert str(connector.address) == good.target


async def test_all_addresses_fail():
    """CH-11: if all addresses fail, the stage is that of the address that got furthest."""
    async with FlakyFront(silent) as refusing, FlakyFront(accept_close) as closing, nothing_left():
        await refusing.refuse()
        for pair in ((refusing, closing), (closing, refusing)):
            error = await failure("ipv4:{}".format(",".join(each.target for each in pair)))
            assert error.failure.stage is Stage.SETTINGS
            assert isinstance(error.__cause__, NoSettings)
            assert f"{closing.target}: the server" in error.failure.reason


async def test_the_address_that_came_furthest_decides():
    """CH-8, CH-11: if one address fails at stage tls and another at settings, in either order, settings counts."""
    stranger = server_tls(trustme.CA().issue_cert("127.0.0.1"))
    async with (
        peer(says("read"), tls=server_tls(CERTIFICATE)) as closing,
        peer(says("hold"), tls=stranger) as untrusted,
    ):
        for pair in ((closing, untrusted), (untrusted, closing)):
            connector = Http2Connector("ipv4:{},{}".format(*pair), tls=client_tls(CA))
            async with nothing_left():
                with pytest.raises(ConnectError) as caught:
                    await asyncio.wait_for(connector.connect(5.0), SLOW)
            error = caught.value
            assert str(connector.address) == closing
            assert error.failure.stage is Stage.SETTINGS
            assert isinstance(error.__cause__, NoSettings)
            assert error.failure.reason.count("127.0.0.1:") == 2


# An established connection.


@contextlib.asynccontextmanager
async def used(connection):
    """Wait for the end of the connection meanwhile, so that it answers."""
    waiting = asyncio.ensure_future(connection.lost())
    yield
    waiting.cancel()
    await asyncio.wait({waiting})


async def lost(connection):
    loss = await asyncio.wait_for(connection.lost(), SLOW)
    assert not connection.alive()
    return loss


async def test_it_answers_pings():
    """CB-6: an open connection acknowledges the server's SETTINGS and PING frames."""
    heard = asyncio.Queue()

    async def behave(reader, writer):
        writer.write(SETTINGS)
        while data := await reader.read(1000):
            heard.put_nowait(data)
            if PING[9:] not in data:
                writer.write(PING)

    async with peer(behave) as target, nothing_left():
        connector, connection = await connected(target)
        said = b""
        async with used(connection):
            while PING[9:] not in said:
                said += await asyncio.wait_for(heard.get(), SLOW)
        assert b"\x00\x00\x00\x04\x01\x00\x00\x00\x00" in said  # SETTINGS, ACK
        assert b"\x00\x00\x08\x06\x01\x00\x00\x00\x00" + PING[9:] in said  # PING, ACK
        assert connection.alive()
        await connector.close(None)


@pytest.mark.parametrize(
    ("steps", "graceful", "words"),
    [
        ([goaway(0, b"max_age") + PING, "hold"], True, "GOAWAY NO_ERROR, 'max_age'"),
        ([goaway(11, b"too_many_pings"), "hold"], False, "GOAWAY ENHANCE_YOUR_CALM"),
        ([0.05], False, "the server closed the connection"),
        ([b"\x00\x00\x01\x06\x00\x00\x00\x00\x00x", "hold"], False, "it violated HTTP/2"),
        ([b"\xff" * 50, "hold"], False, "it announced a frame of"),
    ],
)
async def test_how_it_ends(steps, graceful, words, tls):
    """CB-8: a GOAWAY, a close and a protocol violation are distinguished, and nothing is left open."""
    dial, serve = tls
    async with peer(says(SETTINGS, *steps), **serve) as target, nothing_left():
        _, connection = await connected(target, **dial)
        loss = await lost(connection)
    assert loss.graceful is graceful
    assert words in loss.reason
    assert not loss.served


async def test_it_ends_by_reset():
    """CB-8: if the server resets the connection, the reason for the loss is a reset."""
    async with FlakyFront(settings_only) as front, nothing_left():
        _, connection = await connected(front.target)
        await front.break_all()
        assert "reset" in (await lost(connection)).reason


async def test_settings_and_the_end_in_one():
    """CB-6: SETTINGS directly followed by GOAWAY or FIN count as a success, and then as a loss."""
    for steps in ([SETTINGS + goaway()], [SETTINGS]):
        async with peer(says("read", *steps)) as target, nothing_left():
            _, connection = await connected(target)
            await lost(connection)
    async with FlakyFront(settings_then_close(0)) as front, nothing_left():
        _, connection = await connected(front.target)
        await lost(connection)


async def test_retiring_says_goaway():
    """CB-10: `retire` sends GOAWAY and may be called twice; the loss counts as graceful."""
    heard = []

    async def behave(reader, writer):
        writer.write(SETTINGS)
        while data := await reader.read(1000):
            heard.append(data)

    async with peer(behave) as target, nothing_left():
        connector, connection = await connected(target)
        connection.retire()
        connection.retire()
        assert (await lost(connection)).graceful
        await connector.close(None)
        for _ in range(100):
            if heard and heard[-1].endswith(goaway()):
                break
            await asyncio.sleep(0.01)
        assert heard[-1].endswith(goaway())


async def test_a_server_that_does_not_read_holds_nothing_up(tls):
    """CB-10: closing takes at most 250 ms, even if the server does not read."""
    stopped = asyncio.Event()

    async def behave(reader, writer):
        writer.write(SETTINGS)
        writer.transport.pause_reading()
        await stopped.wait()

    dial, serve = tls
    async with nothing_left(), peer(behave, **serve) as target:
        connector, _ = await connected(target, **dial)
        began = time.monotonic()
        await asyncio.wait_for(connector.close(None), SLOW)
        assert time.monotonic() - began <= CLOSED_WITHIN
        stopped.set()


@pytest.mark.parametrize("reads_at_last", [False, True])
async def test_pings_of_a_server_that_reads_no_answers_do_not_pile_up(reads_at_last, monkeypatch):
    """CB-6, CB-10: while the server does not read, no more PINGs are read from it; closing is not delayed."""
    reads = asyncio.Event()

    async def behave(reader, writer):
        writer.transport.pause_reading()
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        writer.write(SETTINGS)
        pump = asyncio.ensure_future(ping_on(writer))
        await reads.wait()
        pump.cancel()
        writer.transport.resume_reading()
        while await reader.read(65536):
            pass

    async def ping_on(writer):
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(PING * 1000)
                await writer.drain()

    async with nothing_left(), asyncio.timeout(60), peer(behave) as target:
        connector, connection = await connected(target)
        transport, fed = connection._transport, []
        transport._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        monkeypatch.setattr(connection.wire, "feed", lambda data: (fed.append(data), Wire.feed(connection.wire, data)))
        async with used(connection):
            before = None
            while before != len(fed) or not fed:
                before = len(fed)
                await asyncio.sleep(0.2)
            assert sum(map(len, fed)) <= 16 * 1024 * 1024
            if reads_at_last:
                reads.set()
                while before == len(fed):
                    await asyncio.sleep(0.01)
                assert connection.alive()
        began = time.monotonic()
        await connector.close(None)
        assert time.monotonic() - began <= CLOSED_WITHIN
        reads.set()


async def test_a_flood_of_pings_leaves_the_loop_free(tls, monkeypatch):
    """CB-12: during a flood of PINGs, at most a few KiB are processed before other tasks run."""
    understood = []
    feed = Wire.feed
    monkeypatch.setattr(Wire, "feed", lambda wire, data: (understood.append(len(data)), feed(wire, data)))

    async def behave(reader, writer):
        writer.write(SETTINGS)
        while True:
            writer.write(PING * 1000)
            await writer.drain()
            await reader.read(65536)

    dial, serve = tls
    async with peer(behave, **serve) as target:
        connector, connection = await connected(target, **dial)
        async with used(connection):
            while sum(understood) < 64 * 1024:
                before = sum(understood)
                await asyncio.sleep(0)
                assert sum(understood) - before <= 16 * 1024
            assert connection.alive()
        await connector.close(None)


async def test_a_lost_connection_is_replaced():
    """CB-7: a retired connection ends at once, and the next attempt makes one new connection."""
    async with FlakyFront(settings_only) as front, nothing_left():
        connector, first = await connected(front.target)
        first.retire()
        second = await connector.connect(5.0)
        assert not first.alive()
        assert second.alive()
        assert len(front.visits) == 2
        await connector.close(None)
        assert not second.alive()


@pytest.mark.parametrize("seed", range(20))
async def test_garbage_never_raises(seed):
    """CB-6: with random bytes from the server, connecting succeeds or raises ConnectError; a loss has a reason."""
    rng = random.Random(seed)
    pieces = [rng.choice((SETTINGS, PING, goaway(), rng.randbytes(rng.randrange(60)))) for _ in range(10)]
    async with peer(says("read", *pieces)) as target, nothing_left():
        connector = Http2Connector(target)
        [outcome] = await asyncio.gather(connector.connect(5.0), return_exceptions=True)
        if isinstance(outcome, ConnectError):
            assert outcome.failure.stage is Stage.SETTINGS
            assert outcome.failure.reason
        else:
            assert (await lost(outcome)).reason
        await connector.close(None)


# Without h2.


def test_without_h2_one_line_says_what_to_install():
    """Without h2, importing the connector raises an error that names the extra to install."""
    code = "import sys; sys.modules['h2'] = None; import grpc_backoff.probe.http2"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    said = "connect --probe needs the extra 'probe': pip install 'grpc-backoff[probe]', or '.[probe]' in a checkout"
    assert done.stderr.splitlines()[-1].endswith(said)
