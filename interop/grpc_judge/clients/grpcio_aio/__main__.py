"""The peer for grpcio's asyncio channel. `clients/README.md` specifies what the program does."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio

from grpc_judge.clients.grpc_aio import call_all
from grpc_judge.clients.grpc_sync import credentials
from grpc_judge.clients.peer_program import CallOrder, Tally, command


async def _run(order: CallOrder) -> Tally:
    secret, options = credentials(order), order.core_options
    if secret is None:
        return await call_all(order, grpc.aio.insecure_channel(order.target, options))
    return await call_all(order, grpc.aio.secure_channel(order.target, secret, options))


@command
def main(order: CallOrder) -> None:
    """Keep one channel busy with calls."""
    asyncio.run(_run(order)).say_done(grpcio=grpc.__version__)


if __name__ == "__main__":
    main()
