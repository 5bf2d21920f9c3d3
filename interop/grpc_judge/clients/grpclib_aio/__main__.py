"""The peer for grpclib. `clients/README.md` specifies what the program does."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import grpclib
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, StreamTerminatedError

from grpc_judge.clients.peer_program import CALL_ID, METHOD, CallFailed, CallOrder, Tally, command, keep_busy


class Bytes(CodecBase):
    """A codec that passes messages through as bytes."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        """Return the message unchanged."""
        del message_type
        encoded: bytes = message
        return encoded

    def decode(self, data: bytes, message_type: Any) -> bytes:
        """Return the data unchanged."""
        del message_type
        return data


def _context(ca: bytes) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca.decode())
    context.set_alpn_protocols(["h2"])
    return context


async def _run(order: CallOrder) -> Tally:
    host, _, port = order.target.rpartition(":")
    secret = None if order.ca is None else _context(order.ca)
    async with Channel(host, int(port), ssl=secret, codec=Bytes()) as channel:
        method: UnaryUnaryMethod[bytes, bytes] = UnaryUnaryMethod(channel, METHOD, bytes, bytes)

        async def call(_wait_for_ready: bool, number: str) -> None:
            """Make one call. The client does not support wait-for-ready."""
            try:
                await method(b"", metadata={CALL_ID: number})
            except GRPCError as error:
                raise CallFailed(error.status.name) from error
            except (StreamTerminatedError, OSError) as error:
                raise CallFailed(type(error).__name__) from error

        return await keep_busy(order, call)


@command
def main(order: CallOrder) -> None:
    """Keep one channel busy with calls."""
    asyncio.run(_run(order)).say_done(grpclib=grpclib.__version__)


if __name__ == "__main__":
    main()
