"""Measures programs that create many channels: the connections at their server, and the channels' cost (SH-1 to SH-8).

Plain channels share subchannels, which is grpcio's default. Every subject has its own peer in a separate process. When
dials are counted, both subjects run at the same time. After a failed call, a worker waits about a tenth of a second
before it continues, as programs do. "Overlap" means that the program has an open channel at any time. "Closed first"
means that each channel is closed before the wait, so no open channel remembers the failure, and only SH-5 limits the
dials. A peer that sends SETTINGS and hangs up may be dialled once per INITIAL_BACKOFF (CB-7). Redials by grpc's core
that were reported to the program (`CoreRedial`) are counted in a separate row.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import grpc.aio

import grpc_backoff
from benchmarks.apart import Peer, at_once, in_child, serving
from benchmarks.benchmark import (
    CONTROL,
    OURS,
    PLAIN,
    THREADED,
    THREADED_CONTROL,
    THREADED_PLAIN,
    Benchmark,
    Effort,
    Goal,
    Measure,
    Of,
    Row,
)
from benchmarks.measure import by_itself, by_round, turns
from benchmarks.peers import Place, echoing, failing, hanging_up, hanging_up_with_tls, visited
from grpc_backoff import CoreRedial, aio
from grpc_backoff.engine.registry import MOST_REMEMBERED, SCHEDULES
from tests.echo import EchoStub, Message

__all__ = ["BENCHMARK"]

SUBJECTS = (PLAIN, OURS)
OWN, PLAIN_OWN = "grpc_backoff.aio, separate connections", "grpc.aio, separate connections"
SPEEDS = (PLAIN, OURS, OWN, CONTROL)
THREADED_SUBJECTS = (THREADED_PLAIN, THREADED, THREADED_CONTROL)
LOADED = (PLAIN, OURS, OWN, PLAIN_OWN, CONTROL)
PAUSE = 0.1
CHANNELS = 10

CONNECTIONS = Measure("connections", "")
OVERLAPPING_SHORT = Measure("dials in 8 s while channels overlap", "")
OVERLAPPING = Measure("dials in 10 s while channels overlap", "")
CLOSED_FIRST = Measure("dials in 10 s, each channel closed first", "")
HUNG_UP = Measure("dials in 10 s, the peer sends SETTINGS and hangs up", "")
REDIALS = Measure("redials by grpc's core, as reported", "")
SPEED = Measure("calls per second, one channel per call", "")
THROUGHPUT = Measure(f"calls per second on {CHANNELS} channels", "")
SHARED_THROUGHPUT = Measure(f"calls per second on one shared connection, compared with {CHANNELS} separate ones", "")
LEFT = Measure("schedules, managers, tasks, threads and descriptors left over", "")


@dataclass(frozen=True, slots=True)
class Size:
    """The durations and counts of all measurements.

    Attributes:
        short: the length, in seconds, of the outage in which a program recreates its channel.
        long: the length of the other outages, in seconds.
        workers: how many tasks or threads make calls concurrently.
        rounds: how many times speeds are measured; each round measures every subject once.
        calls: the number of calls per round.
        made: how many channels are created and closed.
        kinds: whether to measure without TLS, with TLS, or both.
        most: the maximum number of programs of each sort to measure.
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
    """Make all measurements."""
    size = SIZES[effort]
    yield from _connections(size)
    redials: list[Row] = []
    for tls in size.kinds:
        kind = "TLS" if tls else "insecure"
        for name, program, seconds, measure in (MADE_ANEW, *OVERLAP[: size.most], *NO_OVERLAP[: size.most]):
            seconds = size.short if seconds == "short" else size.long  # noqa: PLW2901 - a name until here
            yield from _dials(f"{kind}, {name}, {seconds:g} s", failing, program, seconds, size, measure, tls=tls)
        hangs_up = hanging_up_with_tls if tls else hanging_up
        for name, program in (("16 workers", in_tasks), ("16 threads", in_threads))[: size.most]:
            *dials, announced = _hung_up(f"{kind}, {name}, {size.long:g} s", hangs_up, program, size, tls=tls)
            redials.append(announced)
            yield from dials
    yield from redials
    yield from by_round("one at a time", SPEED, _rates(SPEEDS, one_by_one, size), PLAIN)
    threaded = _rates(THREADED_SUBJECTS, one_by_one_on_threads, size)
    yield from by_round("one at a time, threaded channels", SPEED, threaded, THREADED_PLAIN)
    yield from _throughput(size)
    yield from _left(size)


# How many connections several channels to one server use.


def _connections(size: Size) -> Iterator[Row]:
    for tls in size.kinds:
        counts = {}
        for subject in SUBJECTS:
            with serving(visited, tls) as peer:
                counts[subject] = [peer.ask(in_child(call_on_each, subject, peer.target))]
        yield from by_itself(f"{'TLS' if tls else 'insecure'}, {CHANNELS} channels", CONNECTIONS, counts, PLAIN)


def call_on_each(subject: str, place: Place) -> tuple[float, float]:
    """Make a call on each of several channels; return the times at which this began and ended."""

    async def work() -> None:
        channels = [_open(subject, place) for _ in range(CHANNELS)]
        await asyncio.gather(*(EchoStub(channel).Unary(Message(text="x")) for channel in channels))
        await asyncio.gather(*(channel.close() for channel in channels))

    return _timed(work)


# How often programs dial while their server is down.


def _dials(case, peer, program, seconds, size, measure, *, tls) -> list[Row]:
    with _two(peer, tls) as (peers, places):
        work = [(subject, place, seconds, size.workers) for subject, place in zip(SUBJECTS, places, strict=True)]
        spans = at_once(program, work)
        counts = {subject: [served.ask(span)] for subject, served, span in zip(SUBJECTS, peers, spans, strict=True)}
    return by_itself(case, measure, counts)


def _hung_up(case, peer, program, size, *, tls) -> list[Row]:
    with _two(peer, tls) as (peers, places):
        work = [
            (program, subject, place, size.long, size.workers) for subject, place in zip(SUBJECTS, places, strict=True)
        ]
        (span, _), (own_span, redials) = at_once(telling_of_redials, work)
        plain, ours = peers[0].ask(span), peers[1].ask(own_span)
    return [
        *by_itself(case, HUNG_UP, {PLAIN: [plain], OURS: [ours - redials]}),
        *by_itself(case, REDIALS, {OURS: [redials]}),
    ]


@contextlib.contextmanager
def _two(peer, tls) -> Iterator[tuple[list[Peer], list[Place]]]:
    """Run two peers of this kind, one for each subject; yield them and their addresses."""
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(serving(peer)) for _ in SUBJECTS]
        yield (
            peers,
            [
                served.target if isinstance(served.target, Place) else Place(served.target, b"" if tls else None)
                for served in peers
            ],
        )


def telling_of_redials(program: Callable[..., tuple[float, float]], *given: object) -> tuple[tuple[float, float], int]:
    """Run a program; return its result and the number of redials by grpc's core that were reported to it."""
    redials: set[tuple[str, float]] = set()  # channels that share a connection report the same redial

    def hear(event: object) -> None:
        if isinstance(event, CoreRedial):
            redials.add((event.attempt_id, event.at))

    _listeners.append(hear)
    return program(*given), len(redials)


_listeners: list[Callable[[object], None]] = []
"""The listeners of every channel that this process creates with this library."""


def made_anew(subject: str, place: Place, seconds: float, _workers: int) -> tuple[float, float]:
    """Make calls on one channel and replace the channel after each failure, as pymilvus does."""

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
    """Create a channel for each request, in several tasks of one event loop; close it after the pause."""

    async def work() -> None:
        end = time.monotonic() + seconds
        await asyncio.gather(*(_requests(subject, place, end, open_in_pause=True) for _ in range(workers)))

    return _timed(work)


def in_tasks_closed_first(subject: str, place: Place, seconds: float, workers: int) -> tuple[float, float]:
    """Create a channel for each request, in several tasks of one event loop; close it before the pause."""

    async def work() -> None:
        end = time.monotonic() + seconds
        await asyncio.gather(*(_requests(subject, place, end, open_in_pause=False) for _ in range(workers)))

    return _timed(work)


def one_worker(subject: str, place: Place, seconds: float, _workers: int) -> tuple[float, float]:
    """Create a channel for each request, in one task; close it before the pause."""
    return _timed(lambda: _requests(subject, place, time.monotonic() + seconds, open_in_pause=False))


def in_threads(subject: str, place: Place, seconds: float, workers: int) -> tuple[float, float]:
    """Create a channel for each request, in several threads that each run an event loop."""

    def work() -> None:
        asyncio.run(_requests(subject, place, time.monotonic() + seconds, open_in_pause=True))

    return _threaded(work, workers)


def in_runs(subject: str, place: Place, seconds: float, workers: int) -> tuple[float, float]:
    """Run a new event loop for each request, in several threads."""

    def work() -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            asyncio.run(_request(subject, place, end, open_in_pause=True))

    return _threaded(work, workers)


def one_in_runs(subject: str, place: Place, seconds: float, _workers: int) -> tuple[float, float]:
    """Run a new event loop for each request, one after another, with a pause after each."""
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        asyncio.run(_request(subject, place, begin + seconds, open_in_pause=False))
        time.sleep(_pause())
    return begin, time.monotonic()


MADE_ANEW = ("channel recreated", made_anew, "short", OVERLAPPING_SHORT)
OVERLAP = (
    ("16 workers", in_tasks, "long", OVERLAPPING),
    ("16 threads", in_threads, "long", OVERLAPPING),
    ("16 threads, asyncio.run for each request", in_runs, "long", OVERLAPPING),
)
NO_OVERLAP = (
    ("16 workers", in_tasks_closed_first, "long", CLOSED_FIRST),
    ("one worker", one_worker, "long", CLOSED_FIRST),
    ("one worker, asyncio.run for each request", one_in_runs, "long", CLOSED_FIRST),
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
    """Return a random pause in seconds. Equal pauses would leave all workers without a channel at the same time."""
    return random.uniform(0.5, 1.5) * PAUSE


def _open(subject: str, place: Place) -> grpc.aio.Channel:
    # Build the options again for each channel, like a program that recreates everything for each request.
    ours = subject in (OURS, OWN)
    make, how = (aio, {"listeners": _listeners}) if ours else (grpc.aio, {})
    options = [("grpc.use_local_subchannel_pool", 1)] if subject in (OWN, PLAIN_OWN) else []
    if place.root is None:
        return make.insecure_channel(place.target, options, **how)
    return make.secure_channel(place.target, grpc.ssl_channel_credentials(place.root or None), options, **how)


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Run the coroutine function; return the times at which it began and ended, on the machine's monotonic clock."""
    begin = time.monotonic()
    asyncio.run(work())  # type: ignore[arg-type]
    return begin, time.monotonic()


def _threaded(work: Callable[[], None], workers: int) -> tuple[float, float]:
    begin = time.monotonic()
    with ThreadPoolExecutor(workers) as pool:
        for future in [pool.submit(work) for _ in range(workers)]:
            future.result()
    return begin, time.monotonic()


# Speed with a healthy server.


def _throughput(size: Size) -> list[Row]:
    """Compare our shared connection with plain's shared one, and with one connection per channel."""
    many = replace(size, calls=10 * size.calls)  # a call on an open channel is fast
    rates, case = _rates(LOADED, side_by_side, many), f"{size.workers} calls at a time"
    beside = {OWN: rates[OWN], OURS: rates[OURS]}
    return [*by_round(case, THROUGHPUT, rates, PLAIN), *by_round(case, SHARED_THROUGHPUT, beside, OWN)]


def _rates(subjects: Sequence[str], program: Callable[..., float], size: Size) -> dict[str, list[float]]:
    rates: dict[str, list[float]] = {subject: [] for subject in subjects}
    with serving(echoing) as peer:
        for subject in turns(subjects, size.rounds):
            rates[subject].append(in_child(program, subject, Place(peer.target), size.calls, size.workers))
    return rates


def one_by_one(subject: str, place: Place, calls: int, _workers: int) -> float:
    """Return the calls per second of a program that creates a channel for each call."""

    async def work() -> float:
        begin = 0.0
        for number in range(-20, calls):  # the first ones warm up
            if number == 0:
                begin = time.perf_counter()
            async with _open(subject, place) as channel:
                await EchoStub(channel).Unary(Message(text="x"))
        return calls / (time.perf_counter() - begin)

    return asyncio.run(work())


def one_by_one_on_threads(subject: str, place: Place, calls: int, _workers: int) -> float:
    """Return the calls per second of a program that creates a threaded channel for each call."""
    make, begin = grpc_backoff if subject == THREADED else grpc, 0.0
    for number in range(-20, calls):  # the first ones warm up
        if number == 0:
            begin = time.perf_counter()
        with make.insecure_channel(place.target) as channel:
            EchoStub(channel).Unary(Message(text="x"))
    return calls / (time.perf_counter() - begin)


def side_by_side(subject: str, place: Place, calls: int, workers: int) -> float:
    """Return the calls per second over several channels together."""

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


# What is left after many channels.


def _left(size: Size) -> list[Row]:
    with serving(echoing) as peer:
        left = in_child(make_and_close, size.made, peer.target)
    return by_itself(f"{size.made:,} channels, created, used and closed", LEFT, {OURS: [left]})


def make_and_close(channels: int, alive: str) -> int:
    """Create channels with different keys, make a call on each and close it; return how many objects are left over.

    Of every ten calls, one is answered and one fails; the others are still in progress when their channel is closed.
    """

    async def use(number: int) -> None:
        target = alive if number % 10 == 1 else f"127.{1 + (number >> 16)}.{number >> 8 & 255}.{number & 255}:9"
        async with aio.insecure_channel(target, [("key", number)]) as channel:
            call = EchoStub(channel).Unary(Message(text="x"))
            if number % 10 in (0, 1):
                await call.code()

    async def work() -> int:
        for number in range(2):
            await use(number)
        await asyncio.sleep(0.1)
        threads, files = threading.active_count(), _descriptors()
        for number in range(channels):
            await use(number)
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
    beside=(PLAIN, OWN, PLAIN_OWN, THREADED_PLAIN),
    goals=(
        Goal(subject=OURS, measure=CONNECTIONS, most=1.0),
        Goal(subject=OURS, measure=OVERLAPPING_SHORT, of=Of.VALUE, most=5),
        Goal(subject=OURS, measure=OVERLAPPING, of=Of.VALUE, most=6),
        Goal(subject=OURS, measure=CLOSED_FIRST, of=Of.VALUE, most=11),
        Goal(subject=OURS, measure=HUNG_UP, of=Of.VALUE, most=11),
        Goal(subject=OURS, measure=LEFT, of=Of.VALUE, most=0),
        Goal(subject=OURS, measure=SPEED, least=1.0),
        Goal(subject=THREADED, measure=SPEED, least=0.5),
        Goal(subject=OURS, measure=THROUGHPUT, least=0.98),
    ),
    run=run,
)
