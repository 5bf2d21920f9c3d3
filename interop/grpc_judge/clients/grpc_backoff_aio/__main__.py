"""The peer for this project's asyncio channel. `clients/README.md` specifies what the program does."""

from __future__ import annotations

import asyncio

import grpc

import grpc_backoff
from grpc_backoff import aio
from grpc_judge.clients.grpc_aio import call_all
from grpc_judge.clients.peer_program import CallOrder, command


@command
def main(order: CallOrder) -> None:
    """Keep one channel busy with calls."""
    tally = asyncio.run(call_all(order, order.own_options, aio.insecure_channel, aio.secure_channel))
    tally.say_done(grpc_backoff=grpc_backoff.__version__, grpcio=grpc.__version__)


if __name__ == "__main__":
    main()
