"""Programs that end with open channels: `ending.py WHAT TARGET`. The test checks that they end, and what they print.

Each has a threaded or an asyncio channel with a listener, metrics and the log, and a call that waits for a connection.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import grpc
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import grpc_backoff
from grpc_backoff import aio
from grpc_backoff.sync.conductor import CONDUCTOR
from grpc_backoff.telemetry.otel import Metrics
from tests.echo import EchoStub, Message

NOWHERE = "127.0.0.1:1"
FAST = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 100)]
REQUEST = Message(text="a")


def how():
    return {"listeners": [lambda _: None, Metrics(MeterProvider([InMemoryMetricReader()]))]}


class Client:
    """A client that closes its channel when it is collected, as those of some databases do."""

    def __init__(self, target):
        self.channel = grpc_backoff.insecure_channel(target, FAST, **how())
        self.stub = EchoStub(self.channel)

    def __del__(self):
        self.channel.close()


class AsyncClient:
    def __init__(self, loop):
        self.loop = loop
        self.channel = aio.insecure_channel(NOWHERE, FAST, **how())

    def __del__(self):
        with contextlib.suppress(Exception):
            self.loop.run_until_complete(self.channel.close())


def finalizing(target):
    """Leave a client to the interpreter, while a future waits for a connection and another client is connected."""
    global client, connected, waiting  # noqa: PLW0603 - the interpreter collects them last
    client, connected = Client(NOWHERE), Client(target)
    connected.stub.Unary(REQUEST, timeout=20)
    waiting = client.stub.Unary.future(REQUEST, timeout=60, wait_for_ready=True)
    time.sleep(0.3)


def finalizing_asyncio(_target):
    """Leave a client of asyncio to the interpreter, while a call waits for a connection."""
    global client, waiting
    loop = asyncio.new_event_loop()

    async def wait():
        client = AsyncClient(loop)
        call = EchoStub(client.channel).Unary(REQUEST, timeout=60, wait_for_ready=True)
        await asyncio.sleep(0.3)
        return client, call

    client, waiting = loop.run_until_complete(wait())


def at_exit(target):
    """Make calls on a fresh channel in a function that `atexit` calls after this library has stopped its thread."""
    atexit.unregister(CONDUCTOR.stop)
    atexit.register(call_on_a_fresh_channel, target)
    atexit.register(CONDUCTOR.stop)


def at_first_exit(target):
    """Make calls on a fresh channel in a function that `atexit` calls before this library has stopped its thread."""
    atexit.register(call_on_a_fresh_channel, target)


def call_on_a_fresh_channel(target):
    heard = []
    with grpc_backoff.insecure_channel(target, FAST, listeners=[lambda event: heard.append(type(event))]) as channel:
        print(EchoStub(channel).Unary(REQUEST, timeout=20).text)  # noqa: T201
    with grpc_backoff.insecure_channel(NOWHERE, FAST, retry="retry: 2, delay: 10ms, jitter: none") as channel:
        try:
            EchoStub(channel).Unary(REQUEST, timeout=20)
        except grpc.RpcError as error:
            print(type(error).__name__, error.code().name)  # noqa: T201
        began = time.monotonic()
        try:
            EchoStub(channel).Unary(REQUEST, timeout=0.5, wait_for_ready=True)
        except grpc.RpcError as error:
            print(error.code().name, time.monotonic() - began >= 0.5)  # noqa: T201
    print(grpc_backoff.Connected in heard)  # noqa: T201


def outliving(target):
    """Make calls on a fresh channel in a thread that outlives the main one."""

    def call():
        threading.main_thread().join()
        time.sleep(0.3)  # by now, the interpreter waits for this thread
        call_on_a_fresh_channel(target)

    threading.Thread(target=call).start()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, filename="/dev/null")
    globals()[sys.argv[1]](sys.argv[2])
