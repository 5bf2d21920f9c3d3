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
        wire: the TCP connection, which the server may reset or drop.
        task: done once the connection is closed. It is cancelled when the connection is lost, so behaviours need not
            check for that.
    """

    def __init__(
        self, sock: socket.socket, behaviour: Behaviour, record: Record, context: ssl.SSLContext | None
    ) -> None:
        """Start the behaviour on `sock`, which is closed afterwards. With `context`, a TLS handshake comes first."""
        self._sock = sock
        self._behaviour = behaviour
        self.wire = Wire(record, TlsSession(context) if context is not None else None)
        self._http2 = Http2(self.wire, record, behaviour.service(), behaviour.max_streams)
        self.wire.deliver = self._http2.receive
        self.task = asyncio.get_running_loop().create_task(self._treat())
        self.wire.lost = self.task.cancel

    async def _treat(self) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: self.wire, self._sock)
            await self.wire.established()
            connection = Connection(self.wire, self._http2)
            await self._behaviour.serve(connection)
            self.wire.close()
            await connection.until_closed()
        finally:
            self._http2.close()
            self.wire.drop()
            self._sock.close()
