"""The peer for grpcio's asyncio channel. `clients/README.md` specifies what the program does."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio

from grpc_judge.clients.grpc_aio import call_all
from grpc_judge.clients.peer_program import CallOrder, command


@command
def main(order: CallOrder) -> None:
    """Keep one channel busy with calls."""
    tally = asyncio.run(call_all(order, order.core_options, grpc.aio.insecure_channel, grpc.aio.secure_channel))
    tally.say_done(grpcio=grpc.__version__)


if __name__ == "__main__":
    main()
