"""Kills a process while it delivers orders, starts it again, and checks that no order is lost.

`python -m examples.ledger` submits orders to a ledger in an SQLite file. Another process delivers them to a real
server. The delivering process is killed with SIGKILL in the middle of its work, several times. At the end, every order
has arrived. Orders that were in flight at a kill arrive twice, with the same idempotency key. The exit status is 0 only
if all of this holds.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from grpc_backoff import aio
from grpc_backoff.ledger import Filter, Ledger, LedgerSettings, OperationState
from grpc_backoff.policy.presets import LEDGER

__all__ = ["Outcome", "play"]

_METHOD = "/shop.Orders/Place"
_ORDERS = 60
_KILLS = 3
_AT_ONCE = 8
_TAKES = 0.1
"""How long the server takes for an order, in seconds."""
_SETTINGS = replace(
    LedgerSettings(**LEDGER),  # type: ignore[arg-type] # the preset has every setting
    policy="max_attempts: unlimited, deadline: 1d, delay: 100ms, jitter: full",
    lease=1.0,
    poll=0.1,
    concurrency=_AT_ONCE,
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The counts that show what happened to the orders."""

    submitted: int
    arrived: int
    twice: int
    lost_attempts: int
    unfinished: int

    @property
    def good(self) -> bool:
        """Whether every order arrived, none is stuck, and no more arrived twice than were in flight at a kill."""
        return self.arrived == self.submitted and not self.unfinished and self.twice <= self.lost_attempts


class Orders(grpc.GenericRpcHandler):
    """The server. It counts the orders that arrive by their idempotency keys."""

    def __init__(self) -> None:
        """Start with all counts at zero."""
        self.arrived: Counter[str] = Counter()

    def service(self, _details: grpc.HandlerCallDetails) -> Any:
        """Handle every method in the same way."""
        return grpc.unary_unary_rpc_method_handler(self._place)

    async def _place(self, request: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        metadata = dict(context.invocation_metadata() or ())
        self.arrived[str(metadata["idempotency-key"])] += 1
        await asyncio.sleep(_TAKES)
        return request


async def play() -> Outcome:
    """Submit the orders, have them delivered by a process that is repeatedly killed, and return the outcome."""
    orders = Orders()
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((orders,))
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        with tempfile.TemporaryDirectory(prefix="grpc-backoff-") as directory:
            path = str(Path(directory) / "orders.db")
            async with await Ledger.open(path, settings=_SETTINGS) as ledger:
                await ledger.submit_many(
                    [ledger.prepared(target, _METHOD, b"", idempotency_key=f"order-{n}") for n in range(_ORDERS)]
                )
                _tell(f"{_ORDERS} orders submitted to {Path(path).name}; delivery has not started")
                await _kill_again_and_again(ledger, path, target)
                return await _outcome(ledger, orders)
    finally:
        await server.stop(None)


async def _kill_again_and_again(ledger: Ledger, path: str, target: str) -> None:
    for kill in range(1, _KILLS + 1):
        process = await _deliverer(path, target)
        await _until(ledger, _ORDERS * kill // (_KILLS + 1))
        process.kill()
        await process.wait()
        counts = (await ledger.queue()).counts
        done, running = counts.get(OperationState.SUCCEEDED, 0), counts.get(OperationState.IN_PROGRESS, 0)
        _tell(f"kill {kill}: {done} orders delivered, {running} in flight when the process was killed")
    process = await _deliverer(path, target)
    await _until(ledger, _ORDERS)
    process.terminate()
    await process.wait()


async def _deliverer(path: str, target: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, "-m", "examples.ledger", "deliver", path, target)


async def _until(ledger: Ledger, delivered: int) -> None:
    for _ in range(600):
        if (await ledger.queue()).counts.get(OperationState.SUCCEEDED, 0) >= delivered:
            return
        await asyncio.sleep(0.05)


async def _outcome(ledger: Ledger, orders: Orders) -> Outcome:
    lost = 0
    for operation in await ledger.find(Filter()):
        lost += sum(attempt.code == "LOST" for attempt in await ledger.attempts(operation.id))
    return Outcome(
        submitted=_ORDERS,
        arrived=len(orders.arrived),
        twice=sum(times - 1 for times in orders.arrived.values()),
        lost_attempts=lost,
        unfinished=(await ledger.queue()).length,
    )


async def deliver(path: str, target: str) -> None:
    """Deliver orders until the process ends. This runs in the process that is killed."""
    logging.getLogger("grpc_backoff").setLevel(logging.ERROR)  # lost attempts are expected here
    async with await Ledger.open(path, settings=_SETTINGS) as ledger, aio.insecure_channel(target) as channel:
        await ledger.deliver(channel)


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Run the example, or, with the argument `deliver`, the process that delivers and is killed."""
    if sys.argv[1:2] == ["deliver"]:
        asyncio.run(deliver(*sys.argv[2:]))
        return
    _tell("\n== the ledger: a process is killed while it delivers orders, and started again")
    outcome = asyncio.run(play())
    _tell(
        f"{outcome.arrived} of {outcome.submitted} orders arrived, {outcome.unfinished} are stuck; "
        f"{outcome.twice} arrived twice, with the same idempotency key; "
        f"{outcome.lost_attempts} attempts were cut off by a kill"
    )
    _tell("ok  no order was lost" if outcome.good else "FAILED  no order was lost")
    sys.exit(not outcome.good)


if __name__ == "__main__":
    main()
