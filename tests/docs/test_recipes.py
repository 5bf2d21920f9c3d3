"""Recipes that the pages only define: views, tasks and the draining of a server are run here as applications would."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import time
import types

import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2_grpc

import grpc_backoff
from grpc_backoff import aio
from tests.docs.pages import ADDRESS, blocks, run


async def test_frameworks(port, monkeypatch):
    """CH-1, TH-1: an endpoint with the lifespan's stub, a task with the thread's stub, and a task that uses asyncio."""
    page, names, opened = "howto/frameworks.md", {"__name__": "recipes"}, []
    create = grpc_backoff.insecure_channel

    def slowly(*arguments):
        time.sleep(0.1)  # so that first requests at once meet
        opened.append(create(*arguments))
        return opened[-1]

    monkeypatch.setattr(grpc_backoff, "insecure_channel", slowly)
    for code in blocks(page):
        await run(code.replace(ADDRESS, f"localhost:{port}"), page, names)
    app = types.SimpleNamespace(state=types.SimpleNamespace())
    async with asyncio.timeout(60):
        async with names["lifespan"](app):
            receipt = await app.state.orders.Place(names["Order"](id="order-1"))
        assert receipt.id == "order-1"
        ids = [f"order-2{number}" for number in range(8)]
        assert await asyncio.gather(*(asyncio.to_thread(names["place_order"], each) for each in ids)) == ids
        assert len(opened) == 1
        assert await asyncio.to_thread(names["place_with_asyncio"], "order-3") == "order-3"
    await asyncio.to_thread(opened[0].close)

    def refuse(order_id):
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())

    names["place_order"] = refuse
    with pytest.raises(names["OrderFailed"], match=r"^UNAVAILABLE$"):
        names["place_or_say_why"]("order-4")


async def test_production(port):
    """BP-3: the channel of the page about production serves, and its file gives both methods their deadline."""
    page, names = "howto/production.md", {"__name__": "recipes"}
    [settings] = blocks(page, "toml")
    for code in blocks(page)[:1]:
        await run(code.replace(ADDRESS, f"localhost:{port}"), page, names)

    async with names["orders_channel"]() as channel:
        stub = importlib.import_module("shop_pb2_grpc").OrdersStub(channel)
        receipt = await stub.Place(importlib.import_module("shop_pb2").Order(id="order-1"))

    assert receipt.id == "order-1"
    assert settings.count('deadline = "30s"') == settings.count("[methods.") == 2


class Counted:
    """A server of the page about Kubernetes, which counts its orders."""

    def __init__(self):
        self.orders = 0
        self.server = grpc.aio.server()
        importlib.import_module("shop_pb2_grpc").add_OrdersServicer_to_server(self, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    async def Place(self, order, context):  # noqa: N802
        self.orders += 1
        return importlib.import_module("shop_pb2").Receipt(id=order.id)


async def test_draining(shop):
    """CH-6, RO-2: no call fails when a server drains as the page shows. Takes five seconds of real time, no deadline.

    The first server gets calls before it drains, and none after it has stopped.
    """
    _, draining, watching = blocks("howto/kubernetes.md")
    names = {"aio": aio, "json": json}
    await run(draining, "howto/kubernetes.md", names)
    first, second = Counted(), Counted()
    await names["start"](first.server)
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), second.server)
    await second.server.start()
    watching = watching.replace(ADDRESS, f"ipv4:{first.address},{second.address}")
    await run(watching, "howto/kubernetes.md", names)
    try:
        async with names["channel"] as channel, asyncio.timeout(60):
            stub = importlib.import_module("shop_pb2_grpc").OrdersStub(channel)
            order = importlib.import_module("shop_pb2").Order(id="order-1")
            while not (first.orders and second.orders):
                await stub.Place(order, wait_for_ready=True)
            os.kill(os.getpid(), signal.SIGTERM)
            stopping = asyncio.create_task(first.server.wait_for_termination())
            while not stopping.done():
                await stub.Place(order, wait_for_ready=True)
            counted = first.orders
            for _ in range(20):
                await stub.Place(order, wait_for_ready=True)
            assert first.orders == counted
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(number)
        await second.server.stop(None)


async def test_a_key_that_the_server_recognizes(shop):
    """RT-1: on the page about retries, a call whose first response is lost is executed once."""
    keyed = blocks("retries.md")
    names = {}
    for code in keyed[next(number for number, code in enumerate(keyed) if "import uuid" in code) :][:3]:
        await run(code, "retries.md", names)
    assert "test_placed_once" in names
