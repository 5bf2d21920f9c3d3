"""A server that speaks whatever protocol a test gives it, and can be killed and started again on the same port."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter

import grpc
import grpc.aio
import pytest

import grpc_backoff
from grpc_backoff import aio
from tests.clients.place import Place

QUICK = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 300)]


class Server:
    """Answers methods by functions of a request's bytes; one that is an async generator is given the stream.

    Attributes:
        calls: how many calls of each method arrived.
        metadata: the metadata of each call, by method.
    """

    def __init__(self, credentials=None):
        self.methods = {}
        self.calls = Counter()
        self.metadata = {}
        self.port = 0
        self._credentials = credentials
        self._server = None

    @property
    def target(self):
        return f"localhost:{self.port}"

    def service(self, details):
        """Return how a method is answered; a grpc server asks for this (`GenericRpcHandler`)."""
        function = self.methods.get(details.method)
        if function is None:
            return None
        self.calls[details.method] += 1
        self.metadata[details.method] = dict(details.invocation_metadata)
        if inspect.isasyncgenfunction(function):
            return grpc.stream_stream_rpc_method_handler(function)

        async def answer(request, context):
            return function(request)

        async def answer_one(request, context):
            yield function(request)

        if getattr(function, "streams", False):
            return grpc.unary_stream_rpc_method_handler(answer_one)
        return grpc.unary_unary_rpc_method_handler(answer)

    async def start(self):
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers((self,))
        where = f"localhost:{self.port}"
        if self._credentials is None:
            self.port = self._server.add_insecure_port(where)
        else:
            self.port = self._server.add_secure_port(where, self._credentials)
        await self._server.start()

    async def kill(self):
        """Stop at once: calls end with an error, and the port refuses."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def restart(self, after=0.5):
        """Be away for so many seconds."""
        await self.kill()
        await asyncio.sleep(after)
        await self.start()


grpc.GenericRpcHandler.register(Server)


@pytest.fixture
async def server():
    """A running server."""
    server = Server()
    await server.start()
    yield server
    await server.kill()


@pytest.fixture
def place():
    """A running server for clients that block."""
    place = Place()
    place.start()
    yield place
    place.kill()


@pytest.fixture
async def channel(server):
    """A channel of ours to it."""
    async with aio.insecure_channel(server.target, options=QUICK) as channel:
        yield channel


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Have all channels be ours, with a short backoff from the environment's file."""
    file = tmp_path / "backoff.toml"
    file.write_text("[connection]\ninitial_backoff = '100ms'\nmax_backoff = '300ms'\n")
    monkeypatch.setenv("GRPC_BACKOFF_CONFIG", str(file))
    with grpc_backoff.installed():
        yield
