"""The retry port: accepts connections, reports the time of each, and hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["open_retry_port"]

_BACKLOG = 1024


class _HangUp(asyncio.Protocol):
    """One connection to the retry port; only the time of its acceptance matters."""

    def __init__(self, accepted: Callable[[float], None]) -> None:
        self._accepted = accepted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report the time, and close."""
        self._accepted(asyncio.get_running_loop().time())
        transport.close()


async def open_retry_port(host: str, port: int, accepted: Callable[[float], None]) -> asyncio.Server:
    """Listen, and call `accepted` with the event loop's time at every connection."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: _HangUp(accepted), host, port, backlog=_BACKLOG)
