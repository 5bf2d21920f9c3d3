"""A TCP port that can listen, refuse connections and listen again, without being released in between.

The front uses it, and so can any test server that must become unavailable for a while. It is not an asyncio server,
because an asyncio server that is closed while it accepts a connection never closes that connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import struct
from collections.abc import Callable

__all__ = ["RESET", "Port", "reset"]

RESET = struct.pack("ii", 1, 0)
"""The value of SO_LINGER that makes the kernel send RST instead of FIN on close: on, with a time of zero."""

_BACKLOG = 4096
_BATCH = 64
"""How many connections are accepted before other tasks get a turn."""

_REST = 0.1
"""How long accepting pauses after it failed for lack of file descriptors, in seconds."""


class Port:
    """A port on one address, for one event loop.

    Attributes:
        listening: whether the port accepts connections.
        number: the port number: the one requested, or the free one that was chosen.
        target: the address and the port, as clients write them.
    """

    def __init__(self, host: str, port: int, accepted: Callable[[socket.socket], None]) -> None:
        """Reserve the port and refuse connections until `listen`; `accepted` is then called with each connection.

        Raises:
            ValueError: `host` is not an IP address.
            OSError: the port is taken.
        """
        version = ipaddress.ip_address(host).version
        self._family = socket.AF_INET6 if version == 6 else socket.AF_INET  # noqa: PLR2004
        self._host = host
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._rest: asyncio.TimerHandle | None = None
        self.listening = False
        self.number = port
        self._sock = self._bind()
        self.number = self._sock.getsockname()[1]
        self.target = f"[{host}]:{self.number}" if version == 6 else f"{host}:{self.number}"  # noqa: PLR2004

    def listen(self) -> None:
        """Start accepting connections; does nothing if the port already accepts them."""
        if not self.listening:
            self.listening = True
            self._sock.listen(_BACKLOG)
            self._wait()

    def refuse(self) -> None:
        """Start refusing connections; does nothing if the port already refuses them. Accepted connections continue.

        The kernel resets connections that it has established but that were not accepted yet.
        """
        if self.listening:
            self.close()
            self._sock = self._bind()  # bound but not listening: connections are refused, and the port stays ours

    def close(self) -> None:
        """Release the port; calling this again does nothing."""
        if self._sock.fileno() < 0:
            return
        self.listening = False
        self._loop.remove_reader(self._sock)
        if self._rest is not None:
            self._rest.cancel()
        self._sock.close()

    def _bind(self) -> socket.socket:
        sock = socket.socket(self._family)
        try:
            sock.setblocking(False)
            # Without this, the port could not be bound again while its old connections are in TIME_WAIT.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((self._host, self.number))
        except OSError:
            sock.close()
            raise
        return sock

    def _wait(self) -> None:
        self._rest = None
        self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(_BATCH):
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._loop.remove_reader(self._sock)
                self._rest = self._loop.call_later(_REST, self._wait)
                return
            sock.setblocking(False)
            self._accepted(sock)
            if not self.listening:  # the connection just accepted was the last
                return


def reset(sock: socket.socket) -> None:
    """Close an accepted connection with RST, as the kernel does with connections that were never accepted."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    sock.close()
