"""Passes on bytes, for what stands between a client and a server."""

from __future__ import annotations

import asyncio
import contextlib

_CHUNK = 64 * 1024

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
"""A connection."""


async def relay(client: Ends, server: Ends, delay: float = 0.0) -> None:
    """Pass on what either side sends, until one of them ends; the connection to the server is closed then.

    What the server sends is held back for the first `delay` seconds.
    """

    async def back() -> None:
        await asyncio.sleep(delay)
        await _pump(server[0], client[1])

    pumps = [asyncio.ensure_future(_pump(client[0], server[1])), asyncio.ensure_future(back())]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        server[1].transport.abort()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
