"""Kills deliverers with SIGKILL while they deliver operations with order keys and checks the order of each key.

Each operation's request is its key and its number within the key. The server notes the numbers as they arrive. An
attempt whose deliverer was killed is made again, so a number may be repeated, but the next number of its key must not
arrive before it has succeeded.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from collections import defaultdict
from dataclasses import dataclass

import grpc
import grpc.aio

from benchmarks.ledger.kills import SETTINGS, deliverer, kill_repeatedly
from grpc_backoff import aio
from grpc_backoff.ledger import Ledger
from grpc_backoff.ledger.transactions import counting

__all__ = ["Order", "order"]

_METHOD = "/shop.Orders/Place"


@dataclass(frozen=True, slots=True)
class Order:
    """The outcome: how many numbers arrived out of order, and how many operations were never delivered."""

    keys: int
    operations: int
    deliverers: int
    kills: int
    out_of_order: int
    missed: int
    seconds: float


class _Server(grpc.GenericRpcHandler):
    def __init__(self) -> None:
        self.seen: dict[str, list[int]] = defaultdict(list)

    def service(self, _details):
        return grpc.unary_unary_rpc_method_handler(self._place)

    async def _place(self, request, _context):
        key, _, number = request.decode().partition(" ")
        self.seen[key].append(int(number))
        await asyncio.sleep(random.uniform(0, 0.005))
        return request


async def order(url: str, keys: int, each: int, kills: int, deliverers: int = 2, *, ordered: bool = True) -> Order:
    """Deliver `each` operations of every key with this many deliverers, which are killed this many times in total."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["grpc_backoff.ledger", "grpc_backoff.aio", "benchmarks.ledger.kills", "psycopg"])
    handler = _Server()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        async with await Ledger.open(url, settings=SETTINGS) as ledger:
            for number in range(each):
                submissions = [
                    ledger.prepared(
                        target, _METHOD, f"{key} {number}".encode(), order_key=str(key) if ordered else None
                    )
                    for key in range(keys)
                ]
                await ledger.submit_many(submissions)
            began = time.monotonic()
            await asyncio.gather(
                *(
                    kill_repeatedly(deliverer, url, target, kills // deliverers, set(), random.Random(seed))
                    for seed in range(deliverers)
                )
            )
            async with aio.insecure_channel(target) as channel:
                last = asyncio.ensure_future(ledger.deliver(channel))
                while await counting.waiting(ledger.store, 1):  # noqa: ASYNC110 - polls the database
                    await asyncio.sleep(0.1)
                seconds = time.monotonic() - began
                last.cancel()
                await asyncio.gather(last, return_exceptions=True)
    finally:
        await server.stop(None)
    wrong = sum(numbers != sorted(numbers) for numbers in handler.seen.values())
    missed = sum(each - len(set(numbers)) for numbers in handler.seen.values()) + each * (keys - len(handler.seen))
    return Order(keys, keys * each, deliverers, kills // deliverers * deliverers, wrong, missed, seconds)
