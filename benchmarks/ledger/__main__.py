"""Prints one figure as a line of JSON: `python -m benchmarks.ledger WHAT`. `make ledger-full` prints all of them."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import asdict

from benchmarks.ledger import bloat, claims, faults, inbox, kills, orchestrators, orders, rates, replay
from benchmarks.ledger.databases import KINDS, database

WHAT = {
    "kills": KINDS,
    "inbox": KINDS,
    "orders": KINDS,
    "order-rates": KINDS,
    "orchestrators": KINDS,
    "unlocked": ["postgres"],
    "claims": KINDS,
    "submits": ["sqlite"],
    "latency": ["sqlite"],
    "deliveries": ["postgres"],
    "bare-rates": ["postgres"],
    "wake-ups": ["postgres"],
    "replay": KINDS,
    "faults": ["postgres"],
    "steady": ["postgres"],
    "idle": ["postgres"],
}
"""What can be measured, and with which databases."""


def _tell(what: str, kind: str, figures: object) -> None:
    said = asdict(figures)
    if isinstance(figures, rates.Rate):
        said["per_second"] = round(figures.per_second, 1)
    if isinstance(figures, faults.Fault):
        said["kept"] = round(figures.kept, 3)
    print(json.dumps({"benchmark": what, "database": kind, **said}), flush=True)


def _read() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger", description=__doc__)
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("--database", choices=KINDS, action="append", help="default: every one that WHAT applies to")
    parser.add_argument("--moments", type=int, default=1000, help="kills of each process")
    parser.add_argument("--api", choices=inbox.APIS, default="asyncio", help="the API of the servers in inbox")
    parser.add_argument("--without", action="store_true", help="inbox and orders: without what they are about")
    parser.add_argument("--keys", type=int, default=1000, help="order keys")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--processes", type=int, help="default: 64 on PostgreSQL, 8 on SQLite")
    parser.add_argument(
        "--operations", type=int, help="default: 10,000 deliveries, 300,000 replays, 100,000 of everything else"
    )
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--fault", choices=faults.FAULTS, action="append", help="default: all five")
    parser.add_argument("--rate", type=int, help="operations submitted per second; default: 100 in faults, else 200")
    parser.add_argument(
        "--seconds",
        type=float,
        help="default: 60 for each phase of a fault, 1,800 for steady, 600 for the transaction of idle",
    )
    return parser.parse_args()


async def _measure(chosen: argparse.Namespace, url: str, kind: str) -> AsyncIterator[object]:  # noqa: C901, PLR0912 - a branch for each
    match chosen.what:
        case "kills":
            yield await kills.kill(url, chosen.moments)
        case "inbox":
            yield await inbox.kill(url, chosen.api, chosen.moments, guarded=not chosen.without)
        case "orders":
            each = (chosen.operations or 10 * chosen.keys) // chosen.keys
            yield await orders.order(url, chosen.keys, each, chosen.moments, ordered=not chosen.without)
        case "order-rates":
            number = chosen.operations or 5000
            yield await rates.compared(
                chosen.rounds,
                lambda: rates.deliveries(url, number, chosen.concurrency, chosen.keys),
                lambda: rates.deliveries(url, number, chosen.concurrency),
            )
        case "bare-rates":
            number = chosen.operations or 5000
            yield await rates.compared(
                chosen.rounds,
                lambda: rates.deliveries(url, number, chosen.concurrency),
                lambda: rates.bare_deliveries(url, number, chosen.concurrency),
            )
        case "orchestrators":
            yield await orchestrators.locked(url, chosen.rounds)
        case "unlocked":
            yield await orchestrators.unlocked(url, chosen.rounds)
        case "claims":
            processes = chosen.processes or (64 if kind == "postgres" else 8)
            yield await claims.share(url, processes, chosen.operations or 100_000)
        case "submits":
            yield await rates.submits(url, chosen.operations or 100_000)
        case "latency":
            yield await rates.claim_latency(url, chosen.operations or 100_000, 1000)
        case "deliveries":
            for measure in (rates.bare_deliveries, rates.deliveries, rates.procrastinate_deliveries):
                yield await measure(url, chosen.operations or 10_000, chosen.concurrency)
        case "wake-ups":
            yield await rates.wake_ups(url, chosen.rounds)
        case "replay":
            yield await asyncio.to_thread(replay.replay, url, chosen.operations or 300_000)
        case "faults":
            for name in chosen.fault or faults.FAULTS:
                yield await faults.fault(name, chosen.seconds or 60, chosen.rate or 100)
        case "steady":
            yield await bloat.steady(url, chosen.rate or 200, chosen.seconds or 1800)
        case "idle":
            for phase in await bloat.idle(url, chosen.rate or 200, chosen.seconds or 600):
                yield phase


def main() -> None:
    logging.getLogger("grpc_backoff").setLevel(logging.ERROR)  # each killed deliverer causes a warning
    chosen = _read()

    async def measure(url: str, kind: str) -> None:
        async for figures in _measure(chosen, url, kind):
            _tell(chosen.what, kind, figures)

    for kind in chosen.database or WHAT[chosen.what]:
        with database(kind) as url:
            asyncio.run(measure(url, kind))


if __name__ == "__main__":
    main()
