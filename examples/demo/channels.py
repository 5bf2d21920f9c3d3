"""The asyncio channels and the threaded channels that the demo uses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
import grpc.aio

import grpc_backoff
from grpc_backoff import aio
from grpc_backoff.decide.connections.events import ConnectionEvent

from .orders import place_on
from .script import OPTIONS
from .traffic import WORKERS

__all__ = ["ASYNCIO", "THREADS", "Channels"]

Place = Callable[..., Awaitable[str]]
Listener = Callable[[ConnectionEvent], None]


@dataclass(frozen=True, slots=True)
class Channels:
    """Our channels and grpc's, either asyncio or threaded.

    Attributes:
        ours: the name of our module.
        plain: the name of grpc's module.
        make_ours: returns our channel to a target; its listener is called on the event loop.
        make_plain: returns grpc's channel to a target.
        place: returns the function that places orders on a channel.
    """

    ours: str
    plain: str
    make_ours: Callable[[str, Listener], AbstractAsyncContextManager[Any]]
    make_plain: Callable[[str], AbstractAsyncContextManager[Any]]
    place: Callable[[Any], Place]


def _on_the_loop(heard: Listener) -> Listener:
    """Return a listener that may be called on any thread, and that forwards each event to the event loop."""
    loop = asyncio.get_running_loop()

    def hear(event: ConnectionEvent) -> None:
        with contextlib.suppress(RuntimeError):  # the last event may come after the loop has ended
            loop.call_soon_threadsafe(heard, event)

    return hear


@contextlib.asynccontextmanager
async def _closing(channel: grpc.Channel) -> AsyncIterator[grpc.Channel]:
    try:
        yield channel
    finally:
        await asyncio.to_thread(channel.close)


def _place_in_threads(channel: grpc.Channel) -> Place:
    """Return a function that makes the blocking call in a pool with one thread per worker."""
    call, pool = place_on(channel), ThreadPoolExecutor(len(WORKERS))

    async def place(order: str, **arguments: Any) -> str:
        receipt: str = await asyncio.get_running_loop().run_in_executor(pool, partial(call, order, **arguments))
        return receipt

    return place


ASYNCIO = Channels(
    ours="grpc_backoff.aio",
    plain="grpc.aio",
    make_ours=lambda target, heard: aio.insecure_channel(target, OPTIONS, listeners=[heard]),
    make_plain=lambda target: grpc.aio.insecure_channel(target, options=OPTIONS),
    place=place_on,
)
THREADS = Channels(
    ours="grpc_backoff",
    plain="grpc",
    make_ours=lambda target, heard: _closing(
        grpc_backoff.insecure_channel(target, OPTIONS, listeners=[_on_the_loop(heard)])
    ),
    make_plain=lambda target: _closing(grpc.insecure_channel(target, options=OPTIONS)),
    place=_place_in_threads,
)
