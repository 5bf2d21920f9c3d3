"""What a server sees of a program that makes many channels, and what those cost (SH-1 to SH-8).

Plain channels are made as programs make them, with grpcio's shared subchannels. Every subject has its own peer, each
in a process of its own; where dials are counted, both run at the same time. A worker that got no answer waits for about
a tenth of a second before it goes on, as programs do. "Overlap" is a program of which some channel is open at any time;
"closed first" is one that closes each channel before it waits, so that nothing but SH-5 remembers the failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio

from benchmarks.apart import at_once, in_child, serving
from benchmarks.benchmark import CONTROL, OURS, PLAIN, Benchmark, Effort, Goal, Measure, Of, Row
from benchmarks.measure import by_itself, by_round, turns
from benchmarks.peers import Place, echoing, failing, hanging_up, hanging_up_with_tls, visited
from grpc_backoff import aio
from grpc_backoff.sharing.registry import MOST_REMEMBERED, SCHEDULES
from tests.echo import EchoStub, Message

__all__ = ["BENCHMARK"]

SUBJECTS = (PLAIN, OURS)
OWN = "grpc_backoff.aio, connections of their own"
SPEEDS = (PLAIN, OURS, OWN, CONTROL)
PAUSE = 0.1
CHANNELS = 10

CONNECTIONS = Measure("connections", "")
OVERLAPPING = Measure("dials while channels overlap", "")
CLOSED_FIRST = Measure("dials, each channel closed first", "")
SPEED = Measure("calls a second", "")
LEFT = Measure("schedules, managers, tasks, threads or descriptors more than allowed", "")


@dataclass(frozen=True, slots=True)
class Size:
    """How long, and how many of each.

    Attributes:
        short: the seconds of an outage in which a program makes its channel anew.
        long: the seconds of the other outages.
        workers: how many tasks or threads call at a time.
        rounds: how often speeds are measured, each subject once in every round.
        calls: how many calls a round has.
        made: how many channels are made and closed.
        kinds: with TLS or without.
        most: how many programs of each sort.
    """

    short: float
    long: float
    workers: int
    rounds: int
    calls: int
    made: int
    kinds: tuple[bool, ...] = (False, True)
    most: int = 4


SIZES = {
    Effort.FULL: Size(8.0, 10.0, 16, 5, 500, 100_000),
    Effort.QUICK: Size(1.5, 1.5, 16, 3, 50, 500),
    Effort.TINY: Size(0.2, 0.2, 2, 1, 10, 20, (False,), 1),
}


def run(effort: Effort) -> Iterator[Row]:
    """Measure everything."""
    size = SIZES[effort]
    yield from _connections(size)
    for tls in size.kinds:
        kind = "TLS" if tls else "insecure"
        for name, program, seconds, measure in (*OVERLAP[: size.most], *NO_OVERLAP[: size.most]):
            seconds = size.short if seconds == "short" else size.long  # noqa: PLW2901 - by its name until here
            yield from _dials(f"{kind}, {name}, {seconds:g} s", failing, program, seconds, size, measure, tls=tls)
        hangs_up = hanging_up_with_tls if tls else hanging_up
        for name, program in (("16 workers", in_tasks), ("16 threads", in_threads))[: size.most]:
            case = f"{kind}, SETTINGS and hang up, {name}, {size.long:g} s"
            yield from _dials(case, hangs_up, program, size.long, size, CLOSED_FIRST, tls=tls)
    yield from _speed("a channel for each request", one_by_one, size)
    yield from _speed(f"{CHANNELS} channels, {size.workers} calls at a time", side_by_side, size)
    yield from _left(size)


# Connections of several channels.


def _connections(size: Size) -> Iterator[Row]:
    for tls in size.kinds:
        counts = {}
        for subject in SUBJECTS:
            with serving(visited, tls) as peer:
                counts[subject] = [peer.ask(in_child(call_on_each, subject, peer.target))]
        yield from by_itself(f"{'TLS' if tls else 'insecure'}, {CHANNELS} channels", CONNECTIONS, counts)


def call_on_each(subject: str, place: Place) -> tuple[float, float]:
    """Make a call on each of several channels; return from when to when."""

    async def work() -> None:
        channels = [_open(subject, place) for _ in range(CHANNELS)]
        await asyncio.gather(*(EchoStub(channel).Unary(Message(text="x")) for channel in channels))
        await asyncio.gather(*(channel.close() for channel in channels))

    return _timed(work)


# Dials of programs whose server is down.


def _dials(case, peer, program, seconds, size, measure, *, tls) -> list[Row]:
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(serving(peer)) for _ in SUBJECTS]
        places = [
            served.target if isinstance(served.target, Place) else Place(served.target, b"" if tls else None)
            for served in peers
        ]
        work = [(subject, place, seconds, size.workers) for subject, place in zip(SUBJECTS, places, strict=True)]
        spans = at_once(program, work)
        counts = {subject: [served.ask(span)] for subject, served, span in zip(SUBJECTS, peers, spans, strict=True)}
    return by_itself(case, measure, counts)


def made_anew(subject: str, place: Place, seconds: float, _workers: int) -> tuple[float, float]:
    """Call, and make the channel anew at each failure, as pymilvus does."""

    async def work() -> None:
        end, channel = time.monotonic() + seconds, _open(subject, place)
        while time.monotonic() < end:
            if not await _asked(channel, end):
                old, channel = channel, _open(subject, place)
                channel.get_state(try_to_connect=True)
                await old.close()
            await asyncio.sleep(_pause())
        await channel.close()

    return _timed(work)


def in_tasks(subject: str, place: Place, seconds: float, workers: int) -> tuple[float, float]:
    """Make a channel for each request, in several tasks of one event loop."""

    async def work() -> None:
        end = time.monotonic() + seconds
        await asyncio.gather(*(_requests(subject, place, end, open_in_pause=True) for _ in range(workers)))

    return _timed(work)


def in_tasks_closed_first(subject: str, place: Place, seconds: float, workers: int) -> tuple[float, float]:
    """Do the same, and wait without a channel."""

    async def work() -> None:
        end = time.monotonic() + seconds
        await asyncio.gather(*(_requests(subject, place, end, open_in_pause=False) for _ in range(workers)))

    return _timed(work)


def one_worker(subject: str, place: Place, seconds: float, _workers: int) -> tuple[float, float]:
    """Make a channel for each request, each closed before the next."""
    return _timed(lambda: _requests(subject, place, time.monotonic() + seconds, open_in_pause=False))


def in_threads(subject: str, place: Place, seconds: float, workers: int) -> tuple[float, float]:
    """Make a channel for each request, in several threads with an event loop each."""

    def work() -> None:
        asyncio.run(_requests(subject, place, time.monotonic() + seconds, open_in_pause=True))

    return _threaded(work, workers)


def in_runs(subject: str, place: Place, seconds: float, workers: int) -> tuple[float, float]:
    """Make an event loop for each request, in several threads."""

    def work() -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            asyncio.run(_request(subject, place, end, open_in_pause=True))

    return _threaded(work, workers)


def one_in_runs(subject: str, place: Place, seconds: float, _workers: int) -> tuple[float, float]:
    """Make an event loop for each request, one after the other, and wait between two of them."""
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        asyncio.run(_request(subject, place, begin + seconds, open_in_pause=False))
        time.sleep(_pause())
    return begin, time.monotonic()


OVERLAP = (
    ("channel made anew", made_anew, "short", OVERLAPPING),
    ("16 workers", in_tasks, "long", OVERLAPPING),
    ("16 threads", in_threads, "long", OVERLAPPING),
    ("16 threads, asyncio.run for each", in_runs, "long", OVERLAPPING),
)
NO_OVERLAP = (
    ("16 workers", in_tasks_closed_first, "long", CLOSED_FIRST),
    ("one worker", one_worker, "long", CLOSED_FIRST),
    ("one worker, asyncio.run for each", one_in_runs, "long", CLOSED_FIRST),
)


async def _requests(subject: str, place: Place, end: float, *, open_in_pause: bool) -> None:
    while time.monotonic() < end:
        await _request(subject, place, end, open_in_pause=open_in_pause)
        if not open_in_pause:
            await asyncio.sleep(_pause())


async def _request(subject: str, place: Place, end: float, *, open_in_pause: bool) -> None:
    channel = _open(subject, place)
    try:
        if not await _asked(channel, end) and open_in_pause:
            await asyncio.sleep(_pause())
    finally:
        await channel.close()


async def _asked(channel: grpc.aio.Channel, end: float) -> bool:
    """Make a call; return whether it was answered."""
    with contextlib.suppress(grpc.aio.AioRpcError):
        await EchoStub(channel).Unary(Message(text="x"), timeout=max(0.01, end - time.monotonic()))
        return True
    return False


def _pause() -> float:
    """Return for how long to wait: workers that did so for the same time would all be without a channel at once."""
    return random.uniform(0.5, 1.5) * PAUSE


def _open(subject: str, place: Place) -> grpc.aio.Channel:
    # As a program has it that makes all anew for each request.
    make = aio if subject not in (PLAIN, CONTROL) else grpc.aio
    options = [("grpc.use_local_subchannel_pool", 1)] if subject == OWN else []
    if place.root is None:
        return make.insecure_channel(place.target, options)
    return make.secure_channel(place.target, grpc.ssl_channel_credentials(place.root or None), options)


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Run it; return from when to when, on the machine's monotonic clock."""
    begin = time.monotonic()
    asyncio.run(work())  # type: ignore[arg-type]
    return begin, time.monotonic()


def _threaded(work: Callable[[], None], workers: int) -> tuple[float, float]:
    begin = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(work) for _ in range(workers)]:
            future.result()
    return begin, time.monotonic()


# Healthy servers.


def _speed(case: str, program: Callable[..., float], size: Size) -> list[Row]:
    samples: dict[str, list[float]] = {subject: [] for subject in SPEEDS}
    with serving(echoing) as peer:
        for subject in turns(SPEEDS, size.rounds):
            samples[subject].append(in_child(program, subject, Place(peer.target), size.calls, size.workers))
    return by_round(case, SPEED, samples, PLAIN)


def one_by_one(subject: str, place: Place, calls: int, _workers: int) -> float:
    """Return how many calls a second a program makes that makes a channel for each."""

    async def work() -> float:
        begin = 0.0
        for number in range(-20, calls):  # the first ones warm up
            if number == 0:
                begin = time.perf_counter()
            async with _open(subject, place) as channel:
                await EchoStub(channel).Unary(Message(text="x"))
        return calls / (time.perf_counter() - begin)

    return asyncio.run(work())


def side_by_side(subject: str, place: Place, calls: int, workers: int) -> float:
    """Return how many calls a second several channels have together."""

    async def work() -> float:
        channels = [_open(subject, place) for _ in range(CHANNELS)]
        stubs = [EchoStub(channel) for channel in channels]
        await asyncio.gather(*(stub.Unary(Message(text="x")) for stub in stubs))

        async def call(worker: int) -> None:
            for turn in range(calls // workers + 1):
                await stubs[(worker + turn) % CHANNELS].Unary(Message(text="x"))

        begin = time.perf_counter()
        await asyncio.gather(*(call(worker) for worker in range(workers)))
        took = time.perf_counter() - begin
        await asyncio.gather(*(channel.close() for channel in channels))
        return (calls // workers + 1) * workers / took

    return asyncio.run(work())


# What is left of many channels.


def _left(size: Size) -> list[Row]:
    left = in_child(make_and_close, size.made)
    return by_itself(f"{size.made:,} channels, made, used and closed", LEFT, {OURS: [left]})


def make_and_close(channels: int) -> int:
    """Make channels to as many targets, want a connection of each and close it; return what is left of them."""

    async def work() -> int:
        async with aio.insecure_channel("127.0.0.1:9") as first:
            first.get_state(try_to_connect=True)
        await asyncio.sleep(0.1)
        threads, files = threading.active_count(), _descriptors()
        for number in range(channels):
            target = f"127.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}:9"
            channel = aio.insecure_channel(target)
            channel.get_state(try_to_connect=True)
            if number % 10 == 0:  # until it has failed, so that there is something to remember
                await channel.wait_for_state_change(grpc.ChannelConnectivity.CONNECTING)
            await channel.close()
        del first, channel  # else two managers would be left
        await asyncio.sleep(0.5)
        gc.collect()
        managers = sum(type(one).__name__ == "ConnectionManager" for one in gc.get_objects())
        tasks = len(asyncio.all_tasks()) - 1
        over = max(0, len(SCHEDULES) - MOST_REMEMBERED)
        more = max(0, threading.active_count() - threads), max(0, _descriptors() - files)
        return over + managers + tasks + sum(more)

    return asyncio.run(work())


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


BENCHMARK = Benchmark(
    name="sharing",
    says="programs that make many channels",
    beside=(PLAIN, OWN),
    goals=(
        Goal(subject=OURS, measure=OVERLAPPING, of=Of.VALUE, most=6),
        Goal(subject=OURS, measure=CLOSED_FIRST, of=Of.VALUE, most=11),
        Goal(subject=OURS, measure=LEFT, of=Of.VALUE, most=0),
        Goal(subject=OURS, measure=SPEED, least=1.0),
    ),
    run=run,
)
