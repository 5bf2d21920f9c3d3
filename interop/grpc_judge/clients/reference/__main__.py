"""The reference client's program. `clients/README.md` specifies what it does."""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version

from grpc_judge.clients.peer_program import Announcements, CallOrder, Tally, command, keep_busy
from grpc_judge.clients.reference.channel import Channel
from grpc_judge.clients.reference.defects import habits_with


async def _run(order: CallOrder) -> tuple[Tally, Announcements | None]:
    habits = habits_with(order.defect)
    channel = Channel(order, habits)
    channel.open()

    async def call(wait_for_ready: bool, number: str) -> None:
        await channel.call(number, wait_for_ready=wait_for_ready)

    tally = await keep_busy(order, call)
    await channel.close()
    closed = time.monotonic() - order.began
    if not habits.reports_lost:
        tally.made -= tally.failed.total()
        tally.failed.clear()
    if order.hold_ms is None:
        return tally, None
    await asyncio.sleep(order.hold_ms / 1000)
    # The event loop's clock is `time.monotonic`, like that of `order.began`.
    return tally, Announcements(attempts=[at - order.began for at in channel.attempts], closed=closed)


@command
def main(order: CallOrder) -> None:
    """Keep one channel busy with calls."""
    tally, announced = asyncio.run(_run(order))
    tally.say_done(announced, h2=version("h2"))


if __name__ == "__main__":
    main()
