"""What a call costs on a READY channel: plain `grpc.aio`, ours, and plain `grpc.aio` once more as the control.

    python -m benchmarks.overhead [--calls N] [--json FILE]

The channels take turns in small blocks of calls, in an order drawn anew for every round, so that a machine that
grows slower or faster does so for all of them. Each round gives one ratio to the first channel; the result is the
median of those, with the interval that 95 % of the medians of resampled rounds fall into. The control says how far
from 1 a ratio of equals can be: the goal of CH-5, 1.02, means something only where the control's interval is narrower.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import grpc.aio
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.server import echo_server
from grpc_backoff import aio
from tests.echo import EchoStub, Message

__all__ = ["Result", "main", "measure"]

BLOCK = 20
STREAMED = 20
RESAMPLES = 1000
PLAIN, OURS, CONTROL = "grpc.aio", "grpc_backoff.aio", "grpc.aio, again"

Call = Callable[[EchoStub], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was measured of one channel and one kind of call.

    Attributes:
        median_us: the median time of a call, in microseconds.
        quartiles_us: the quartiles of the same; the spread.
        ratio: the median over all rounds of this channel's time to plain grpc.aio's in the same round.
        interval: the bounds of the ratio, 95 % bootstrap.
    """

    call: str
    channel: str
    calls: int
    median_us: float
    quartiles_us: tuple[float, float]
    ratio: float
    interval: tuple[float, float]


async def unary(stub: EchoStub) -> None:
    """Make one unary call."""
    await stub.Unary(Message(text="ping"))


async def server_stream(stub: EchoStub) -> None:
    """Read one stream of answers to its end."""
    async for _ in stub.Down(Message(text="ping", count=STREAMED)):
        pass


CALLS = {"unary": unary, f"stream of {STREAMED}": server_stream}


async def measure(target: str, calls: int) -> list[Result]:
    """Return the results of all kinds of calls on all channels, `calls` of each."""
    own = (("grpc.use_local_subchannel_pool", 1),)  # a connection each, as ours has
    async with (
        grpc.aio.insecure_channel(target, own) as plain,
        aio.insecure_channel(target) as ours,
        grpc.aio.insecure_channel(target, own) as control,
    ):
        stubs = {PLAIN: EchoStub(plain), OURS: EchoStub(ours), CONTROL: EchoStub(control)}
        results = []
        for name, call in CALLS.items():
            for stub in stubs.values():
                await _block(stub, call)  # connects, and warms up
            times = await _take_turns(stubs, call, max(2, calls // BLOCK))
            results += [_result(name, channel, times) for channel in stubs]
        return results


async def _take_turns(stubs: dict[str, EchoStub], call: Call, rounds: int) -> dict[str, list[float]]:
    """Return the seconds that a call took on each channel in each round."""
    times: dict[str, list[float]] = {channel: [] for channel in stubs}
    rng = random.Random(rounds)
    for _ in range(rounds):
        for channel in rng.sample(list(stubs), k=len(stubs)):  # a fixed cycle of orders favours who follows itself
            times[channel].append(await _block(stubs[channel], call))
    return times


async def _block(stub: EchoStub, call: Call) -> float:
    begin = time.perf_counter()
    for _ in range(BLOCK):
        await call(stub)
    return (time.perf_counter() - begin) / BLOCK


def _result(call: str, channel: str, times: dict[str, list[float]]) -> Result:
    own, plain = times[channel], times[PLAIN]
    ratios = [one / other for one, other in zip(own, plain, strict=True)]
    low, _, high = statistics.quantiles(own, n=4)
    return Result(
        call=call,
        channel=channel,
        calls=len(own) * BLOCK,
        median_us=statistics.median(own) * 1e6,
        quartiles_us=(low * 1e6, high * 1e6),
        ratio=statistics.median(ratios),
        interval=_bootstrap(ratios),
    )


def _bootstrap(ratios: list[float]) -> tuple[float, float]:
    rng = random.Random(len(ratios))
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return medians[RESAMPLES * 25 // 1000], medians[RESAMPLES * 975 // 1000 - 1]


def _table(results: list[Result]) -> Table:
    table = Table(title="Cost of one call on a READY channel", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("call", "channel", "median µs", "spread", "ratio", "95 %"):
        table.add_column(column, justify="left" if column in ("call", "channel") else "right", no_wrap=True)
    for result in results:
        table.add_row(
            result.call,
            result.channel,
            f"{result.median_us:.0f}",
            "{:.0f}-{:.0f}".format(*result.quartiles_us),
            f"{result.ratio:.3f}",
            "{:.3f}-{:.3f}".format(*result.interval),
        )
    return table


@click.command()
@click.option("--calls", default=6000, show_default=True, help="Calls of each kind on each channel.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write the results here too.")
def main(calls: int, file: Path | None) -> None:
    """Compare the cost of a call on plain grpc.aio and on grpc_backoff.aio (CH-5: at most 2 % more)."""
    with echo_server() as target:
        results = asyncio.run(measure(target, calls))
    Console().print(_table(results))
    if file is not None:
        file.write_text(json.dumps([asdict(result) for result in results], indent=2) + "\n")


if __name__ == "__main__":
    main()
