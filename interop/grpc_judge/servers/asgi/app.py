"""The ASGI application that uvicorn, hypercorn and pyvoy serve: EmptyCall, by hand, as gRPC over HTTP/2."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

_METHOD = "/grpc.testing.TestService/EmptyCall"
_EMPTY = bytes(5)
"""An empty message: not compressed, no bytes."""


async def app(
    scope: Mapping[str, Any],
    receive: Callable[[], Awaitable[Mapping[str, Any]]],
    send: Callable[[Mapping[str, Any]], Awaitable[None]],
) -> None:
    """Answer a call after the milliseconds that its metadata says."""
    if scope["type"] == "lifespan":
        while (event := (await receive())["type"]) != "lifespan.shutdown":
            await send({"type": f"{event}.complete"})
        await send({"type": f"{event}.complete"})
        return
    while (await receive()).get("more_body"):
        pass
    await asyncio.sleep(int(dict(scope["headers"]).get(b"answer-after-ms", 0)) / 1000)
    found = scope["path"] == _METHOD
    headers = [(b"content-type", b"application/grpc")]
    await send({"type": "http.response.start", "status": 200 if found else 404, "headers": headers, "trailers": found})
    await send({"type": "http.response.body", "body": _EMPTY if found else b"", "more_body": False})
    if found:
        await send({"type": "http.response.trailers", "headers": [(b"grpc-status", b"0")], "more_trailers": False})
