"""The reconnect test's retry port: it accepts each connection, reports the time, and hangs up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_BACKLOG = 1024


class _HangUp(asyncio.Protocol):
    """A connection to the retry port. Only the time at which it is accepted matters."""

    def __init__(self, accepted: Callable[[float], None]) -> None:
        self._accepted = accepted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report the time and close."""
        self._accepted(asyncio.get_running_loop().time())
        transport.close()


async def open_retry_port(host: str, port: int, accepted: Callable[[float], None]) -> asyncio.Server:
    """Listen on the retry port and call `accepted` with the event loop's time for every connection."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: _HangUp(accepted), host, port, backlog=_BACKLOG)
