"""Pages whose code needs more than the shop's server: a database, a thread or a failing server."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path

import grpc
import psycopg
import pytest

from examples.protos import counters, counters_services
from grpc_backoff import aio
from grpc_backoff.ledger import Ledger, OperationState
from grpc_judge.runner.process import free_port
from tests.docs.pages import ADDRESS, block, run
from tests.ledger import conftest

server = conftest.server


async def until_delivered(delivering, path):
    """Wait until the ledger's operation has been delivered, or until its delivery has ended."""
    async with await Ledger.open(path) as ledger, asyncio.timeout(20):
        while not delivering.done() and [each.state for each in await ledger.find()] != [OperationState.SUCCEEDED]:
            await asyncio.sleep(0.05)


async def execute(url, statement):
    """Execute a statement of the application, in a transaction of its own; return the rows, if it has any."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        done = await connection.execute(statement)
        return await done.fetchall() if done.description else []


async def test_the_ledger(port, monkeypatch, tmp_path):
    """LG-10: the page's program delivers what is submitted, until it is cancelled."""
    monkeypatch.chdir(tmp_path)
    names = {
        "target": f"localhost:{port}",
        "OrdersStub": importlib.import_module("shop_pb2_grpc").OrdersStub,
        "order": importlib.import_module("shop_pb2").Order(id="order-1"),
    }
    delivering = asyncio.create_task(run(block("ledger.md", "await ledger.deliver("), "ledger.md", names))
    await until_delivered(delivering, tmp_path / "orders.db")
    if delivering.done():
        await delivering
    delivering.cancel()
    await asyncio.wait({delivering})
    await names["ledger"].close()
    assert delivering.cancelled()


async def test_the_ledger_within_a_transaction(shop, server):
    """LG-3: the application's row and the operation are committed together. The page leaves out the row's values."""
    url = server.database()
    await execute(url, "CREATE TABLE orders (id text)")
    async with await Ledger.open(url) as ledger, aio.insecure_channel("127.0.0.1:1") as channel:
        names = {
            "psycopg": psycopg,
            "url": url,
            "ledger": ledger,
            "stub": importlib.import_module("shop_pb2_grpc").OrdersStub(channel),
            "order": importlib.import_module("shop_pb2").Order(id="order-1"),
        }
        code = block("ledger.md", "await ledger.submit(stub.Place, order, within=connection").replace(
            "orders ...", "orders VALUES ('order-1')"
        )
        await run(code, "ledger.md", names)
        assert (await ledger.queue()).length == 1
    assert await execute(url, "SELECT id FROM orders") == [("order-1",)]


async def test_periodic_calls(shop, tmp_path):
    """LG-17: what several schedulers submit for one time is one operation, as the page says."""
    async with await Ledger.open(tmp_path / "orders.db") as ledger, aio.insecure_channel("127.0.0.1:1") as channel:
        names = {
            "ledger": ledger,
            "stub": importlib.import_module("shop_pb2_grpc").OrdersStub(channel),
            "order": importlib.import_module("shop_pb2").Order(id="order-1"),
        }
        for _ in range(2):
            await run(block("ledger.md", "not_after=end"), "ledger.md", names)
        assert len(await ledger.find()) in (1, 2)  # two if an hour began meanwhile


async def test_the_ledger_without_an_event_loop(port, tmp_path):
    """LG-9: the page's threads submit and deliver, until another thread closes the ledger."""
    shown = {'"postgresql://..."': repr(tmp_path / "orders.db"), '"shop:443"': repr(f"localhost:{port}")}
    code = block("ledger.md", "sync.Ledger.open(").replace(", within=connection", "")
    for given, here in shown.items():
        code = code.replace(given, here)
    async with aio.insecure_channel(f"localhost:{port}") as channel:
        names = {
            "PosixPath": Path,
            "sync": importlib.import_module("grpc_backoff.ledger.sync"),
            "aio": aio,
            "stub": importlib.import_module("shop_pb2_grpc").OrdersStub(channel),
            "order": importlib.import_module("shop_pb2").Order(id="order-1"),
        }
        delivering = asyncio.create_task(asyncio.to_thread(exec, code, names))
        await until_delivered(delivering, tmp_path / "orders.db")
        await asyncio.to_thread(names["ledger"].close)
        await delivering


async def test_the_inbox(shop, server):
    """IB-1: the page's server answers a repeat from its record, and the application's row is there once."""
    url, services, pb = server.database(), importlib.import_module("shop_pb2_grpc"), importlib.import_module("shop_pb2")
    await execute(url, "CREATE TABLE orders (id text)")
    names = {
        "OrdersServicer": services.OrdersServicer,
        "add_OrdersServicer_to_server": services.add_OrdersServicer_to_server,
        "Receipt": pb.Receipt,
    }
    await run(block("ledger.md", "AioInbox"), "ledger.md", names)
    address = f"127.0.0.1:{free_port()}"
    serving = asyncio.create_task(names["serve"](url, address))
    async with grpc.aio.insecure_channel(address) as channel:
        place = services.OrdersStub(channel).Place
        for _ in range(2):
            sent = {"metadata": [("idempotency-key", "order-1")], "wait_for_ready": True, "timeout": 20}
            assert (await place(pb.Order(id="order-1"), **sent)).id == "order-1"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await place(pb.Order(id="order-2"))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    serving.cancel()
    await asyncio.wait({serving})
    assert await execute(url, "SELECT id FROM orders") == [("order-1",)]


async def test_threads(port):
    """TH-1: the threaded channel works in a thread, as the page shows."""
    names = {}
    code = block("threads.md", "insecure_channel(").replace(ADDRESS, f"localhost:{port}")
    await asyncio.wait_for(run(code, "threads.md", names), 20)

    assert names["receipt"].id == "order-1"


async def test_the_failing_server(capsys):
    """IO-3: the page's server plays its script to a client and reports what the client did."""
    channels = []

    def my_client(target):
        channels.append(aio.insecure_channel(target, options=[("grpc.initial_reconnect_backoff_ms", 50)]))
        return channels[0]

    code = block("interop.md", "FlakyServer(").replace("    ...\n", "    await channel.channel_ready()\n")
    try:
        async with asyncio.timeout(20):
            await run(code, "interop.md", {"my_client": my_client})
    finally:
        await channels[0].close()
    assert "accept_close" in capsys.readouterr().out


class Contended(counters_services.CountersServicer):
    """A server on which another client always commits first."""

    async def Commit(self, request, context):  # noqa: N802
        await context.abort(grpc.StatusCode.ABORTED, "another commit to this key was faster")


async def test_contention(capsys):
    """RT-5: the page's code abandons a commit that always conflicts, and prints the number of attempts."""
    server = grpc.aio.server()
    counters_services.add_CountersServicer_to_server(Contended(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    names = {"aio": aio, "target": f"127.0.0.1:{port}"}
    names |= {"CountersStub": counters_services.CountersStub, "CommitRequest": counters.CommitRequest}
    async with asyncio.timeout(20):
        await run(block("contention.md", "aio.RetriesExhaustedError"), "contention.md", names)
    await server.stop(None)

    assert capsys.readouterr().out.startswith("gave up after ")
