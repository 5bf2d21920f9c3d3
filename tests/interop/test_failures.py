"""The channel against servers that fail in different ways, on real sockets and in real time.

Durations are short and tolerances generous, so that the tests also pass on a machine with two busy cores.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection

from grpc_backoff import AttemptFailed, AttemptStarted, Connected, CoreRedial, Disconnected, Stage, aio
from grpc_backoff.testing.front import FlakyFront, healthy, settings_then_close, silent
from grpc_judge.runner.process import free_port
from tests.both_apis.log import Log
from tests.echo import Echo, EchoStub, Message, serving
from tests.interop.names import NameServer
from tests.interop.processes import ServerProcess

FAST = [
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.min_reconnect_backoff_ms", 1000),
]


def channel_to(target, log, options=FAST):
    return aio.insecure_channel(target, options=options, listeners=[log.append])


async def answer(channel, **how):
    return (await EchoStub(channel).Unary(Message(text="hello"), **how)).text


async def test_a_fail_fast_call_misses_two_connections_and_says_why():
    """CH-4, CB-17: if the peer closes after its SETTINGS, a fail-fast call fails, and its error names the loss.

    On a busy machine, a call may enter the connection before the core notices the end; such a call fails as it would
    with grpcio.
    """
    async with FlakyFront(settings_then_close(0)) as front, channel_to(front.target, Log()) as channel:
        details = ""
        for _ in range(5):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await asyncio.wait_for(answer(channel), 30)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            details = caught.value.details()
            if "Stream removed" not in details:
                break
        assert "established: the connection was lost" in details


async def test_goaway_in_mid_traffic_fails_no_call():
    """CH-6: 20 workers lose no call although the server ends each connection at an age of 0.3 s."""
    echo, log, done = Echo(), Log(), Counter()
    options = [("grpc.max_connection_age_ms", 300), ("grpc.max_connection_age_grace_ms", 5000)]
    async with serving(echo, options=options) as port, channel_to(f"127.0.0.1:{port}", log) as channel:
        stub, end = EchoStub(channel), time.monotonic() + 2

        async def worker(number):
            while time.monotonic() < end:
                text = f"{number}-{done[number]}"
                assert (await stub.Unary(Message(text=text))).text == text
                done[number] += 1

        await asyncio.gather(*(worker(number) for number in range(20)))
    assert len(log.of(Connected)) >= 4
    assert max(echo.executed.values()) == 1
    assert sum(echo.executed.values()) == sum(done.values())


async def test_a_wait_for_ready_call_that_its_connection_refused_is_not_left_behind():
    """CH-3, CH-7: a wait-for-ready call that GOAWAY refuses waits for the channel's next connection.

    The core already has the call, and does not wait a second time. Takes a second and a half of real time.
    """
    log = Log()

    async def goaway(visit):
        connection = H2Connection(H2Configuration(client_side=False))
        connection.initiate_connection()
        visit.writer.write(connection.data_to_send())
        await asyncio.sleep(1)
        connection.close_connection(last_stream_id=0)
        visit.writer.write(connection.data_to_send())

    async with (
        serving() as port,
        FlakyFront(goaway, upstream=("127.0.0.1", port)) as front,
        channel_to(front.target, log) as channel,
    ):
        await channel.channel_ready()
        stray = EchoStub(channel).Unary(Message(), wait_for_ready=True)
        await front.refuse()
        front.behaviour = healthy
        await log.arrived(Disconnected)
        await asyncio.sleep(0.3)
        assert not stray.done()
        await front.listen()
        assert await asyncio.wait_for(stray.code(), 30) is grpc.StatusCode.OK
        assert await answer(channel, wait_for_ready=True, timeout=30) == "hello"
        assert len(front.visits) == 2


async def test_a_running_stream_outlives_goaway():
    """CH-6: a stream that runs when GOAWAY arrives continues, and new calls use a new connection."""
    log = Log()
    options = [("grpc.max_connection_age_ms", 300), ("grpc.max_connection_age_grace_ms", 20_000)]
    async with serving(options=options) as port, channel_to(f"127.0.0.1:{port}", log) as channel:
        stub = EchoStub(channel)
        stream = stub.Both()
        await stream.write(Message(text="a"))
        assert (await stream.read()).text == "a"
        await log.arrived(Disconnected)
        assert await answer(channel) == "hello"
        assert len(log.of(Connected)) == 2
        await stream.write(Message(text="b"))
        assert (await stream.read()).text == "b"
        await stream.done_writing()
        assert await stream.read() is grpc.aio.EOF


async def test_frozen_server():
    """CB-3, CB-6: while a server is frozen (SIGSTOP), attempts time out; after SIGCONT, the channel connects."""
    log = Log()
    async with ServerProcess(free_port()) as server:
        await server.freeze()
        async with channel_to(f"127.0.0.1:{server.port}", log) as channel:
            call = EchoStub(channel).Unary(Message(text="later"), wait_for_ready=True, timeout=60)
            await log.arrived(AttemptFailed, 2)
            assert not log.of(Connected)
            server.thaw()
            assert (await call).text == "later"


async def test_server_frozen_under_an_established_connection():
    """CH-7: calls on a frozen connection end at their deadlines; the channel uses that connection after SIGCONT."""
    log = Log()
    async with ServerProcess(free_port()) as server, channel_to(f"127.0.0.1:{server.port}", log) as channel:
        assert await answer(channel) == "hello"
        await server.freeze()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await answer(channel, timeout=0.5)
        assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        server.thaw()
        assert await answer(channel, timeout=30) == "hello"
    assert len(log.of(AttemptStarted)) == 1


async def test_a_unix_socket_that_appears_later(tmp_path):
    """CH-8: a Unix socket that does not exist yet is dialled on schedule until it exists."""
    log, path = Log(), f"unix:{tmp_path}/echo.sock"
    async with channel_to(path, log) as channel:
        call = EchoStub(channel).Unary(Message(text="x"), wait_for_ready=True, timeout=30)
        await log.arrived(AttemptFailed, 2)
        assert log.of(AttemptFailed)[0].failure.stage is Stage.TCP
        async with serving(address=path):
            assert (await call).text == "x"
            await channel.close()


async def test_two_addresses_of_which_one_is_dead():
    """CH-8: the core tries every address within a single attempt."""
    log = Log()
    async with serving() as port, FlakyFront(silent) as dead:
        await dead.refuse()
        for addresses in (f"127.0.0.1:{dead.port},127.0.0.1:{port}", f"127.0.0.1:{port},127.0.0.1:{dead.port}"):
            async with channel_to(f"ipv4:{addresses}", log) as channel:
                assert await answer(channel) == "hello"
    assert not log.of(AttemptFailed)
    assert len(log.of(AttemptStarted)) == 2


@pytest.mark.parametrize("asleep", [1.1, 2.5])
async def test_a_loop_that_was_late_keeps_a_connection_that_came_in_time(asleep):
    """CB-3: if SETTINGS came within the limit, a late loop keeps the connection, because it first asks the core."""
    log = Log()
    options = [("grpc.initial_reconnect_backoff_ms", 1000), ("grpc.min_reconnect_backoff_ms", 1000)]
    async with ServerProcess(free_port()) as server, channel_to(f"127.0.0.1:{server.port}", log, options) as channel:
        call = asyncio.ensure_future(answer(channel, wait_for_ready=True, timeout=20))
        await log.arrived(AttemptStarted)
        await asyncio.sleep(0)
        time.sleep(asleep)  # noqa: ASYNC251 - makes the loop late
        assert await call == "hello"
        assert [type(event) for event in log] == [AttemptStarted, Connected]


async def test_a_name_that_resolves_later():
    """CH-8, CB-4: a name that does not resolve fails the attempt at stage `resolve`; each attempt resolves it again."""
    log = Log()
    options = [*FAST[:2], ("grpc.min_reconnect_backoff_ms", 5000)]
    async with (
        serving() as port,
        NameServer(None) as names,
        channel_to(names.target(port), log, options) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError):
            await answer(channel)
        call = EchoStub(channel).Unary(Message(text="x"), wait_for_ready=True, timeout=60)
        await log.arrived(AttemptFailed, 2)
        assert log.of(AttemptFailed)[0].failure.stage is Stage.RESOLVE
        names.address = "127.0.0.1"
        assert (await call).text == "x"


@pytest.mark.parametrize("stray", [False, True])
async def test_a_name_that_moves(stray):
    """CH-8: after a lost connection, the first attempt goes to the name's current address.

    This holds even if the core redials the old address for a call that entered the old connection as it ended.
    """
    log = Log()
    options = [*FAST[:2], ("grpc.min_reconnect_backoff_ms", 20_000)]
    async with (
        serving() as port,
        FlakyFront(healthy, upstream=("127.0.0.1", port)) as old,
        serving(address=f"127.0.0.2:{old.port}"),
        NameServer("127.0.0.1") as names,
        channel_to(names.target(old.port), log, options) as channel,
    ):
        assert await answer(channel) == "hello"
        await asyncio.sleep(0.3)  # longer than INITIAL_BACKOFF, so the next attempt starts at once
        old.behaviour, names.address = silent, "127.0.0.2"
        strays = [EchoStub(channel).Unary(Message(), timeout=2)] if stray else []
        await old.break_all()
        if stray:
            time.sleep(0.05)  # noqa: ASYNC251 - blocks the loop, so the call enters after the end
        await log.arrived(Disconnected)
        assert await answer(channel, wait_for_ready=True, timeout=10) == "hello"
        assert len(old.visits) == 1 + len(log.of(CoreRedial))
        assert len(log.of(AttemptStarted)) == 2
        await asyncio.gather(*strays, return_exceptions=True)


async def test_stable_after_on_the_wire():
    """CB-8: with `stable_after`, a peer that hangs up after SETTINGS is dialled with a growing backoff."""
    log = Log()
    options = [*FAST, ("grpc_backoff.stable_after", 5), ("grpc_backoff.reconnect", "eager")]
    async with FlakyFront(settings_then_close(0.02)) as front, channel_to(front.target, log, options) as channel:
        call = EchoStub(channel).Unary(Message(), wait_for_ready=True, timeout=30)
        await log.arrived(AttemptStarted, 5)
        call.cancel()
    gaps = log.gaps()
    assert gaps[2] >= 0.8 * 1.6**2 * 0.2 - 0.001  # a busy machine can only lengthen it
    assert all(lost.counted_as_failure for lost in log.of(Disconnected))


async def test_stable_after_spares_what_served_or_said_goodbye():
    """CB-8: a short-lived connection is no failure if it answered a call, or if its calls outlive a GOAWAY."""
    age = [("grpc.max_connection_age_ms", 200), ("grpc.max_connection_age_grace_ms", 20_000)]
    options = [*FAST, ("grpc_backoff.stable_after", 30)]
    async with serving(options=age) as port:
        log = Log()
        async with channel_to(f"127.0.0.1:{port}", log, options) as channel:
            assert await answer(channel) == "hello"
            await log.arrived(Disconnected)
        assert not log.of(Disconnected)[0].counted_as_failure
        log = Log()
        async with channel_to(f"127.0.0.1:{port}", log, options) as channel:
            stream = EchoStub(channel).Both()
            await stream.write(Message())
            await log.arrived(Disconnected)
            assert not log.of(Disconnected)[0].counted_as_failure
            stream.cancel()


async def test_a_goaway_on_a_young_connection():
    """CB-7, CH-6: after an early GOAWAY that a call survives, the next connection is made at once, on credit."""
    age = [("grpc.max_connection_age_ms", 200), ("grpc.max_connection_age_grace_ms", 20_000)]
    log = Log()
    async with (
        serving(options=age) as port,
        channel_to(f"127.0.0.1:{port}", log, [("grpc.initial_reconnect_backoff_ms", 30_000)]) as channel,
    ):
        stream = EchoStub(channel).Both()
        await stream.write(Message())
        await log.arrived(Disconnected)
        assert await answer(channel, wait_for_ready=True, timeout=20) == "hello"
        assert log.gaps()[0] <= 15
        assert not stream.done()
        stream.cancel()
