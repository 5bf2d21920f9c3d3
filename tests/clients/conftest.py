"""A server for each test, one of this library's channels to it, and its constructors in place of grpc's."""

from __future__ import annotations

import pytest

import grpc_backoff
from grpc_backoff import aio
from tests.clients.server import Server

QUICK = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 300)]


@pytest.fixture
def server():
    """A running server."""
    server = Server()
    server.start()
    yield server
    server.kill()


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
