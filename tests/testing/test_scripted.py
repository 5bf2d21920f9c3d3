"""The scripted channel, with which users test their code against long outages without waiting for them."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import grpc
import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived

from grpc_backoff import AttemptFailed, AttemptStarted, Connected, OptionError
from grpc_backoff.aio import NoConnectionError
from grpc_backoff.testing import Fails, FakeClock, Hangs, ScriptedConnector, Succeeds, scripted_channel
from tests.certificates import client_credentials, server_credentials
from tests.echo import EchoStub, Message, serving

LIMIT = 30.0


@contextlib.asynccontextmanager
async def scripted(*script, credentials=None, address="127.0.0.1:0", **how):
    """Run a server, and a channel to it that follows a script; yield the script's clock and connector, and the channel.

    `credentials` are those of the server and of the channel.
    """
    clock = FakeClock()
    connector = ScriptedConnector(clock, script)
    here, there = credentials or (None, None)
    async with serving(credentials=here, address=address) as port:
        target = address.replace(":0", f":{port}")
        async with scripted_channel(connector, target, there, **how) as channel:
            yield clock, connector, channel


async def place_orders(stub, orders):
    """Place each order, no matter how long it takes; this is the code under test."""
    placed = []
    for order in orders:
        reply = await stub.Unary(Message(text=order), wait_for_ready=True, timeout=300)
        placed.append(reply.text)
    return placed


async def test_my_code_survives_an_outage_of_a_minute():
    """CB-4, CB-5: in this example of a user's test, a one-minute outage takes no time, and gaps follow the policy."""
    clock = FakeClock()
    connector = ScriptedConnector(clock, [Succeeds()])
    async with serving() as port, scripted_channel(connector, f"127.0.0.1:{port}") as channel:
        stub = EchoStub(channel)
        before = asyncio.create_task(place_orders(stub, ["a", "b"]))
        await clock.advance(1)
        assert await asyncio.wait_for(before, LIMIT) == ["a", "b"]

        connector.play([Fails()])
        connector.connections[-1].end()
        during = asyncio.create_task(place_orders(stub, ["c"]))
        await clock.advance(60)
        assert not during.done()
        with pytest.raises(NoConnectionError) as caught:
            await stub.Unary(Message(text="fail-fast"))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

        connector.play([Succeeds()])
        await clock.advance(channel.connection_status().next_attempt_in)
        assert await asyncio.wait_for(during, LIMIT) == ["c"]
    starts = [attempt.at for attempt in connector.attempts[1:]]
    assert starts[1] - starts[0] == 1.0
    assert 5 <= len(starts) <= 10


async def test_without_unix_sockets(monkeypatch):
    """CH-1: a scripted channel reaches its server over TCP if Python has no Unix sockets, as on Windows."""
    async with scripted(Succeeds()) as (clock, _, channel):
        monkeypatch.delattr(socket, "AF_UNIX")  # not earlier: on Linux, grpcio itself needs it
        reply = EchoStub(channel).Unary(Message(text="a"), wait_for_ready=True, timeout=600)
        await clock.advance(1)
        assert (await asyncio.wait_for(reply, LIMIT)).text == "a"


async def test_deadlines_are_on_the_clock():
    """CB-12, CH-3: a pending call's deadline expires when the clock is advanced past it."""
    clock = FakeClock()
    async with scripted_channel(ScriptedConnector(clock, [Hangs()]), "localhost:1") as channel:
        call = EchoStub(channel).Unary(Message(), wait_for_ready=True, timeout=10)
        await clock.advance(9.9)
        assert not call.done()
        await clock.advance(0.2)
        assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_retries_are_on_the_clock():
    """RT-3: the waits between a call's attempts follow the clock."""
    async with scripted(Fails(), Succeeds(), retry="steps") as (clock, _, channel):
        reply = EchoStub(channel).Unary(Message(text="a"), timeout=600)
        await clock.advance(300)
        assert (await asyncio.wait_for(reply, LIMIT)).text == "a"


@pytest.mark.parametrize("graceful", [False, True])
async def test_calls_on_a_connection_that_ends(graceful):
    """CH-6, CH-7: a connection that breaks fails its calls; one that ends gracefully lets its calls finish."""
    async with scripted(Succeeds()) as (clock, connector, channel):
        call = EchoStub(channel).Both()
        await clock.advance(1)
        await asyncio.wait_for(call.write(Message(text="a")), LIMIT)
        assert (await asyncio.wait_for(call.read(), LIMIT)).text == "a"

        connector.connections[-1].end(graceful=graceful)
        await clock.advance(1)
        if graceful:
            await call.write(Message(text="b"))
            assert (await asyncio.wait_for(call.read(), LIMIT)).text == "b"
            await call.done_writing()
        expected = grpc.StatusCode.OK if graceful else grpc.StatusCode.UNAVAILABLE
        assert await asyncio.wait_for(call.code(), LIMIT) is expected

        assert (await asyncio.wait_for(advancing(clock, place_orders(EchoStub(channel), ["c"])), LIMIT)) == ["c"]
        assert len(connector.connections) == 2


async def advancing(clock, work):
    task = asyncio.create_task(work)
    await clock.advance(5)
    return await task


async def test_the_last_use_of_a_connection():
    """CB-14: a connection's last use is the end of its last call, on the script's clock; a test may change it."""
    async with scripted(Succeeds()) as (clock, connector, channel):
        call = EchoStub(channel).Both()
        await clock.advance(5)
        await asyncio.wait_for(call.done_writing(), LIMIT)
        assert await asyncio.wait_for(call.code(), LIMIT) is grpc.StatusCode.OK
        connection, used = connector.connections[-1], clock.now()
        assert connection.used == used
        connection.used = used - 3
        assert channel._pool.rules.only.connection.last_used() == used - 3


async def test_a_replaced_connection_ends():
    """PO-3: the end of a connection that was replaced leaves the script's other connection open."""
    async with scripted(Succeeds(), Succeeds()) as (clock, connector, channel):
        first = asyncio.create_task(place_orders(EchoStub(channel), ["a"]))
        await clock.advance(1)
        assert await asyncio.wait_for(first, LIMIT) == ["a"]
        channel.refresh_connection()
        await clock.advance(2)
        assert [connection.retired for connection in connector.connections] == [True, False]

        connector.connections[0].end()
        await clock.advance(1)
        assert len(channel.connection_status().connections) == 1
        assert not connector.closed
        reply = await asyncio.wait_for(EchoStub(channel).Unary(Message(text="b")), LIMIT)
        assert reply.text == "b"
    assert connector.closed


async def test_listeners_hear_of_the_script():
    """CH-11: events have the fake clock's times; running a script again gives the same events, including the jitter."""

    async def play():
        clock, heard = FakeClock(), []
        connector = ScriptedConnector(clock, [Fails(0.5), Fails(0.5), Fails(0.5), Succeeds(0.25)])
        async with scripted_channel(connector, "localhost:1", listeners=[heard.append]) as channel:
            channel.get_state(try_to_connect=True)
            await clock.advance(30)
        return [(type(event), event.at) for event in heard[:-1]]

    once = await play()
    assert [kind for kind, _ in once] == [AttemptStarted, AttemptFailed] * 3 + [AttemptStarted, Connected]
    assert once[1][1] - once[0][1] == 0.5
    assert once == await play()


async def test_over_tls_and_a_unix_socket(tmp_path):
    """CH-8: a scripted channel's server may use TLS or a Unix socket; its certificate is verified by its own name."""
    credentials = server_credentials(), client_credentials()
    for address in ("localhost:0", f"unix:{tmp_path}/echo.sock"):
        async with scripted(Succeeds(), credentials=credentials, address=address) as (clock, _, channel):
            done = advancing(clock, place_orders(EchoStub(channel), ["a"]))
            assert await asyncio.wait_for(done, LIMIT) == ["a"]


async def test_nothing_behind_the_script():
    """CH-7: if no server listens at the target, calls fail as on a broken connection, and no task remains."""
    clock = FakeClock()
    async with scripted_channel(ScriptedConnector(clock, [Succeeds()]), "127.0.0.1:1") as channel:
        call = EchoStub(channel).Unary(Message(), timeout=LIMIT)
        await clock.advance(1)
        assert await asyncio.wait_for(call.code(), LIMIT) is grpc.StatusCode.UNAVAILABLE
    await asyncio.sleep(0.05)
    assert [task for task in asyncio.all_tasks() if "grpc_backoff" in repr(task)] == []


async def test_authority_of_an_ipv6_address():
    """The server hears the address that the target names, in brackets, as from a plain channel."""
    heard = asyncio.get_running_loop().create_future()

    async def serve(reader, writer):
        connection = H2Connection(H2Configuration(client_side=False))
        connection.initiate_connection()
        while not heard.done():
            writer.write(connection.data_to_send())
            for event in connection.receive_data(await reader.read(1 << 16)):
                if isinstance(event, RequestReceived):
                    heard.set_result(dict(event.headers)[b":authority"].decode())
        writer.close()

    clock = FakeClock()
    try:
        server = await asyncio.start_server(serve, "::1", 0)
    except OSError:
        pytest.skip("no IPv6 here")
    async with server:
        target = f"[::1]:{server.sockets[0].getsockname()[1]}"
        async with scripted_channel(ScriptedConnector(clock, [Succeeds()]), target) as channel:
            call = EchoStub(channel).Unary(Message())
            await clock.advance(1)
            assert await asyncio.wait_for(heard, LIMIT) == target
            call.cancel()


async def test_targets_without_a_socket():
    """CH-10: a scripted channel refuses a target that has no address to connect to."""
    with pytest.raises(OptionError, match="target='xds:///orders': expected host"):
        scripted_channel(ScriptedConnector(FakeClock(), [Succeeds()]), "xds:///orders")
