"""Makes the calls for peers whose channel is a `grpc.aio.Channel`."""

from __future__ import annotations

from typing import Any

import grpc.aio

from grpc_judge.clients.peer_program import CALL_ID, METHOD, CallFailed, CallOrder, Tally, keep_busy


async def call_all(order: CallOrder, channel: grpc.aio.Channel) -> Tally:
    """Keep the channel busy with calls until the time is up, then close it."""
    method: Any = channel.unary_unary(METHOD)

    async def call(wait_for_ready: bool, number: str) -> None:
        try:
            await method(b"", metadata=[(CALL_ID, number)], wait_for_ready=wait_for_ready)
        except grpc.aio.AioRpcError as error:
            raise CallFailed(error.code().name) from error

    async with channel:
        return await keep_busy(order, call)
