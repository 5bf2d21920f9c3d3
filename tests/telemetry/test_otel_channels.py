"""The metrics of real channels and servers, while connections are made, lost, refused and dropped."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import pytest

from grpc_backoff import aio
from grpc_backoff.telemetry import otel
from grpc_backoff.testing.front import FlakyFront, settings_then_close
from tests.echo import EchoStub, Message, serving
from tests.telemetry.reading import run

QUICK = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 50)]
OWN = [("grpc.use_local_subchannel_pool", 1)]
SLOW = [("grpc.initial_reconnect_backoff_ms", 600_000), ("grpc.max_reconnect_backoff_ms", 600_000)]
A94_DISCONNECT_ERRORS = {
    "subchannel shutdown",
    "connection reset",
    "connection timed out",
    "connection aborted",
    "socket error",
    "unknown",
}
"""All values in gRFC A94 except `GOAWAY <ERROR_CODE>`."""


async def until(condition):
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


def drop(channels):
    channels.clear()
    gc.collect()


async def test_connect_and_close(reading, metrics):
    """CH-11, CB-10: an open connection is counted until its channel is closed, which counts as a disconnection."""
    async with serving() as port:
        where = (f"dns:///127.0.0.1:{port}",)
        async with aio.insecure_channel(f"127.0.0.1:{port}", listeners=[metrics]) as channel:
            assert reading.metrics() == {}
            async with asyncio.timeout(30):
                await EchoStub(channel).Unary(Message())
            assert reading.values(otel.SUCCEEDED) == {where: 1}
            assert reading.values(otel.OPEN_CONNECTIONS) == {where: 1}
            assert reading.values(otel.DISCONNECTIONS) == {}
        assert reading.values(otel.OPEN_CONNECTIONS) == {}
        assert reading.values(otel.DISCONNECTIONS) == {("subchannel shutdown", *where): 1}
        assert reading.values(otel.FAILED) == {}


@pytest.mark.parametrize("asks", [True, False])
async def test_a_connection_outlives_the_channel_that_made_it(reading, metrics, asks):
    """SH-7: a shared connection is counted while any of its channels is open, even if its first channel is closed."""
    async with serving() as port:
        where = (f"dns:///127.0.0.1:{port}",)
        first = aio.insecure_channel(f"127.0.0.1:{port}", listeners=[metrics])
        await EchoStub(first).Unary(Message(), timeout=30)
        async with aio.insecure_channel(f"127.0.0.1:{port}", listeners=[metrics]) as second:
            if asks:
                await EchoStub(second).Unary(Message(), timeout=30)
            else:
                await asyncio.sleep(0)
            assert reading.values(otel.OPEN_CONNECTIONS) == {where: 1}
            await first.close()
            assert reading.values(otel.OPEN_CONNECTIONS) == {where: 1}
            assert reading.values(otel.DISCONNECTIONS) == {}
        assert reading.values(otel.OPEN_CONNECTIONS) == {}
        assert reading.values(otel.DISCONNECTIONS) == {("subchannel shutdown", *where): 1}
        assert reading.values(otel.SUCCEEDED) == {where: 1}


async def test_a_peer_that_refuses(reading, metrics):
    """CH-11: a failed attempt and its wait are in the metrics, and the gauge counts down to the next attempt."""
    async with serving() as port, FlakyFront(upstream=("127.0.0.1", port)) as front:
        await front.refuse()
        where = (f"dns:///{front.target}",)
        async with aio.insecure_channel(front.target, SLOW, listeners=[metrics]) as channel:
            channel.get_state(try_to_connect=True)
            await until(lambda: reading.values(otel.FAILED) == {where: 1})
            (wait,) = reading.values(otel.NEXT_ATTEMPT_IN).values()
            assert wait == pytest.approx(channel.connection_status().next_attempt_in, abs=2)
            assert 500 < wait <= 600
            await until(lambda: reading.values(otel.NEXT_ATTEMPT_IN)[where] < wait)
            assert reading.values(otel.OPEN_CONNECTIONS) == {where: 0}
            assert reading.values(otel.SUCCEEDED) == {}
            ((count, waited),) = reading.counts(otel.BACKOFF_DELAY).values()
            assert count == 1
            assert wait < waited <= 600
            await front.listen()
            channel.reset_connect_backoff()
            await until(lambda: reading.values(otel.OPEN_CONNECTIONS) == {where: 1})
            assert reading.values(otel.NEXT_ATTEMPT_IN) == {}
            assert reading.values(otel.SUCCEEDED) == {where: 1}


async def test_closed_while_it_waits(reading, metrics):
    """CB-10: a channel that is closed during its backoff has no next attempt, and no disconnection."""
    async with FlakyFront() as front:
        await front.refuse()
        async with aio.insecure_channel(front.target, SLOW, listeners=[metrics]) as channel:
            channel.get_state(try_to_connect=True)
            await until(lambda: reading.values(otel.NEXT_ATTEMPT_IN))
        assert reading.values(otel.NEXT_ATTEMPT_IN) == reading.values(otel.OPEN_CONNECTIONS) == {}
        assert reading.values(otel.DISCONNECTIONS) == {}


async def test_a_rolling_restart(reading, metrics):
    """CH-6, CH-11: each server that replaces another on the same port causes a disconnection and a new connection."""
    async with FlakyFront(upstream=("127.0.0.1", 0)) as front:
        where = (f"dns:///{front.target}",)
        async with aio.insecure_channel(front.target, QUICK, listeners=[metrics]) as channel:
            stub = EchoStub(channel)
            for restarts in range(3):
                async with serving() as port, asyncio.timeout(30):
                    front.upstream = "127.0.0.1", port
                    await stub.Unary(Message(), wait_for_ready=True)
                    assert reading.values(otel.OPEN_CONNECTIONS) == {where: 1}
                    assert reading.values(otel.DISCONNECTIONS).get(("unknown", *where), 0) == restarts
                await until(lambda: reading.values(otel.OPEN_CONNECTIONS) == {where: 0})
            assert reading.values(otel.SUCCEEDED)[where] == 3
            assert reading.values(otel.DISCONNECTIONS) == {("unknown", *where): 3}
        assert reading.values(otel.DISCONNECTIONS) == {("unknown", *where): 3}


async def test_a_peer_that_flaps(reading, metrics):
    """CB-8, CH-11: if a peer hangs up after SETTINGS, each connection is followed by a disconnection and a wait."""
    options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc_backoff.stable_after", 60.0)]
    async with FlakyFront(settings_then_close(0.05)) as front:
        where = (f"dns:///{front.target}",)
        async with aio.insecure_channel(front.target, options, listeners=[metrics]) as channel:
            channel.get_state(try_to_connect=True)
            await until(lambda: reading.values(otel.DISCONNECTIONS).get(("unknown", *where), 0) >= 4)
            await until(lambda: reading.values(otel.NEXT_ATTEMPT_IN))
            made, lost = (sum(reading.values(name).values()) for name in (otel.SUCCEEDED, otel.DISCONNECTIONS))
            assert made - lost in (0, 1)
            assert reading.counts(otel.BACKOFF_DELAY)[where][0] >= 3
            assert set(reading.values(otel.OPEN_CONNECTIONS)) == {where}
        made, lost = (sum(reading.values(name).values()) for name in (otel.SUCCEEDED, otel.DISCONNECTIONS))
        assert made == lost
        assert {labels[0] for labels in reading.values(otel.DISCONNECTIONS)} <= A94_DISCONNECT_ERRORS
        assert reading.values(otel.OPEN_CONNECTIONS) == {}


async def test_channels_that_share_a_connection(reading, metrics):
    """SH-7: a connection shared by five channels counts once until the last is closed, and its attempt counts once."""
    async with serving() as port, asyncio.timeout(60):
        target, where = f"127.0.0.1:{port}", (f"dns:///127.0.0.1:{port}",)
        channels = [aio.insecure_channel(target, listeners=[metrics]) for _ in range(5)]
        await asyncio.gather(*(channel.channel_ready() for channel in channels))
        for _ in range(5):
            assert reading.values(otel.OPEN_CONNECTIONS) == {where: 1}
            await channels.pop().close()
        assert reading.values(otel.OPEN_CONNECTIONS) == {}
        assert reading.values(otel.SUCCEEDED) == {where: 1}
        assert reading.values(otel.DISCONNECTIONS) == {("subchannel shutdown", *where): 1}


async def test_a_listener_that_came_late(reading, metrics):
    """CH-11: if a listener was added after a connection was made, it does not subtract that connection when it ends."""
    async with serving() as port, aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        async with asyncio.timeout(30):
            await channel.channel_ready()
        channel.add_listener(metrics)
        await channel.close()
    assert reading.values(otel.OPEN_CONNECTIONS) == {}
    assert sum(reading.values(otel.DISCONNECTIONS).values()) == 1


async def test_a_dropped_channel(reading, metrics):
    """CB-10: dropping a channel without `close` ends its connection like `close`, and no metric keeps it alive."""
    async with serving() as port:
        where = (f"dns:///127.0.0.1:{port}",)
        channels = [aio.insecure_channel(f"127.0.0.1:{port}", listeners=[metrics])]
        async with asyncio.timeout(30):
            await channels[0].channel_ready()
        assert reading.values(otel.OPEN_CONNECTIONS) == {where: 1}
        gone = weakref.ref(channels[0])
        with pytest.warns(ResourceWarning, match="unclosed channel"):
            drop(channels)
        gc.collect()
        assert gone() is None
        await until(lambda: reading.values(otel.OPEN_CONNECTIONS) == {})
        assert reading.values(otel.DISCONNECTIONS) == {("subchannel shutdown", *where): 1}


def test_a_channel_that_outlived_its_loop():
    """CB-10: if the event loop is already closed, there is no event, but the gauge drops the channel's connection.

    The test runs in another process, because grpcio can misbehave in one whose event loop was closed early.
    """
    said = run("""
        import asyncio, concurrent.futures, gc, warnings, grpc
        from grpc_backoff import aio
        from grpc_backoff.telemetry import otel
        from tests.telemetry.reading import Reading

        async def connect():
            channel = aio.insecure_channel(f"127.0.0.1:{port}", listeners=[otel.Metrics(reading.provider)])
            await asyncio.wait_for(channel.channel_ready(), 30)
            return channel

        reading, server = Reading(), grpc.server(concurrent.futures.ThreadPoolExecutor(1))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        channel = asyncio.run(connect())
        print(*reading.values(otel.OPEN_CONNECTIONS).values())
        warnings.simplefilter("ignore", ResourceWarning)
        del channel
        gc.collect()
        gc.collect()  # what the first one set free may have held others
        print(reading.values(otel.OPEN_CONNECTIONS), reading.values(otel.DISCONNECTIONS))
        server.stop(None).wait(10)
        """)
    assert said == ["1", "{}", "{}"]


async def test_a_reader_in_its_thread(reading, metrics):
    """RT-12: a reader may collect in its own thread while channels come and go, and the final figures are exact."""
    stop, errors = threading.Event(), []

    def collect():
        try:
            while not stop.wait(0.002):
                reading.metrics()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    reader = threading.Thread(target=collect)
    reader.start()
    try:
        async with serving() as port, asyncio.timeout(60):
            where = (f"dns:///127.0.0.1:{port}",)
            for _ in range(10):
                channels = [
                    aio.insecure_channel(f"127.0.0.1:{port}", [*QUICK, *OWN], listeners=[metrics]) for _ in range(5)
                ]
                await asyncio.gather(*(channel.channel_ready() for channel in channels))
                await asyncio.gather(*(channel.close() for channel in channels))
    finally:
        stop.set()
        await asyncio.to_thread(reader.join)
    assert errors == []
    assert reading.values(otel.SUCCEEDED) == {where: 50}
    assert reading.values(otel.DISCONNECTIONS) == {("subchannel shutdown", *where): 50}
    assert reading.values(otel.OPEN_CONNECTIONS) == {}
