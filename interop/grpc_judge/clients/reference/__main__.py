"""The reference client's program. `clients/README.md` specifies what it does."""

from __future__ import annotations

import asyncio
from importlib.metadata import version

from grpc_judge.clients.peer_program import CallOrder, Tally, command, keep_busy
from grpc_judge.clients.reference.channel import Channel
from grpc_judge.clients.reference.defects import habits_with


async def _run(order: CallOrder) -> Tally:
    habits = habits_with(order.defect)
    channel = Channel(order, habits)
    channel.open()

    async def call(wait_for_ready: bool, number: str) -> None:
        await channel.call(number, wait_for_ready=wait_for_ready)

    tally = await keep_busy(order, call)
    await channel.close()
    if not habits.reports_lost:
        tally.made -= tally.failed.total()
        tally.failed.clear()
    return tally


@command
def main(order: CallOrder) -> None:
    """Keep one channel busy with calls."""
    tally = asyncio.run(_run(order))
    tally.say_done(h2=version("h2"))


if __name__ == "__main__":
    main()
