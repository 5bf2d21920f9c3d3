"""Counts the bytes that clients send to a server."""

from __future__ import annotations

import asyncio


def counting(sent):
    """Return a front behaviour that relays all bytes, and appends the size of each chunk for the server to a list."""

    async def relay(visit):
        reader, writer = await asyncio.open_connection(*visit.upstream)
        back = asyncio.create_task(_pump(reader, visit.writer))
        try:
            while data := await visit.reader.read(65536):
                sent.append(len(data))
                writer.write(data)
        finally:
            back.cancel()
            writer.transport.abort()

    return relay


async def _pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
