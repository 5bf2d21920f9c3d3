"""Prints one figure as a line of JSON: `python -m benchmarks.ledger WHAT`. `make ledger-full` prints all of them."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
from dataclasses import asdict

from benchmarks.ledger import claims, inbox, kills, orchestrators, orders, rates
from benchmarks.ledger.databases import KINDS, database


def _tell(what: str, kind: str, figures: object) -> None:
    said = asdict(figures)
    if isinstance(figures, rates.Rate):
        said["per_second"] = round(figures.per_second, 1)
    print(json.dumps({"benchmark": what, "database": kind, **said}), flush=True)


def main() -> None:  # noqa: C901 - one branch for each benchmark
    logging.getLogger("grpc_backoff").setLevel(logging.ERROR)  # each killed deliverer causes a warning
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger", description=__doc__)
    parser.add_argument(
        "what",
        choices=["kills", "inbox", "orders", "orchestrators", "unlocked", "claims", "submits", "latency", "deliveries"],
    )
    parser.add_argument("--database", choices=KINDS, action="append", help="default: every one that WHAT applies to")
    parser.add_argument("--moments", type=int, default=1000, help="kills of each process")
    parser.add_argument("--api", choices=inbox.APIS, default="asyncio", help="the API of the servers in inbox")
    parser.add_argument("--without", action="store_true", help="inbox: without the inbox, for comparison")
    parser.add_argument("--keys", type=int, default=1000, help="order keys")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--processes", type=int, help="default: 64 on PostgreSQL, 8 on SQLite")
    parser.add_argument("--operations", type=int, help="default: 10,000 deliveries, 100,000 of everything else")
    parser.add_argument("--concurrency", type=int, default=16)
    chosen = parser.parse_args()
    operations = chosen.operations or (10_000 if chosen.what == "deliveries" else 100_000)
    only = {"unlocked": ["postgres"], "deliveries": ["postgres"], "submits": ["sqlite"], "latency": ["sqlite"]}
    for kind in chosen.database or only.get(chosen.what, KINDS):
        with database(kind) as url:
            match chosen.what:
                case "kills":
                    _tell(chosen.what, kind, asyncio.run(kills.kill(url, chosen.moments)))
                case "inbox":
                    made = inbox.kill(url, chosen.api, chosen.moments, guarded=not chosen.without)
                    _tell(chosen.what, kind, asyncio.run(made))
                case "orders":
                    each = (chosen.operations or 10 * chosen.keys) // chosen.keys
                    _tell(chosen.what, kind, asyncio.run(orders.order(url, chosen.keys, each, chosen.moments)))
                case "orchestrators":
                    _tell(chosen.what, kind, asyncio.run(orchestrators.locked(url, chosen.rounds)))
                case "unlocked":
                    _tell(chosen.what, kind, asyncio.run(orchestrators.unlocked(url, chosen.rounds)))
                case "claims":
                    processes = chosen.processes or (64 if kind == "postgres" else 8)
                    _tell(chosen.what, kind, asyncio.run(claims.share(url, processes, operations)))
                case "submits":
                    _tell(chosen.what, kind, asyncio.run(rates.submits(url, operations)))
                case "latency":
                    _tell(chosen.what, kind, asyncio.run(rates.claim_latency(url, operations, 1000)))
                case "deliveries":
                    given = url, operations, chosen.concurrency
                    _tell(chosen.what, kind, asyncio.run(rates.deliveries(*given)))
                    _tell(chosen.what, kind, asyncio.run(rates.procrastinate_deliveries(*given)))


if __name__ == "__main__":
    main()
