"""Our server for the official reconnect test, called by grpcio's own clients and dialled by raw sockets."""

from __future__ import annotations

import asyncio
import contextlib
import time

import grpc
import pytest

from grpc_judge.generated.grpc_testing.empty_pb2 import Empty
from grpc_judge.generated.grpc_testing.messages_pb2 import ReconnectParams
from grpc_judge.generated.grpc_testing.test_pb2_grpc import ReconnectServiceStub
from grpc_judge.official.server import ReconnectServer

LIMIT = 30.0
"""A time limit in seconds, far longer than anything here takes."""


class Log(list):
    """Collects the verdicts of a server."""

    def __call__(self, verdict):
        self.append(verdict)


@contextlib.asynccontextmanager
async def serving(log=None, **settings):
    """Run a server that judges clients by an INITIAL_BACKOFF of 0.25 s."""
    async with ReconnectServer(Log() if log is None else log, **{"initial_backoff": 0.25, **settings}) as server:
        yield server


@contextlib.asynccontextmanager
async def control(server):
    """Connect to the control port on a separate connection, as another client would."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.control_port}", options=options) as channel:
        yield ReconnectServiceStub(channel)


async def dial(server):
    """Connect to the retry port and wait until the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.retry_port)
    assert await asyncio.wait_for(reader.read(), LIMIT) == b""
    writer.close()
    await writer.wait_closed()


async def dial_with_gaps(server, *gaps):
    await dial(server)
    for gap in gaps:
        await asyncio.sleep(gap)
        await dial(server)


def params(milliseconds):
    return ReconnectParams(max_reconnect_backoff_ms=milliseconds)


async def test_the_official_flow_with_grpcio():
    """IO-1: grpcio's own threaded channel, without any code of this suite, is judged and passes.

    Takes 4 s of real time, with gaps of 0.25 s that grow to 1 s.
    """
    async with serving(log := Log()) as server:
        info = await asyncio.to_thread(official_flow, server.control_port, server.retry_port)
    assert info.passed
    assert len(info.backoff_ms) >= 4
    assert info.backoff_ms == [round(1000 * gap.seen) for gap in log[0].gaps]


def official_flow(control_port, retry_port):
    """Follow the official procedure with blocking calls: Start, a call that dials until its deadline, then Stop."""
    options = [("grpc.initial_reconnect_backoff_ms", 250), ("grpc.max_reconnect_backoff_ms", 1000)]
    with grpc.insecure_channel(f"127.0.0.1:{control_port}") as channel:
        judge = ReconnectServiceStub(channel)
        judge.Start(params(1000))
        credentials = grpc.ssl_channel_credentials()
        with grpc.secure_channel(f"127.0.0.1:{retry_port}", credentials, options) as retried:
            with pytest.raises(grpc.RpcError) as caught:
                ReconnectServiceStub(retried).Start(params(0), wait_for_ready=True, timeout=4)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        return judge.Stop(Empty())


async def test_gaps_are_told_as_they_were():
    """IO-1: Stop returns the gaps between accepted connections in milliseconds. Takes about 1 s of real time."""
    async with serving(log := Log()) as server, control(server) as judge:
        await judge.Start(params(500))
        began = time.monotonic()
        await dial_with_gaps(server, 0.25, 0.4, 0.5)
        lasted = time.monotonic() - began
        info = await judge.Stop(Empty())
    assert [round(1000 * gap.seen) for gap in log[0].gaps] == info.backoff_ms
    assert all(seen >= slept for seen, slept in zip(info.backoff_ms, [249, 399, 499], strict=True))
    assert sum(info.backoff_ms) <= 1000 * lasted + 3


@pytest.mark.parametrize(
    ("dials", "faults"), [(21, [f"gap {number}" for number in range(1, 21)]), (1, ["attempts"]), (0, ["attempts"])]
)
async def test_clients_that_fail(dials, faults):
    """IO-2: a client that dials without any pause fails, and so does one that hardly dials or does not dial at all.

    The official server passes the last one.
    """
    async with serving(log := Log()) as server, control(server) as judge:
        await judge.Start(params(0))
        for _ in range(dials):
            await dial(server)
        info = await judge.Stop(Empty())
    assert not info.passed
    assert len(info.backoff_ms) == max(0, dials - 1)
    assert [fault.what for fault in log[0].faults] == faults
    assert log[0].attempts.seen == dials


async def test_who_dials_outside_a_test_is_no_part_of_one():
    """IO-1: only connections between Start and Stop count, but the retry port always hangs up."""
    async with serving() as server, control(server) as judge:
        await dial_with_gaps(server, 0, 0)
        await judge.Start(params(0))
        await dial(server)
        info = await judge.Stop(Empty())
        await dial(server)
    assert not info.backoff_ms


async def test_every_clients_own_maximum_counts():
    """IO-2: each client is judged by its own maximum, not the first client's. Takes about 3 s of real time."""
    async with serving() as server, control(server) as judge:
        for maximum, passed in ((250, True), (0, False), (250, True)):
            await judge.Start(params(maximum))
            await dial_with_gaps(server, 0.25, 0.25, 0.25, 0.25)
            assert (await judge.Stop(Empty())).passed is passed


async def start(judge, milliseconds=0):
    return await judge.Start(params(milliseconds))


async def test_first_come_first_served():
    """IO-1: clients get their turns in the order in which they asked for them, and each test starts afresh."""
    served = []

    async def take_turn(number):
        await start(judges[number])
        served.append((number, len((await judges[number].Stop(Empty())).backoff_ms)))

    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving())
        judges = [await stack.enter_async_context(control(server)) for _ in range(5)]
        await start(judges[0])
        await dial_with_gaps(server, 0, 0)
        turns = []
        for number in range(1, 5):
            turns.append(asyncio.ensure_future(take_turn(number)))
            await asyncio.sleep(0.2)
        assert served == []
        assert len((await judges[0].Stop(Empty())).backoff_ms) == 2
        await asyncio.wait_for(asyncio.gather(*turns), LIMIT)
    assert served == [(1, 0), (2, 0), (3, 0), (4, 0)]


async def test_a_client_that_disappears_in_its_turn(caplog):
    """IO-1: if a client disappears during its turn, the turn ends at the time limit, and the next one begins."""
    async with serving(turn_limit=1.0) as server, control(server) as second:
        async with control(server) as first:
            await start(first)
        began = time.monotonic()
        await asyncio.wait_for(start(second), LIMIT)
        assert time.monotonic() - began > 0.5
        await second.Stop(Empty())
    assert "did not call Stop within 1 s" in caplog.text


async def test_a_client_that_comes_too_late_ends_nobody_elses_turn():
    """IO-1: a Stop after the client's turn has expired is refused and does not end the current turn."""
    async with serving(turn_limit=0.5) as server, control(server) as first, control(server) as second:
        await start(first)
        await asyncio.wait_for(start(second), LIMIT)
        await dial_with_gaps(server, 0, 0)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await first.Stop(Empty())
        assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert len((await second.Stop(Empty())).backoff_ms) == 2


async def test_a_client_that_lost_its_turn_may_ask_for_another():
    """IO-1: a client whose turn has expired may ask for another one and ends that one itself."""
    async with serving(turn_limit=0.5) as server, control(server) as first, control(server) as second:
        await start(first)
        await asyncio.wait_for(start(second), LIMIT)
        await second.Stop(Empty())
        await start(first)
        await dial_with_gaps(server, 0)
        assert len((await first.Stop(Empty())).backoff_ms) == 1


async def test_a_long_turn_is_nobodys_loss():
    """IO-1: a turn may exceed the time limit while no other client waits. Takes about a second of real time."""
    async with serving(turn_limit=0.2) as server, control(server) as judge:
        await judge.Start(params(250))
        await dial_with_gaps(server, 0.25, 0.25, 0.25)
        assert (await judge.Stop(Empty())).passed


async def test_a_client_that_disappears_in_the_line():
    """IO-1: a waiting client is skipped if its call exceeds its deadline or if it disconnects."""
    async with serving() as server, control(server) as first, control(server) as last:
        await start(first)
        async with control(server) as hasty:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await hasty.Start(params(0), timeout=0.3)
            assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        async with control(server) as gone:
            call = gone.Start(params(0))
            await asyncio.sleep(0.3)
        assert call.cancelled()
        waiting = asyncio.ensure_future(start(last))
        await asyncio.sleep(0.3)
        await first.Stop(Empty())
        await asyncio.wait_for(waiting, LIMIT)
        await last.Stop(Empty())


async def test_stop_without_start():
    """IO-1: Stop without Start fails, and the error says that no test is running."""
    async with serving() as server, control(server) as judge:
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError, match="no test of this client is running") as caught:
                await judge.Stop(Empty())
            assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.parametrize("milliseconds", [-1, 1, 125])
async def test_a_maximum_that_cannot_be_judged(milliseconds):
    """IO-2: the error for a maximum that cannot be judged says what is allowed; the next client gets its turn."""
    async with serving() as server, control(server) as judge:
        with pytest.raises(
            grpc.aio.AioRpcError, match=f"max_reconnect_backoff_ms is {milliseconds} .* allowed is more than 0.125 s"
        ) as caught:
            await judge.Start(params(milliseconds))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        await asyncio.wait_for(start(judge), LIMIT)


async def test_many_connections_at_once():
    """IO-1: 400 concurrent connections are all accepted, recorded and closed, and the server still answers."""
    async with serving() as server, control(server) as judge:
        await judge.Start(params(0))
        await asyncio.wait_for(asyncio.gather(*(dial(server) for _ in range(400))), LIMIT)
        info = await judge.Stop(Empty())
    assert len(info.backoff_ms) == 399
    assert not info.passed


async def test_it_leaves_nothing():
    """IO-1: a server that is stopped while clients have a turn or wait for one leaves no task and no socket."""
    before = asyncio.all_tasks()
    async with serving() as server, control(server) as first, control(server) as second:
        await start(first)
        waiting = asyncio.ensure_future(start(second))
        await asyncio.sleep(0.3)
        await server.__aexit__(None, None, None)
        with pytest.raises(grpc.aio.AioRpcError):
            await waiting
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.retry_port)
    del waiting
    async with asyncio.timeout(20):
        while asyncio.all_tasks() != before:
            await asyncio.sleep(0.01)
