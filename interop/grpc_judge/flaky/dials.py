"""Observes the dials to a port from outside. A raw socket receives every SYN, including those that the kernel refuses.

This requires the CAP_NET_RAW capability. Without it, refused dials are not visible.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import socket
import struct
import sys
from collections.abc import Iterator

_SO_ATTACH_FILTER = 26
_LONGEST = 128
_LOAD_HEADER, _LOAD_HALF, _LOAD_BYTE, _AND, _JUMP_EQUAL, _RETURN = 0xB1, 0x48, 0x50, 0x54, 0x15, 0x06
_SYN, _SYN_OR_ACK = 0x02, 0x12


class Dials:
    """The dials observed so far.

    Attributes:
        seen: when each SYN arrived, on the event loop's clock.
    """

    def __init__(self, sock: socket.socket) -> None:
        """Start reading from this socket."""
        self.seen: list[float] = []
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock, self._hear)

    def close(self) -> None:
        """Stop reading."""
        self._loop.remove_reader(self._sock)

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._sock.recv(_LONGEST):
                self.seen.append(self._loop.time())


@contextlib.contextmanager
def watch_dials(port: int) -> Iterator[Dials | None]:
    """Watch for SYNs to a port of this machine; yield None if the system does not permit it."""
    if not sys.platform.startswith("linux"):
        yield None
        return
    try:
        sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
    except PermissionError:
        yield None
        return
    with sock:
        sock.setblocking(False)
        _filter(sock, port)
        with contextlib.suppress(BlockingIOError):
            while sock.recv(_LONGEST):  # discard packets from before the filter
                pass
        dials = Dials(sock)
        try:
            yield dials
        finally:
            dials.close()


def _filter(sock: socket.socket, port: int) -> None:
    """Make the kernel deliver only SYNs to this port instead of all TCP traffic of this machine."""
    program = [
        (_LOAD_HEADER, 0, 0, 0),
        (_LOAD_HALF, 0, 0, 2),
        (_JUMP_EQUAL, 0, 4, port),
        (_LOAD_BYTE, 0, 0, 13),
        (_AND, 0, 0, _SYN_OR_ACK),
        (_JUMP_EQUAL, 0, 1, _SYN),
        (_RETURN, 0, 0, _LONGEST),
        (_RETURN, 0, 0, 0),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", len(program), ctypes.addressof(code)))
