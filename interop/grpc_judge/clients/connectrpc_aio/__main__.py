"""The connectrpc peer. `clients/README.md` specifies what the program does."""

from __future__ import annotations

import asyncio
from importlib.metadata import version

from connectrpc.client import ConnectClient
from connectrpc.errors import ConnectError
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from connectrpc.protocol import ProtocolType
from protobuf.wkt import Empty
from pyqwest import Client, HTTPTransport, HTTPVersion

from grpc_judge.clients.peer_program import CALL_ID, METHOD, CallFailed, CallOrder, Tally, command, keep_busy

_SERVICE, _, _NAME = METHOD.strip("/").partition("/")
_METHOD = MethodInfo(
    name=_NAME,
    service_name=_SERVICE,
    input=Empty,
    output=Empty,
    idempotency_level=IdempotencyLevel.UNKNOWN,
    stream_type=StreamType.UNARY,
)
_CODES = {"CANCELED": "CANCELLED"}
"""The status names that connectrpc spells differently from gRPC."""


async def _run(order: CallOrder) -> Tally:
    scheme = "http" if order.ca is None else "https"
    # Without TLS there is no ALPN, so HTTP/2 must be requested explicitly.
    async with HTTPTransport(tls_ca_cert=order.ca, http_version=HTTPVersion.HTTP2) as transport:
        client = ConnectClient(f"{scheme}://{order.target}", protocol=ProtocolType.GRPC, http_client=Client(transport))

        async def call(_wait_for_ready: bool, number: str) -> None:
            """Make one call. The client does not support wait-for-ready."""
            try:
                await client.execute_unary(request=Empty(), method=_METHOD, headers={CALL_ID: number})
            except ConnectError as error:
                name = error.code.name
                raise CallFailed(_CODES.get(name, name)) from error

        return await keep_busy(order, call)


@command
def main(order: CallOrder) -> None:
    """Keep one channel busy with calls."""
    asyncio.run(_run(order)).say_done(connectrpc=version("connectrpc"), pyqwest=version("pyqwest"))


if __name__ == "__main__":
    main()
