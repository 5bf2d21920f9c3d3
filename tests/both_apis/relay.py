"""A TCP relay in front of a server whose connections can lose what is sent, in both directions or in one."""

from __future__ import annotations

import contextlib
import socket
import threading


class Relay:
    """Relays connections. What `lose` names is read and dropped from then on, on the connections that exist.

    A connection that loses both directions looks like one to a host that has lost its power or its address.
    """

    def __init__(self, port):
        self._upstream = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lost = []
        self._sockets = []
        self._open = True
        self._accepts = threading.Thread(target=self._accept, daemon=True)
        self._accepts.start()

    @property
    def connections(self):
        """How many connections there were."""
        return len(self._lost)

    def turn(self, port):
        """Lead new connections to another server."""
        self._upstream = port

    def lose(self, *directions):
        """Drop what the client sends (`up`), what the server sends (`down`), or both."""
        for lost in self._lost:
            lost.update(directions or ("up", "down"))

    def _accept(self):
        with contextlib.suppress(OSError):
            while self._open:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                server = socket.create_connection(("127.0.0.1", self._upstream))
                self._sockets.append(server)
                lost = set()
                self._lost.append(lost)
                for source, sink, direction in ((client, server, "up"), (server, client, "down")):
                    threading.Thread(target=self._pump, args=(source, sink, direction, lost), daemon=True).start()

    def _pump(self, source, sink, direction, lost):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if direction not in lost:
                    sink.sendall(data)
        if direction not in lost:
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_RDWR)

    def cut(self):
        """End the connections that exist."""
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self):
        self._open = False
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepts.join(20)
        self._listener.close()
        self.cut()


@contextlib.contextmanager
def relay(port):
    """Run a relay to this port and yield it."""
    made = Relay(port)
    try:
        yield made
    finally:
        made.close()
