"""Runs event loops one after another, and concurrently in threads, each with its own channel (FK-3)."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc.aio

from benchmarks.endurance.left import Errors, Open, settled
from grpc_backoff import aio
from tests.echo import EchoStub, Message

__all__ = ["Verdict", "run_loops"]

_SIDE_BY_SIDE = 4
_MAKERS = {"plain": grpc.aio.insecure_channel, "ours": aio.insecure_channel}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of the run. `errors` counts the log records at ERROR, and `texts` holds some of them."""

    kind: str
    loops: int
    errors: int
    texts: list[str]
    left: dict[str, int]
    seconds: float


def run_loops(target: str, kind: str, count: int) -> Verdict:
    """Run half of the loops one after another, and the other half in four threads."""
    run_one = _runner(target, kind)
    run_one()
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        list(pool.map(lambda _: run_one(), range(_SIDE_BY_SIDE)))
    errors, before, began = Errors(), Open(), time.monotonic()
    for _ in range(count // 2):
        run_one()
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        list(pool.map(lambda _: run_one(), range(count - count // 2)))
    took = time.monotonic() - began
    left = settled(before)
    return Verdict(kind, count, errors.count, sorted(errors.texts), left, round(took, 1))


def _runner(target: str, kind: str):
    async def call() -> None:
        async with _MAKERS[kind](target) as channel:
            await EchoStub(channel).Unary(Message(text="a"), timeout=30)

    return lambda: asyncio.run(call())
