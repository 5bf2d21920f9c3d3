"""The peer for this project's asyncio channel. `clients/README.md` specifies what the program does."""

from __future__ import annotations

import asyncio

import grpc

import grpc_backoff
from grpc_backoff import aio
from grpc_judge.clients.grpc_aio import call_all
from grpc_judge.clients.grpc_sync import credentials
from grpc_judge.clients.peer_program import CallOrder, Tally, command


async def _run(order: CallOrder) -> Tally:
    return await call_all(order, _channel(order))


def _channel(order: CallOrder) -> aio.Channel:
    secret, options = credentials(order), [*order.core_options, *order.own_options]
    if secret is None:
        return aio.insecure_channel(order.target, options)
    return aio.secure_channel(order.target, secret, options)


@command
def main(order: CallOrder) -> None:
    """Keep one channel busy with calls."""
    tally = asyncio.run(_run(order))
    tally.say_done(grpc_backoff=grpc_backoff.__version__, grpcio=grpc.__version__)


if __name__ == "__main__":
    main()
