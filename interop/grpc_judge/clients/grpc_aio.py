"""Makes the calls for peers whose channel is a `grpc.aio.Channel`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import grpc.aio

from grpc_judge.clients.grpc_sync import opened
from grpc_judge.clients.peer_program import CALL_ID, METHOD, CallFailed, CallOrder, Tally, keep_busy


async def call_all(
    order: CallOrder, options: Sequence[tuple[str, Any]], insecure: Callable[..., Any], secure: Callable[..., Any]
) -> Tally:
    """Open a channel as `grpc_sync.opened` does, and keep it busy with calls until the time is up."""
    channel = opened(order, options, insecure, secure)
    method = channel.unary_unary(METHOD)

    async def call(wait_for_ready: bool, number: str) -> None:
        try:
            await method(b"", metadata=[(CALL_ID, number)], wait_for_ready=wait_for_ready)
        except grpc.aio.AioRpcError as error:
            raise CallFailed(error.code().name) from error

    async with channel:
        return await keep_busy(order, call)
