"""How often a peer is dialled that sends SETTINGS and hangs up, like a proxy whose upstream is down (CB-7).

The workers do what many programs do: call, and on a failure call again. All channels have their defaults, so ours may
dial once per second. Each subject has its own peer, in its own process, so that counting does not slow down a flood;
and the subjects run one at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import grpc.aio
from grpclib.client import Channel as GrpclibChannel
from grpclib.exceptions import GRPCError, StreamTerminatedError

from benchmarks.apart import in_child, serving
from benchmarks.benchmark import OURS, PLAIN, Benchmark, Effort, Goal, Measure, Of, Row
from benchmarks.channels import GRPCLIB, grpclib_method, open_channel
from benchmarks.measure import by_itself
from benchmarks.peers import hanging_up
from tests.echo import EchoStub, Message

__all__ = ["BENCHMARK"]

SUBJECTS = (PLAIN, OURS, GRPCLIB)
CONNECTIONS = Measure("connections", "")
CALL_FAILED = (grpc.aio.AioRpcError, GRPCError, StreamTerminatedError, OSError)

Call = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Size:
    """The number of workers, and the duration."""

    workers: int
    seconds: float


SIZES = {Effort.FULL: Size(16, 10.0), Effort.QUICK: Size(16, 2.0), Effort.TINY: Size(2, 0.2)}


def run(effort: Effort) -> list[Row]:
    """Count for each subject what its peer accepted."""
    size = SIZES[effort]
    counts = {}
    for subject in SUBJECTS:
        with serving(hanging_up) as peer:
            span = in_child(keep_calling, subject, peer.target, size)
            counts[subject] = [peer.ask(span)]
    return by_itself(f"{size.workers} workers, {size.seconds:g} s", CONNECTIONS, counts)


def keep_calling(subject: str, target: str, size: Size) -> tuple[float, float]:
    """Let the workers call; return start and end, on the machine's monotonic clock."""
    return asyncio.run(_keep_calling(subject, target, size))


async def _keep_calling(subject: str, target: str, size: Size) -> tuple[float, float]:
    loop = asyncio.get_running_loop()
    async with _calling(subject, target) as call:
        begin = loop.time()
        end = begin + size.seconds
        workers = [asyncio.ensure_future(_work(call, end)) for _ in range(size.workers)]
        await asyncio.wait(workers, timeout=size.seconds)
        for worker in workers:
            worker.cancel()  # its call may be waiting for a backoff
        for outcome in await asyncio.gather(*workers, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        return begin, end


@contextlib.asynccontextmanager
async def _calling(subject: str, target: str) -> AsyncIterator[Call]:
    if subject == GRPCLIB:
        host, _, port = target.rpartition(":")
        async with GrpclibChannel(host, int(port)) as channel:
            method = grpclib_method(channel)
            yield lambda: method(Message(text="ping"))
    else:
        async with open_channel(subject, target) as channel:
            stub = EchoStub(channel)
            yield lambda: stub.Unary(Message(text="ping"))


async def _work(call: Call, end: float) -> None:
    """Call repeatedly until this moment. Cancelling is not enough: grpclib's calls can turn it into an error."""
    loop = asyncio.get_running_loop()
    while loop.time() < end:
        with contextlib.suppress(*CALL_FAILED):
            await call()


BENCHMARK = Benchmark(
    name="hang-up",
    says="connections to a peer that sends SETTINGS and closes",
    beside=(PLAIN, GRPCLIB),
    goals=(Goal(subject=OURS, measure=CONNECTIONS, of=Of.VALUE, most=11),),
    run=run,
)
