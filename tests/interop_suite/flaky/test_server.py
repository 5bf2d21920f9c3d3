"""The flaky server: it follows its script, keeps its port, and records what it sees."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hyperframe.frame import GoAwayFrame, HeadersFrame, RstStreamFrame, SettingsFrame

from grpc_judge import flaky
from grpc_judge.timeline import Ending
from tests.interop_suite.flaky.clients import PATH, PREFACE, TLS, WITHIN, Client


async def visited(server, ended):
    async with asyncio.timeout(WITHIN):
        await server.wait_for(ended=ended)
    return server.timeline().visits


@pytest.mark.parametrize("tls", [None, TLS], ids=["plaintext", "tls"])
async def test_the_moments_of_a_visit(tls):
    """IO-3: a visit records the times of its events in order, on one clock, from accepted to ended. Waits 0.4 s."""
    async with flaky.FlakyServer(flaky.SlowSettings(0.1), tls) as server:
        before = time.monotonic()
        async with await Client.open(server, tls=tls is not None) as client:
            connected = time.monotonic()
            await asyncio.sleep(0.1)
            client.hello()
            await client.until(SettingsFrame)
            first = client.request()
            await client.until(HeadersFrame, first, 2)
            await asyncio.sleep(0.1)
            second = client.request(ends=False)
            (visit,) = server.timeline().visits
            assert (visit.ended, visit.ending) == (None, Ending.OPEN)
            async with asyncio.timeout(WITHIN):
                while len(server.timeline().visits[0].requests) < 2:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            await client.leave()
        (visit,) = await visited(server, 1)
    one, two = visit.requests
    assert (one.stream, one.path, one.outcome) == (first, PATH, "ok")
    assert (two.stream, two.path, two.outcome) == (second, PATH, "open")
    assert visit.ending is Ending.PEER_CLOSED
    if tls is None:
        moments = [visit.accepted, visit.settings_sent, one.at, two.at, visit.ended]
        assert visit.accepted + 0.08 <= visit.first_bytes <= visit.preface < one.at
    else:
        moments = [visit.accepted, visit.first_bytes, visit.settings_sent, one.at, two.at, visit.ended]
        assert visit.first_bytes + 0.08 <= visit.preface, "the ClientHello came first"
    assert moments == sorted(moments)
    assert two.at - one.at >= 0.1
    assert visit.ended - two.at >= 0.1
    assert visit.accepted <= connected - before + 0.02
    assert visit.settings_sent - visit.accepted >= 0.1


async def test_a_moment_that_never_came_is_none():
    """IO-3: the time of an event that never happened is None, as when a client sends at most part of a preface."""
    async with flaky.FlakyServer(flaky.Silent()) as server:
        await (await Client.open(server)).leave()
        (visit,) = await visited(server, 1)
        assert (visit.first_bytes, visit.preface, visit.settings_sent, visit.requests) == (None, None, None, ())
        async with await Client.open(server) as client:
            client.send(PREFACE[:-1])
            await asyncio.sleep(0.1)
            await client.leave()
        _, visit = await visited(server, 2)
        assert visit.first_bytes is not None
        assert visit.preface is None


async def test_first_moments_stand():
    """IO-3: later SETTINGS, or RST_STREAM after a refusal, do not change what was recorded. Waits 0.2 s."""
    async with flaky.FlakyServer(flaky.SettingsThenGoaway(after=0.1)) as server, await Client.open(server) as client:
        client.hello()
        stream = client.request()
        await client.until(GoAwayFrame)
        (before,) = server.timeline().visits
        client.send(SettingsFrame().serialize() + RstStreamFrame(stream, 8).serialize())
        await client.until(SettingsFrame, count=3)  # the server's own, and two acknowledgements
        await asyncio.sleep(0.1)
        (after,) = server.timeline().visits
        assert after == before
        assert [request.outcome for request in after.requests] == ["refused"]


@pytest.mark.parametrize("tls", [None, TLS], ids=["plaintext", "tls"])
@pytest.mark.parametrize("script", [flaky.Silent(), flaky.Working()])
@pytest.mark.parametrize(("reset", "ending"), [(False, Ending.PEER_CLOSED), (True, Ending.PEER_RESET)])
async def test_how_a_client_left(tls, script, reset, ending):
    """IO-3: a visit records whether the client ended the connection by FIN or RST. Waits 0.1 s."""
    async with flaky.FlakyServer(script, tls) as server:
        async with await Client.open(server, tls=tls is not None) as client:
            client.send(PREFACE)
            await asyncio.sleep(0.1)
            await client.leave(reset=reset)
        (visit,) = await visited(server, 1)
        assert visit.ending is ending


async def test_break_all():
    """IO-3: `break_all` resets every open connection at the same moment, and the script continues."""
    async with flaky.FlakyServer([flaky.Step(flaky.Silent(), times=2), flaky.Working()]) as server:
        clients = [await Client.open(server) for _ in range(4)]
        async with asyncio.timeout(WITHIN):
            await server.wait_for(connections=4)
        server.break_all()
        assert [await client.until_end() for client in clients] == ["reset"] * 4
        visits = await visited(server, 4)
        assert {visit.ending for visit in visits} == {Ending.RESET}
        assert max(visit.ended for visit in visits) - min(visit.ended for visit in visits) < 0.5
        for client in clients:
            await client.leave()
        async with await Client.open(server) as client:
            await client.until(SettingsFrame)


async def test_play():
    """IO-3: `play` sets the script for new connections and leaves the open ones alone."""
    async with flaky.FlakyServer(flaky.Working()) as server, await Client.open(server) as old:
        await old.until(SettingsFrame)
        server.play([flaky.Step(flaky.AcceptReset(), times=1), flaky.Silent()])
        async with await Client.open(server) as client:
            assert await client.until_end() == "reset"
        old.hello()
        await old.until(HeadersFrame, old.request(), 2)
        with pytest.raises(TypeError, match="behaviour='nothing': expected a behaviour"):
            server.play("nothing")
        async with await Client.open(server):
            async with asyncio.timeout(WITHIN):
                await server.wait_for(connections=3)
            seen = [(visit.number, visit.behaviour) for visit in server.timeline().visits]
            assert seen == [(1, "working"), (2, "accept_reset"), (3, "silent")]


async def test_time_of_a_script_that_is_played_later():
    """IO-3: `until` counts from the start of the script, not of the server. Waits 0.9 s."""
    async with flaky.FlakyServer(flaky.Working()) as server:
        await asyncio.sleep(0.5)
        server.play([flaky.Step(flaky.Refuse(), until=0.4), flaky.Working()])
        began = time.monotonic()
        async with asyncio.timeout(WITHIN):
            while server.timeline().refusing[0].end is None:
                await asyncio.sleep(0.005)
        assert time.monotonic() - began >= 0.38
        (window,) = server.timeline().refusing
        assert window.begin >= 0.5
        assert window.end - window.begin >= 0.38


async def test_refused_times_are_noted():
    """IO-3: with `refuse`, the kernel refuses connections for as long as the script says. Waits 0.6 s.

    Consecutive steps are recorded as one window, without an end while it lasts.
    """
    began = time.monotonic()
    async with flaky.FlakyServer(
        [
            flaky.Step(flaky.Refuse(), lasting=0.2),
            flaky.Step(flaky.Refuse(), lasting=0.1),
            flaky.Step(flaky.Working(), times=1),
            flaky.Step(flaky.Refuse(), lasting=0.1),
            flaky.Refuse(),
        ]
    ) as server:
        port = server.port
        with pytest.raises(ConnectionRefusedError):
            await Client.open(server)
        async with await Client.open_late(server) as client:
            assert time.monotonic() - began >= 0.28
            await client.until(SettingsFrame)
            for _ in range(5):
                with pytest.raises(ConnectionRefusedError):
                    await Client.open(server)
                await asyncio.sleep(0.05)
        first, second = server.timeline().refusing
        (visit,) = await visited(server, 1)
        assert 0.3 <= first.end <= visit.accepted <= second.begin
        assert first.begin <= 0.1
        assert second.end is None
        assert server.port == port


async def test_listening_again_and_again():
    """IO-3: the server can stop and resume listening many times, whether connections are open or closed."""
    async with flaky.FlakyServer(flaky.Working()) as server:
        clients = []
        for _ in range(20):
            clients.append(await Client.open(server))
            await clients[-1].until(SettingsFrame)
            server.play(flaky.Refuse())
            with pytest.raises(ConnectionRefusedError):
                await Client.open(server)
            await clients[len(clients) // 2].leave()
            server.play(flaky.Working())
        assert len(server.timeline().refusing) == 20
        for client in clients:
            await client.leave()
        assert len(await visited(server, 20)) == 20


async def test_nobody_else_gets_the_port_while_it_refuses():
    """IO-3: the port stays reserved while the server refuses and is free once the server is closed."""
    async with flaky.FlakyServer(flaky.Refuse()) as server:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", server.port))
    async with flaky.FlakyServer(flaky.Working(), port=server.port) as again, await Client.open(again) as client:
        await client.until(SettingsFrame)
        with pytest.raises(OSError, match="in use"):
            await flaky.FlakyServer(flaky.Working(), port=again.port).__aenter__()


async def test_a_loop_that_is_late():
    """IO-3: a connection that came during a step but is noticed after its end does not belong to that step.

    The server resets it, as the kernel does once the listener is closed. The test blocks the loop for 0.4 s.
    """
    async with flaky.FlakyServer(
        [flaky.Step(flaky.Working(), until=0.3), flaky.Step(flaky.Refuse(), lasting=0.5), flaky.Silent()]
    ) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            time.sleep(0.4)  # noqa: ASYNC251 - makes the loop late
            sock.setblocking(False)
            with pytest.raises(ConnectionResetError):
                await asyncio.get_running_loop().sock_recv(sock, 1)
        assert server.timeline().visits == ()


async def test_what_is_behind_the_last_connection_of_a_step():
    """IO-3: if many connections come at once, a step accepts only as many as it should. Blocks for 0.1 s."""
    async with flaky.FlakyServer([flaky.Step(flaky.Silent(), times=3), flaky.Refuse()]) as server:
        socks = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(10)]
        time.sleep(0.1)  # noqa: ASYNC251 - lets all connections arrive at once
        async with asyncio.timeout(WITHIN):
            await server.wait_for(connections=3)
        ends = []
        for sock in socks:
            sock.settimeout(0.05)
            try:
                ends.append(sock.recv(1))
            except ConnectionResetError:
                ends.append("reset")
            except TimeoutError:
                ends.append("open")
            sock.close()
        assert ends == ["open"] * 3 + ["reset"] * 7
        assert len(server.timeline().visits) == 3


async def test_restart():
    """IO-3: `restart` resets all connections, clears the timeline, and starts the script and the clock again."""
    async with flaky.FlakyServer(
        [flaky.Step(flaky.Silent(), times=1), flaky.Step(flaky.AcceptReset(), times=1), flaky.Working()]
    ) as server:
        for _ in range(2):
            async with await Client.open(server) as client, await Client.open(server) as second:
                assert await second.until_end() == "reset"
                await asyncio.sleep(0.3)
                port = server.port
                await server.restart()
                assert server._visitors == set(), "they are gone before it begins"
                assert await client.until_end() == "reset"
            timeline = server.timeline()
            assert (timeline.visits, timeline.refusing) == ((), ())
            assert timeline.taken < 0.3
            assert server.port == port


async def test_labels_and_a_common_clock():
    """IO-3: visits carry their server's label, and servers with the same epoch share a clock."""
    epoch = time.monotonic() - 1000
    async with (
        flaky.FlakyServer(flaky.Silent(), client="a", epoch=epoch) as one,
        flaky.FlakyServer(flaky.Silent(), client="b", epoch=epoch) as two,
    ):
        for server in (one, two, one, two):
            await (await Client.open(server)).leave()
        visits = [*await visited(one, 2), *await visited(two, 2)]
    visits.sort(key=lambda visit: visit.accepted)
    assert [visit.client for visit in visits] == ["a", "b", "a", "b"]
    assert all(1000 <= visit.accepted <= 1000 + WITHIN for visit in visits)


async def test_waiting_for_connections_and_ends():
    """IO-3: `wait_for` returns once the given numbers of connections have been accepted and have ended.

    One that is given up affects neither the server nor the others. Waits 0.1 s.
    """
    async with flaky.FlakyServer(flaky.Silent()) as server:
        arrived = asyncio.ensure_future(server.wait_for(connections=2))
        over = asyncio.ensure_future(server.wait_for(ended=1))
        async with await Client.open(server) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(server.wait_for(connections=2), 0.1)
            assert not arrived.done()
            async with await Client.open(server):
                await asyncio.wait_for(arrived, WITHIN)
                assert not over.done()
                await client.leave()
                await asyncio.wait_for(over, WITHIN)
        await server.wait_for()


@pytest.mark.parametrize(("host", "target"), [("127.0.0.1", "127.0.0.1:{}"), ("::1", "[::1]:{}")])
async def test_addresses(host, target):
    """IO-3: the server listens on an IPv4 or an IPv6 address."""
    async with flaky.FlakyServer(flaky.AcceptReset(), host=host) as server:
        assert server.target == target.format(server.port)
        reader, writer = await asyncio.open_connection(host, server.port)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(1), WITHIN)
        writer.close()


async def test_an_address_that_is_none():
    """IO-3: the host must be an IP address; names are not resolved."""
    with pytest.raises(ValueError, match="'localhost' does not appear to be an IPv4 or IPv6 address"):
        await flaky.FlakyServer(flaky.Silent(), host="localhost").__aenter__()


@dataclass(frozen=True, slots=True)
class Farewell(flaky.Behaviour):
    """A user-defined behaviour."""

    name: ClassVar[str] = "farewell"
    words: int = 1

    async def serve(self, connection):
        connection.wire.write(b"bye" * self.words)


async def test_a_behaviour_of_ones_own():
    """IO-3: users can define behaviours; the connection is closed when `serve` returns."""
    async with flaky.FlakyServer([flaky.Step(Farewell(2), times=1), flaky.Silent()]) as server:
        async with await Client.open(server) as client:
            assert await client.silence(WITHIN) == b"byebye"
            assert await client.silence(WITHIN) == b""
        (visit,) = await visited(server, 1)
        assert (visit.behaviour, visit.ending) == ("farewell", Ending.CLOSED)


class Broken(flaky.Behaviour):
    """A behaviour that raises an error."""

    __slots__ = ()
    name = "broken"

    async def serve(self, connection):
        raise RuntimeError("a defect")


async def test_a_behaviour_that_fails():
    """IO-3: an error in a behaviour closes its connection and reaches the loop's handler; the server continues."""
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with flaky.FlakyServer([flaky.Step(Broken(), times=1), flaky.Working()]) as server:
        async with await Client.open(server) as client:
            assert await client.until_end() == "closed"
        async with await Client.open(server) as client:
            await client.until(SettingsFrame)
        await visited(server, 1)
    assert [str(context["exception"]) for context in reported] == ["a defect"]


async def test_bad_certificates_are_told_at_once():
    """IO-3: an invalid key is an error when the server is constructed, and the repr of `Tls` hides the key."""
    with pytest.raises(OSError, match=r"(?i)pem"):
        flaky.FlakyServer(flaky.Silent(), type(TLS)(TLS.certificate, b"none"))
    assert "PRIVATE" not in repr(TLS)
