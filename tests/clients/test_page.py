"""The code blocks of docs/clients.md, run unchanged except for the credentials."""

from __future__ import annotations

import google.auth
import grpc.aio
from google.auth.credentials import AnonymousCredentials

import grpc_backoff
from grpc_backoff import aio
from tests.docs.pages import blocks, run

PAGE = "clients.md"


async def test_every_block(monkeypatch):
    """CH-1: the page's three examples work: passing a channel, `install()`, and calls that wait for a connection."""
    monkeypatch.setattr(google.auth, "default", lambda **_: (AnonymousCredentials(), "project"))
    handed, installing, waiting = blocks(PAGE)
    names, channels = {}, []
    try:
        await run(handed, PAGE, names)
        channels.append(names["channel"])
        await run(installing, PAGE, names)
        channels.append(grpc.aio.insecure_channel("localhost:50051"))
        grpc_backoff.uninstall()
        await run(waiting, PAGE, names)
        channels.append(names["channel"])
        assert names["client"].transport.grpc_channel is names["channel"]
    finally:
        grpc_backoff.uninstall()
        for channel in channels:
            await channel.close()
    assert [type(channel) for channel in channels] == [aio.Channel, aio.Channel, aio.Channel]
