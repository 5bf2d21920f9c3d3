"""Uses credentials for Compute Engine, as Google's clients do, in a process of its own.

It takes the name of the API, the port of a server with TLS, and a port to which nothing listens.
"""

from __future__ import annotations

import asyncio
import sys

import grpc

import grpc_backoff
import grpc_backoff.aio

OPTIONS = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 50)]


def token(_context, callback):
    callback((("authorization", "Bearer token"),), None)


def all_credentials():
    """Return such credentials, and others that contain them."""
    for_calls = grpc.metadata_call_credentials(token)
    made = grpc.compute_engine_channel_credentials(for_calls)
    return made, grpc.composite_channel_credentials(made, for_calls), grpc.xds_channel_credentials(made)


async def main(api, serving, silent):
    for credentials in all_credentials():
        for port, timeout in (serving, 20), (serving, 20), (silent, 1.0):
            made, how = (f"localhost:{port}", credentials, OPTIONS), {"timeout": timeout, "wait_for_ready": True}
            try:
                if api == "asyncio":
                    async with grpc_backoff.aio.secure_channel(*made) as channel:
                        await channel.unary_unary("/echo.v1.Echo/Unary")(b"", **how)
                else:
                    with grpc_backoff.secure_channel(*made) as channel:
                        channel.unary_unary("/echo.v1.Echo/Unary")(b"", **how)
            except grpc.RpcError as error:
                if (port, error.code()) != (silent, grpc.StatusCode.DEADLINE_EXCEEDED):
                    raise
            assert port == serving or channel.connection_status().attempt > 1


asyncio.run(main(*sys.argv[1:]))
