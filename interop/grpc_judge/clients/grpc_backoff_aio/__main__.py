"""The peer for this project's asyncio channel. `clients/README.md` specifies what the program does."""

from __future__ import annotations

import asyncio

import grpc

import grpc_backoff
from grpc_backoff import aio
from grpc_judge.clients.announcer import Announcer
from grpc_judge.clients.grpc_aio import call_all, credentials
from grpc_judge.clients.holding import hold_all
from grpc_judge.clients.peer_program import Announcements, CallOrder, Tally, command


async def _run(order: CallOrder) -> tuple[Tally, Announcements | None]:
    announcer = Announcer(order.began)
    channel = _channel(order, announcer)
    if order.hold_ms is None:
        return await call_all(order, channel), None
    return await hold_all(order, channel, announcer.closed), announcer.announced


def _channel(order: CallOrder, announcer: Announcer) -> aio.Channel:
    secret, options, listeners = credentials(order), [*order.core_options, *order.own_options], [announcer]
    if secret is None:
        return aio.insecure_channel(order.target, options, listeners=listeners)
    return aio.secure_channel(order.target, secret, options, listeners=listeners)


@command
def main(order: CallOrder) -> None:
    """Keep one channel busy with calls."""
    tally, announced = asyncio.run(_run(order))
    tally.say_done(announced, grpc_backoff=grpc_backoff.__version__, grpcio=grpc.__version__)


if __name__ == "__main__":
    main()
