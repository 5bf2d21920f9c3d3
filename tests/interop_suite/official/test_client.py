"""Our client for the official reconnect test, judged by our server and by servers that misbehave."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from grpc_judge.generated.grpc_testing.empty_pb2 import Empty
from grpc_judge.generated.grpc_testing.messages_pb2 import ReconnectInfo
from grpc_judge.generated.grpc_testing.test_pb2_grpc import (
    ReconnectServiceServicer,
    add_ReconnectServiceServicer_to_server,
)
from grpc_judge.official.client import Assignment, reconnect
from grpc_judge.runner.process import free_port
from tests.echo import serving as serving_echo
from tests.interop_suite.official.test_server import Log, control, serving, start

FAST = {"initial": 0.25, "maximum": 1.0}


def request_to(server, **what):
    return Assignment(control_port=server.control_port, retry_port=server.retry_port, **what)


async def test_compressed():
    """IO-1: grpc_backoff passes in compressed time, with gaps of 0.25 s that grow to 1 s. Takes 5 s of real time."""
    for _ in range(3):  # on a busy machine, an attempt may be late
        async with serving(log := Log()) as server:
            outcome = await reconnect(request_to(server, seconds=5, **FAST))
        if outcome.theirs:
            break
    assert outcome.theirs
    assert outcome.passed
    assert len(outcome.ours.gaps) >= 5
    assert [gap.allowed for gap in log[0].gaps] == [gap.allowed for gap in outcome.ours.gaps]


async def test_as_the_protocol_has_it():
    """IO-1, CB-2, CB-5: the defaults pass, with gaps of 1, 1.6 and 2.56 s. Takes 8 s of real time."""
    async with serving(initial_backoff=None) as server:
        outcome = await reconnect(request_to(server, seconds=8))
    assert outcome.passed
    assert len(outcome.ours.gaps) in (3, 4)
    assert [gap.allowed.low for gap in outcome.ours.gaps[:3]] == pytest.approx([0.7, 1.18, 1.948])


async def test_a_client_that_is_told_to_stop_calls_stop():
    """IO-1: a cancelled client calls Stop, so the next one need not wait for the turn's time limit."""
    async with serving(log := Log()) as server, control(server) as judge:
        running = asyncio.ensure_future(reconnect(request_to(server, **FAST)))
        await asyncio.sleep(0.5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert len(log) == 1
        await asyncio.wait_for(start(judge), 30)


async def test_another_servers_port_to_retry():
    """IO-1: if the client dials another server's retry port, it fails on both sides, and our server is free again."""
    async with serving(log := Log()) as server, serving_echo() as port:
        outcome = await reconnect(Assignment(control_port=server.control_port, retry_port=port, seconds=0.5))
    assert not outcome.theirs
    assert not outcome.passed
    assert len(log) == 1


class Lenient(ReconnectServiceServicer):
    """A server that, like the official one, passes clients that never dialled."""

    async def Start(self, request, context):  # noqa: N802
        return Empty()

    async def Stop(self, request, context):  # noqa: N802
        return ReconnectInfo(passed=True)


async def test_the_servers_word_is_not_enough():
    """IO-2: a client that made no attempt fails by our verdict, even if the server says "passed"."""
    server = grpc.aio.server()
    add_ReconnectServiceServicer_to_server(Lenient(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    outcome = await reconnect(Assignment(control_port=port, retry_port=free_port(), seconds=0.2))
    await server.stop(None)
    assert outcome.theirs
    assert not outcome.passed


@pytest.mark.parametrize(
    ("told", "options"),
    [
        ({}, []),
        ({"maximum": 4.0}, [("grpc.initial_reconnect_backoff_ms", 1000), ("grpc.max_reconnect_backoff_ms", 4000)]),
        ({"maximum": 0.5}, [("grpc.initial_reconnect_backoff_ms", 500), ("grpc.max_reconnect_backoff_ms", 500)]),
        (
            {"initial": 0.25},
            [("grpc.initial_reconnect_backoff_ms", 250), ("grpc.max_reconnect_backoff_ms", 120_000)],
        ),
    ],
)
def test_options_of_the_channel(told, options):
    """IO-1: the channel gets only the options that were passed; with none, the library's defaults are judged."""
    assert Assignment(control_port=1, retry_port=2, **told).options == options
