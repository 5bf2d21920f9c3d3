"""Ports for servers that a name with two addresses leads to."""

from __future__ import annotations

import contextlib
import errno
import socket

ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))


@contextlib.contextmanager
def port_of_localhost():
    """Keep a port for a server of grpcio's on each address of `localhost`, and yield it.

    With port 0, the server chooses one that is free on the first address. If another program has it on the second, the
    server does without, and a client of `localhost` reaches the other program there.
    """
    while True:
        with contextlib.ExitStack() as kept:
            port = _bound(kept)
            if port:
                yield port
                return


def _bound(kept):
    """Bind a port of each address, as grpcio's servers share it; return None if they are not the same."""
    port = 0
    for family, host in ADDRESSES:
        sock = kept.enter_context(socket.socket(family))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return None
            continue  # the machine has no IPv6
        port = sock.getsockname()[1]
    return port
