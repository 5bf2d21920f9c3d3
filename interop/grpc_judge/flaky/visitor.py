"""Handles one accepted socket: runs its behaviour in a task, from accept to close."""

from __future__ import annotations

import asyncio
import socket
import ssl

from grpc_judge.flaky.behaviour import Behaviour
from grpc_judge.flaky.connection import Connection
from grpc_judge.flaky.http2 import Http2
from grpc_judge.flaky.record import Record
from grpc_judge.flaky.tls import TlsSession
from grpc_judge.flaky.wire import Wire


class Visitor:
    """An accepted connection and its behaviour.

    Attributes:
        task: done once the connection is closed. It is cancelled when the connection is lost, so behaviours need not
            check for that.
    """

    def __init__(
        self, sock: socket.socket, behaviour: Behaviour, record: Record, context: ssl.SSLContext | None
    ) -> None:
        """Start the behaviour on `sock`, which is closed afterwards. With `context`, a TLS handshake comes first."""
        self._sock = sock
        self._behaviour = behaviour
        self._wire = Wire(record, TlsSession(context) if context is not None else None)
        self._http2 = Http2(self._wire, record, behaviour.service(), behaviour.max_streams)
        self._wire.deliver = self._http2.receive
        self.task = asyncio.get_running_loop().create_task(self._treat())
        self._wire.lost = self.task.cancel

    def reset(self) -> None:
        """Close the connection with RST."""
        self._wire.reset()

    def drop(self) -> None:
        """Close the connection as the kernel does when a process is killed."""
        self._wire.drop()

    async def _treat(self) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: self._wire, self._sock)
            await self._wire.established()
            connection = Connection(self._wire, self._http2)
            await self._behaviour.serve(connection)
            self._wire.close()
            await connection.until_closed()
        finally:
            self._http2.close()
            self._wire.drop()
            self._sock.close()
