"""Measures the time from a peer's return to the first answer, for outages of several lengths.

Time is compressed tenfold, because grpcio does not allow a backoff under 100 ms. The backoff grows from 100 ms to 12 s
instead of from 1 s to 120 s, and outages are shortened accordingly. The figures are milliseconds of this compressed
time.

Each trial has one peer. The peer serves, then breaks its connections and hangs up on every client, then serves again.
Every peer does so at a different time, so that trials do not interfere with each other. The outage is up to a fifth
shorter or longer than the case says; with outages of exactly one length, the figures would only show how that length
happens to fit the gaps of the schedule. All subjects are clients of the peer at the same time:

* ours and plain grpc.aio, with the same options, make one wait-for-ready call;
* "ours, reset" also resets its backoff when the peer's process announces the return over another connection;
* two programs call again after each failure, with the same backoff: one creates a new channel for each attempt, and one
  uses a grpclib channel, which dials for each call and has no backoff.

Threaded channels are measured in separate trials, because the threaded and the asyncio subjects would otherwise compete
for the CPU. In these trials, both plain grpc and ours make their wait-for-ready calls with `.future(...)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat

import grpc.aio
from grpclib.client import Channel as GrpclibChannel
from grpclib.exceptions import GRPCError, StreamTerminatedError

from benchmarks.apart import Peer, in_child, serving
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
from benchmarks.channels import GRPCLIB, grpclib_method, open_channel, open_threaded
from benchmarks.measure import by_itself
from benchmarks.peers import Outage, going_away
from grpc_backoff.policy.presets import CONNECT
from tests.echo import EchoStub, Message

__all__ = ["BENCHMARK"]

TOLD, THREADED_TOLD, FRESH = f"{OURS}, reset", f"{THREADED}, reset", "fresh channels"
SUBJECTS = (PLAIN, OURS, CONTROL, TOLD, FRESH, GRPCLIB)
THREADED_SUBJECTS = (THREADED_PLAIN, THREADED, THREADED_CONTROL, THREADED_TOLD)
COMPRESSED = 10
LENGTHS = (0.8, 1.2)
GRPC = CONNECT.backoff
BACKOFF = replace(
    GRPC, strategy=replace(GRPC.strategy, base=CONNECT.initial_backoff / COMPRESSED), cap=GRPC.cap / COMPRESSED
)
OPTIONS = tuple(
    (f"grpc.{which}_reconnect_backoff_ms", round(seconds / COMPRESSED * 1000))
    for which, seconds in (
        ("initial", CONNECT.initial_backoff),
        ("max", GRPC.cap),
        ("min", CONNECT.min_connect_timeout),
    )
)
CALLED_AFTER = 0.01  # seconds after the break, when the client has noticed it
SETTLES_IN = 0.5
ANSWERED_WITHIN = 30.0

TIME = Measure("peer's return to first answer", "ms")
TIME_TOLD = Measure("peer's return to first answer", "ms", quantile=0.99)
CALL_FAILED = (grpc.RpcError, GRPCError, StreamTerminatedError, OSError)


@dataclass(frozen=True, slots=True)
class Client:
    """A subject as a client in one trial.

    Attributes:
        call: makes a call; a call made during the outage may wait until the outage ends.
        pauses: the seconds to wait after each failure before the next call.
        tell: tells the client that the peer is back; None if the client does not use that information.
    """

    call: Callable[[], Awaitable[object]]
    pauses: Iterator[float]
    tell: Callable[[object], object] | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """The number of trials, and the outages that they go through.

    One CPU can make about a thousand attempts per second. It must be idle most of the time, or else the figures would
    show the effect of the load instead of the effect of the schedule. The longest outage needs little time for its
    starts, because its random length already spreads the peers' returns.

    Attributes:
        trials: the number of trials for each outage.
        outages: for each outage, its uncompressed length and the real time over which its trials start, in seconds.
    """

    trials: int
    outages: Mapping[float, float]


SIZES = {
    Effort.FULL: Size(200, {1.0: 10.0, 5.0: 16.0, 30.0: 24.0, 300.0: 6.0}),
    Effort.QUICK: Size(10, {1.0: 0.5, 5.0: 0.5}),
    Effort.TINY: Size(2, {1.0: 0.1}),
}


def run(effort: Effort) -> list[Row]:
    """Measure the outages one length after another, each in its own process."""
    size = SIZES[effort]
    rows = []
    for seconds, spread in size.outages.items():
        case = f"outage of {seconds:g} s, compressed"
        for subjects, plain, reset in ((SUBJECTS, PLAIN, TOLD), (THREADED_SUBJECTS, THREADED_PLAIN, THREADED_TOLD)):
            taken = in_child(measure, subjects, size.trials, seconds / COMPRESSED, spread)
            told = {reset: taken.pop(reset)}
            rows += by_itself(case, TIME, taken, plain) + by_itself(case, TIME_TOLD, told)
    return rows


def measure(subjects: Sequence[str], trials: int, seconds: float, spread: float) -> dict[str, list[float]]:
    """Return the milliseconds from the peer's return to each subject's first answer, one sample per trial."""
    with serving(going_away, trials) as peer:
        return asyncio.run(_measure(peer, subjects, seconds, spread))


async def _measure(peer: Peer, subjects: Sequence[str], seconds: float, spread: float) -> dict[str, list[float]]:
    targets = peer.target.targets
    rng = random.Random(len(targets))
    returned = [asyncio.get_running_loop().create_future() for _ in targets]
    async with contextlib.AsyncExitStack() as stack:
        clients = {
            subject: [await stack.enter_async_context(_client(subject, target)) for target in targets]
            for subject in subjects
        }
        begin = time.monotonic() + SETTLES_IN
        outages = [Outage(begin + spread * rng.random(), seconds * rng.uniform(*LENGTHS)) for _ in targets]
        within = SETTLES_IN + spread + 2 * seconds + ANSWERED_WITHIN
        async with asyncio.timeout(within), asyncio.TaskGroup() as group:
            group.create_task(_hear(peer.target.news, returned))
            peer.ask(outages)
            trials = {
                subject: [
                    group.create_task(_trial(*each)) for each in zip(clients[subject], outages, returned, strict=True)
                ]
                for subject in subjects
            }
    return {subject: [trial.result() for trial in tasks] for subject, tasks in trials.items()}


async def _hear(port: int, returned: Sequence[asyncio.Future[float]]) -> None:
    """Receive the announcements of returning peers and resolve the matching futures."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in returned:
        place, at = (await reader.readline()).split()
        returned[int(place)].set_result(float(at))
    writer.close()


async def _trial(client: Client, outage: Outage, returned: asyncio.Future[float]) -> float:
    """Call through the outage; return the milliseconds from the peer's return to the first answer."""
    loop = asyncio.get_running_loop()
    if client.tell is not None:
        returned.add_done_callback(client.tell)
    await asyncio.sleep(outage.begin + CALLED_AFTER - loop.time())
    for pause in client.pauses:
        try:
            await client.call()
        except CALL_FAILED:
            await asyncio.sleep(pause)
        else:
            if returned.done() or loop.time() > outage.begin + outage.seconds:
                break  # otherwise the answer came over the connection that was about to break
    return (loop.time() - await returned) * 1e3


@contextlib.asynccontextmanager
async def _client(subject: str, target: str) -> AsyncIterator[Client]:
    """Yield a client. It is already connected, unless it makes a connection for each call."""
    request = Message(text="ping")
    if subject == FRESH:

        async def call() -> None:
            async with open_channel(PLAIN, target, OPTIONS) as channel:
                await EchoStub(channel).Unary(request)

        yield Client(call, BACKOFF.delays(random.Random()))
    elif subject == GRPCLIB:
        host, _, port = target.rpartition(":")
        async with GrpclibChannel(host, int(port)) as channel:
            method = grpclib_method(channel)
            await method(request)
            yield Client(lambda: method(request), BACKOFF.delays(random.Random()))
    elif subject in THREADED_SUBJECTS:
        with open_threaded(THREADED if subject == THREADED_TOLD else subject, target, OPTIONS) as threaded:
            method = EchoStub(threaded).Unary
            await _future(method, request)
            tell = (lambda _: threaded.reset_connect_backoff()) if subject == THREADED_TOLD else None
            yield Client(lambda: _future(method, request), repeat(0.0), tell)
    else:
        async with open_channel(OURS if subject == TOLD else subject, target, OPTIONS) as channel:
            stub = EchoStub(channel)
            await stub.Unary(request, wait_for_ready=True)
            tell = (lambda _: channel.reset_connect_backoff()) if subject == TOLD else None
            yield Client(lambda: stub.Unary(request, wait_for_ready=True), repeat(0.0), tell)


def _future(method: grpc.UnaryUnaryMultiCallable, request: Message) -> asyncio.Future[None]:
    """Make a call with `.future(...)`; return an asyncio future that gets the same outcome."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def tell(error: BaseException | None) -> None:
        if ended.done():
            return
        if error is None:
            ended.set_result(None)
        else:
            ended.set_exception(error)

    call = method.future(request, wait_for_ready=True)
    call.add_done_callback(lambda call: loop.call_soon_threadsafe(tell, call.exception()))
    return ended


BENCHMARK = Benchmark(
    name="recovery",
    says="time from the peer's return to the first answer",
    beside=(PLAIN, FRESH, GRPCLIB, THREADED_PLAIN),
    goals=(
        *(Goal(subject=subject, measure=TIME, most=1.0) for subject in (OURS, THREADED)),
        *(Goal(subject=subject, measure=TIME_TOLD, of=Of.VALUE, most=20) for subject in (TOLD, THREADED_TOLD)),
    ),
    run=run,
)
