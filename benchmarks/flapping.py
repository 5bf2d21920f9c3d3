"""How often a peer is dialled that sends SETTINGS and hangs up, as a proxy does whose upstream is down (CB-7).

    python -m benchmarks.flapping [--seconds S] [--workers N] [--json FILE]

The workers do what many programs do: call, and on a failure call again. Both channels have their defaults, so ours
may dial once in a second.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import grpc.aio
from rich import box
from rich.console import Console
from rich.table import Table

from grpc_backoff import aio
from grpc_backoff.testing.front import FlakyFront, settings_then_close
from tests.echo import EchoStub, Message

__all__ = ["Result", "main", "measure"]

CHANNELS = {"grpc.aio": grpc.aio.insecure_channel, "grpc_backoff.aio": aio.insecure_channel}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What the peer saw of one kind of channel."""

    channel: str
    seconds: float
    workers: int
    connections: int
    failed_calls: int


async def measure(channel: str, seconds: float, workers: int) -> Result:
    """Let the workers try for so long; count what reached the peer."""
    async with FlakyFront(settings_then_close(0)) as front, CHANNELS[channel](front.target) as client:
        stub = EchoStub(client)
        tasks = [asyncio.create_task(_work(stub)) for _ in range(workers)]
        await asyncio.sleep(seconds)
        connections = len(front.visits)
        for task in tasks:
            task.cancel()
        failed = 0
        for task in tasks:
            failed += await task
    return Result(channel=channel, seconds=seconds, workers=workers, connections=connections, failed_calls=failed)


async def _work(stub: EchoStub) -> int:
    """Call again and again until cancelled; return how many calls failed."""
    failed = 0
    while True:
        try:
            await stub.Unary(Message(text="ping"))
        except grpc.aio.AioRpcError:
            failed += 1
        except asyncio.CancelledError:
            return failed


async def _measure_all(seconds: float, workers: int) -> list[Result]:
    return [await measure(channel, seconds, workers) for channel in CHANNELS]


def _table(results: list[Result]) -> Table:
    first = results[0]
    table = Table(
        title=f"A peer that hangs up: {first.workers} workers, {first.seconds:g} s", box=box.SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("channel")
    for column in ("connections", "a second", "failed calls"):
        table.add_column(column, justify="right")
    for result in results:
        pace = result.connections / result.seconds
        table.add_row(result.channel, str(result.connections), f"{pace:.1f}", str(result.failed_calls))
    return table


@click.command()
@click.option("--seconds", default=10.0, show_default=True, help="How long each channel is tried.")
@click.option("--workers", default=16, show_default=True, help="How many call at a time.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write the results here too.")
def main(seconds: float, workers: int, file: Path | None) -> None:
    """Count the connections that retrying calls make to a peer that hangs up at once."""
    results = asyncio.run(_measure_all(seconds, workers))
    Console().print(_table(results))
    if file is not None:
        file.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")


if __name__ == "__main__":
    main()
