"""Measures the cost of retries, for calls that succeed, calls that fail twice, and calls that receive a pushback.

Every subject makes the same call on its own channel to the same server, one at a time. The subjects are plain grpc.aio
(twice), ours with and without `retry`, grpc.aio with a `retryPolicy` in its service config, which the core executes,
and three retry libraries, each wrapped around a plain grpc.aio call as its documentation shows.

Subjects that retry make up to five attempts and wait 5 ms between them. A wait of 1 ms cannot be used, because some
calls that grpcio 1.85.1's core retries after 1 ms never end. The core varies its wait by a fifth. google-api-core draws
its wait between 0 and its delay, so its delay is 10 ms. stamina's log line for each retry is turned off.

The last case shows which subjects obey a server's pushback (`grpc-retry-pushback-ms`, gRFC A6): the server fails the
first attempt and asks for 50 ms. The core and ours obey. tenacity and stamina retry on their own schedule unless the
user writes code for the pushback. The goal for failing calls is therefore the core's time.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import count

import grpc
import grpc.aio
import stamina
import stamina.instrumentation
import tenacity
from google.api_core.retry_async import AsyncRetry

from benchmarks.apart import in_child, serving
from benchmarks.benchmark import CONTROL, OURS, PLAIN, Benchmark, Effort, Goal, Measure, Of, Row
from benchmarks.channels import OWN_SUBCHANNELS, open_channel
from benchmarks.measure import by_itself, by_round, turns
from benchmarks.peers import failing_calls
from grpc_backoff import aio
from tests.echo import EchoStub, Message

__all__ = ["BENCHMARK"]

RETRYING, CORE, CORE_AGAIN = f"{OURS}, retry", "grpc.aio, retryPolicy", "grpc.aio, retryPolicy, again"
TENACITY, STAMINA, GOOGLE = "tenacity", "stamina", "google-api-core"
RETRIERS = (CORE, RETRYING, TENACITY, STAMINA, GOOGLE, CORE_AGAIN)
SUBJECTS = (PLAIN, OURS, CONTROL, *RETRIERS)

TRIES, DELAY = 5, 0.005
WORDS = f"retry: {TRIES - 1}, delay: {DELAY * 1000:g}ms"
RETRY_POLICY = {
    "maxAttempts": TRIES,
    "initialBackoff": f"{DELAY}s",
    "maxBackoff": f"{DELAY}s",
    "backoffMultiplier": 1,
    "retryableStatusCodes": ["UNAVAILABLE"],
}
SERVICE_CONFIG = {"methodConfig": [{"name": [{}], "retryPolicy": RETRY_POLICY}]}
FAILURES = 2
PUSHBACK = 50  # milliseconds
SUCCEEDING, FAILING = 20, 4  # calls in a turn
TIMEOUT = 10.0  # seconds; far more than any call takes
NUMBERS = count()
"""Numbers the calls. Each call's text is unique, so the server recognizes all attempts of one call by their text."""

TIME = Measure("time of a call", "µs")
TIME_FAILING = Measure("time of a call that fails twice", "µs")
CPU_FAILING = Measure("CPU of a call that fails twice", "µs")
TIME_TOLD = Measure(f"time of a call with a pushback of {PUSHBACK} ms", "ms")

Call = Callable[[Message], Awaitable[object]]
Samples = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Size:
    """The rounds of calls that succeed, of calls that fail at first, and of calls that receive a pushback."""

    succeeding: int
    failing: int
    told: int


SIZES = {Effort.FULL: Size(250, 100, 10), Effort.QUICK: Size(15, 5, 3), Effort.TINY: Size(2, 2, 2)}


def run(effort: Effort) -> list[Row]:
    """Measure all three cases in one process."""
    with serving(failing_calls, PUSHBACK) as peer:
        taken = in_child(measure, peer.target, SIZES[effort])
    return [
        *by_round("the first attempt succeeds", TIME, taken[TIME], PLAIN),
        *by_round("the third attempt succeeds", TIME_FAILING, taken[TIME_FAILING], CORE),
        *by_round("the third attempt succeeds", CPU_FAILING, taken[CPU_FAILING], CORE),
        *by_itself("the server sends a pushback", TIME_TOLD, taken[TIME_TOLD]),
    ]


def measure(target: str, size: Size) -> dict[Measure, Samples]:
    """Return the cost of a call for each subject, one sample per measurement."""
    stamina.instrumentation.set_on_retry_hooks(())
    return asyncio.run(_measure(target, size))


async def _measure(target: str, size: Size) -> dict[Measure, Samples]:
    taken: dict[Measure, Samples] = {TIME: _empty(SUBJECTS)}
    taken |= {what: _empty(RETRIERS) for what in (TIME_FAILING, CPU_FAILING, TIME_TOLD)}
    async with contextlib.AsyncExitStack() as stack:
        calls = {}
        for subject in SUBJECTS:
            channel = await stack.enter_async_context(_open(subject, target))
            calls[subject] = _retried(subject, channel)
            await calls[subject](Message())  # connects
        for subject in turns(SUBJECTS, size.succeeding):
            seconds, _ = await _turn(calls[subject], SUCCEEDING)
            taken[TIME][subject].append(seconds * 1e6)
        for subject in turns(RETRIERS, size.failing):
            seconds, cpu = await _turn(calls[subject], FAILING, failures=FAILURES)
            taken[TIME_FAILING][subject].append(seconds * 1e6)
            taken[CPU_FAILING][subject].append(cpu * 1e6)
        for subject in turns(RETRIERS, size.told):
            seconds, _ = await _turn(calls[subject], 1, failures=1, told=True)
            taken[TIME_TOLD][subject].append(seconds * 1e3)
    return taken


def _empty(subjects: Sequence[str]) -> Samples:
    return {subject: [] for subject in subjects}


async def _turn(call: Call, calls: int, *, failures: int = 0, told: bool = False) -> tuple[float, float]:
    """Make the calls of one measurement; return the duration of a call and its CPU time, in seconds."""
    requests = [Message(text=f"{'told' if told else 'call'} {next(NUMBERS)}", count=failures) for _ in range(calls)]
    begin, cpu = time.perf_counter(), time.process_time()
    for request in requests:
        await call(request)
    return (time.perf_counter() - begin) / calls, (time.process_time() - cpu) / calls


def _open(subject: str, target: str) -> grpc.aio.Channel:
    if subject == RETRYING:
        return aio.insecure_channel(target, [OWN_SUBCHANNELS], retry=WORDS)
    if subject in (CORE, CORE_AGAIN):
        return open_channel(PLAIN, target, (("grpc.service_config", json.dumps(SERVICE_CONFIG)),))
    return open_channel(subject, target)


def _retried(subject: str, channel: grpc.aio.Channel) -> Call:
    """Return the unary method wrapped in the subject's retries, unless its channel retries by itself."""
    method = EchoStub(channel).Unary

    async def call(request: Message) -> Message:
        return await method(request, timeout=TIMEOUT)

    match subject:
        case "tenacity":
            return tenacity.retry(
                retry=tenacity.retry_if_exception(_is_unavailable),
                stop=tenacity.stop_after_attempt(TRIES),
                wait=tenacity.wait_fixed(DELAY),
                reraise=True,
            )(call)
        case "stamina":
            times = {"wait_initial": DELAY, "wait_max": DELAY, "wait_jitter": 0.0}
            return stamina.retry(on=_is_unavailable, attempts=TRIES, timeout=None, **times)(call)
        case "google-api-core":
            return AsyncRetry(_is_unavailable, initial=2 * DELAY, maximum=2 * DELAY, multiplier=1.0)(call)
        case _:
            return call


def _is_unavailable(error: Exception) -> bool:
    return isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.UNAVAILABLE


BENCHMARK = Benchmark(
    name="retry",
    says="retries of calls",
    beside=(CORE, TENACITY, STAMINA, GOOGLE),
    goals=(
        Goal(subject=OURS, measure=TIME, most=1.02),
        Goal(subject=RETRYING, measure=TIME, most=1.05),
        Goal(subject=RETRYING, measure=TIME_FAILING, most=1.0),
        Goal(subject=RETRYING, measure=TIME_TOLD, of=Of.VALUE, least=PUSHBACK),
    ),
    run=run,
)
