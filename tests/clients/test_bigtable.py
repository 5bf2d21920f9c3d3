"""google-cloud-bigtable's asyncio client, which wraps its channel and replaces it from time to time."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from functools import partial

import pytest
from google.cloud.bigtable.data._async._swappable_channel import AsyncSwappableChannel
from google.cloud.bigtable_v2 import BigtableAsyncClient, types
from google.cloud.bigtable_v2.services.bigtable.transports import BigtableGrpcAsyncIOTransport

from grpc_backoff import aio
from tests.clients.conftest import QUICK

MUTATE = "/google.bigtable.v2.Bigtable/MutateRow"
READ = "/google.bigtable.v2.Bigtable/ReadRows"
PING = "/google.bigtable.v2.Bigtable/PingAndWarm"
TABLE = "projects/p/instances/i/tables/t"


def serve(server):
    server.methods[MUTATE] = lambda request: types.MutateRowResponse.serialize({})
    server.methods[PING] = lambda request: types.PingAndWarmResponse.serialize({})

    def chunks(request):
        cell = {"row_key": b"r", "family_name": "f", "qualifier": b"q", "value": b"v", "commit_row": True}
        return types.ReadRowsResponse.serialize({"chunks": [cell]})

    chunks.streams = True
    server.methods[READ] = chunks


async def mutate(client):
    await client.mutate_row(table_name=TABLE, row_key=b"r", mutations=[])


async def test_swappable_channel(server):
    """CH-1: bigtable's swappable channel can wrap ours, and on a swap, its interceptors move to the next channel."""
    serve(server)
    channel = AsyncSwappableChannel(partial(aio.insecure_channel, server.target, options=QUICK))
    client = BigtableAsyncClient(transport=BigtableGrpcAsyncIOTransport(channel=channel))
    (logging,) = channel._unary_unary_interceptors
    await mutate(client)
    old = channel.swap_channel(channel.create_channel())
    assert channel._unary_unary_interceptors == [logging]
    client.transport._stubs = {}  # as bigtable does after a swap
    client.transport._prep_wrapped_messages(None)
    await old.close()
    await mutate(client)
    assert channel.connection_status().made == 1
    await asyncio.to_thread(server.restart)
    async with asyncio.timeout(20):
        await channel.channel_ready()
    await mutate(client)
    assert channel.connection_status().made == 2
    await channel.close()


EMULATED = """
import grpc_backoff
grpc_backoff.install()

import asyncio, json
from google.cloud.bigtable.data import BigtableDataClientAsync, SetCell

async def main():
    async with BigtableDataClientAsync(project="p") as client:
        table = client.get_table("i", "t")
        channel = client.transport.grpc_channel
        read, mutated = await table.read_row(b"r"), 0
        await table.mutate_row(b"r", SetCell("f", b"q", b"v"))
        print("ready", flush=True)
        await asyncio.to_thread(input)
        await table.mutate_row(b"r", SetCell("f", b"q", b"v"), operation_timeout=20)
        print(json.dumps({
            "class": f"{type(channel._channel).__module__}.{type(channel._channel).__name__}",
            "row": read.row_key.decode(),
            "connections": channel.connection_status().made,
            "interceptors": sorted(type(one).__name__ for one in channel._unary_unary_interceptors),
            "streaming": sorted(type(one).__name__ for one in channel._unary_stream_interceptors),
        }))

asyncio.run(main())
"""


@pytest.mark.parametrize("command", [["-c", EMULATED], ["-m", "grpc_backoff", "run", "--"]], ids=["install", "run"])
async def test_emulator(server, tmp_path, command):
    """CH-1: the emulator's channel is ours, although bigtable imports the constructor's name from `grpc.aio`."""
    serve(server)
    script = tmp_path / "script.py"
    script.write_text(EMULATED.replace("import grpc_backoff\ngrpc_backoff.install()\n", ""))
    words = command if "-c" in command else [*command, str(script)]
    environ = {**os.environ, "BIGTABLE_EMULATOR_HOST": server.target, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "ignore", *words, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    async with asyncio.timeout(60):
        assert await child.stdout.readline() == b"ready\n"
        await asyncio.to_thread(server.restart)
        out, _ = await child.communicate(b"\n")
    assert json.loads(out) == {
        "class": "grpc_backoff.aio.channel.Channel",
        "row": "r",
        "connections": 2,
        "interceptors": ["AsyncBigtableMetricsInterceptor", "_LoggingClientAIOInterceptor"],
        "streaming": ["AsyncBigtableMetricsInterceptor"],
    }
