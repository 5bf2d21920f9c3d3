"""FK-3: asgiref's event loops, one for each call from synchronous code to a coroutine function."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

from asgiref.sync import async_to_sync

from grpc_backoff import aio

METHOD = "/loops/Ask"


def test_async_to_sync(server, caplog):
    """FK-3: successive and concurrent event loops, each with its own channel, work and log nothing at level ERROR."""
    server.methods[METHOD] = lambda request: request

    async def ask(text):
        async with aio.insecure_channel(server.target) as channel:
            return await channel.unary_unary(METHOD)(text, timeout=20)

    def in_its_own_loop(number):
        text = str(number).encode()
        return async_to_sync(ask)(text) == text

    with ThreadPoolExecutor(4) as pool:
        assert all(in_its_own_loop(number) for number in range(20))
        assert all(pool.map(in_its_own_loop, range(20)))
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
