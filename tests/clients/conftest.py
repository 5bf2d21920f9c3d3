"""A server whose methods a test defines, and which the test can kill and restart on the same port."""

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
    """Answers each method with a function of the request's bytes, or with an async generator of the stream's requests.

    Attributes:
        calls: how many calls of each method arrived.
        metadata: the metadata of the last call of each method.
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
        """Return the handler for a method; grpc's server calls this (see `grpc.GenericRpcHandler`)."""
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
        """Stop at once: running calls fail, and new connections are refused."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def restart(self, after=0.5):
        """Stop the server for this many seconds, then start it again."""
        await self.kill()
        await asyncio.sleep(after)
        await self.start()


grpc.GenericRpcHandler.register(Server)


@pytest.fixture
async def server():
    """A running asyncio server."""
    server = Server()
    await server.start()
    yield server
    await server.kill()


@pytest.fixture
def place():
    """A running server for blocking clients."""
    place = Place()
    place.start()
    yield place
    place.kill()


@pytest.fixture
async def channel(server):
    """One of this library's channels to the server."""
    async with aio.insecure_channel(server.target, options=QUICK) as channel:
        yield channel


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Install this library's constructors, with a short backoff from the file that the environment names."""
    file = tmp_path / "backoff.toml"
    file.write_text("[connection]\ninitial_backoff = '100ms'\nmax_backoff = '300ms'\n")
    monkeypatch.setenv("GRPC_BACKOFF_CONFIG", str(file))
    with grpc_backoff.installed():
        yield
