"""The program; see `interop/clients/README.md`."""

from __future__ import annotations

import asyncio

import grpc

import grpc_backoff
from grpc_backoff import aio
from interop.clients.grpc_aio import call_all, credentials
from interop.clients.peer_program import CallOrder, Tally, command


async def _run(order: CallOrder) -> Tally:
    secret, options = credentials(order), [*order.core_options, *_ours(order)]
    if secret is None:
        return await call_all(order, aio.insecure_channel(order.target, options))
    return await call_all(order, aio.secure_channel(order.target, secret, options))


def _ours(order: CallOrder) -> list[tuple[str, float]]:
    if order.stable_after_ms is None:
        return []
    return [("grpc_backoff.stable_after", order.stable_after_ms / 1000)]


@command
def main(order: CallOrder) -> None:
    """Keep one channel busy."""
    asyncio.run(_run(order)).say_done(grpc_backoff=grpc_backoff.__version__, grpcio=grpc.__version__)


if __name__ == "__main__":
    main()
