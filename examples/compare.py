"""Counts how often retries around plain grpcio dial a peer that sends SETTINGS and hangs up: `docs/comparison.md`.

    python -m examples.compare

Each subject has a channel and a peer of its own. Sixteen tasks call for ten seconds; when a call has failed, retries
included, the task calls again at once. Settings are the same wherever a subject has them: at most five attempts, first
wait 0.1 s, factor 2, largest wait 5 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio
import stamina
import tenacity
from google.api_core.exceptions import RetryError
from google.api_core.retry_async import AsyncRetry

from grpc_backoff import aio
from grpc_backoff.testing.front import FlakyFront, settings_then_close

__all__ = ["SUBJECTS", "count"]

Call = Callable[[], Awaitable[object]]
ERROR = grpc.aio.AioRpcError
ATTEMPTS, FIRST, FACTOR, LARGEST = 5, 0.1, 2.0, 5.0
_CONFIG = {
    "methodConfig": [
        {
            "name": [{}],
            "waitForReady": True,
            "retryPolicy": {
                "maxAttempts": ATTEMPTS,
                "initialBackoff": f"{FIRST}s",
                "maxBackoff": f"{LARGEST}s",
                "backoffMultiplier": FACTOR,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}
WITH_CONFIG = [("grpc.service_config", json.dumps(_CONFIG))]


def _call(channel: grpc.aio.Channel) -> Call:
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary("/shop.Orders/Place")
    return lambda: method(b"", timeout=30)


def _google(call: Call) -> Call:
    async def calling() -> object:
        return await call()

    return AsyncRetry(
        predicate=lambda error: isinstance(error, ERROR),
        initial=FIRST,
        multiplier=FACTOR,
        maximum=LARGEST,
        timeout=30,
    )(calling)


def _tenacity(call: Call) -> Call:
    async def calling() -> object:
        return await call()

    return tenacity.retry(
        retry=tenacity.retry_if_exception_type(ERROR),
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        wait=tenacity.wait_random_exponential(multiplier=FIRST, exp_base=FACTOR, max=LARGEST),
    )(calling)


def _stamina(call: Call) -> Call:
    async def calling() -> object:
        return await call()

    return stamina.retry(
        on=ERROR, attempts=ATTEMPTS, wait_initial=FIRST, wait_exp_base=FACTOR, wait_max=LARGEST, wait_jitter=FIRST
    )(calling)


SUBJECTS: dict[str, Callable[[str], tuple[grpc.aio.Channel, Callable[[Call], Call]]]] = {
    "grpcio": lambda target: (grpc.aio.insecure_channel(target), lambda call: call),
    "grpcio with a service config": lambda target: (grpc.aio.insecure_channel(target, WITH_CONFIG), lambda call: call),
    "grpcio and google-api-core's AsyncRetry": lambda target: (grpc.aio.insecure_channel(target), _google),
    "grpcio and tenacity": lambda target: (grpc.aio.insecure_channel(target), _tenacity),
    "grpcio and stamina": lambda target: (grpc.aio.insecure_channel(target), _stamina),
    "grpc-backoff": lambda target: (aio.insecure_channel(target), lambda call: call),
    "grpc-backoff with the service config": lambda target: (
        aio.insecure_channel(target, options=WITH_CONFIG),
        lambda call: call,
    ),
}
"""By name: a function that opens the subject's channel and returns it with what it puts around each call."""


async def count(subject: str, *, workers: int, seconds: float) -> int:
    """Return the number of connections that a subject makes in this many seconds."""
    async with FlakyFront(settings_then_close()) as front:
        channel, around = SUBJECTS[subject](front.target)
        async with channel:
            call = around(_call(channel))
            end = time.monotonic() + seconds
            tasks = [asyncio.create_task(_keep_calling(call, end)) for _ in range(workers)]
            await asyncio.wait(tasks, timeout=seconds)
            connections = len(front.visits)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return connections


async def _keep_calling(call: Call, end: float) -> None:
    while time.monotonic() < end:
        with contextlib.suppress(ERROR, RetryError, tenacity.RetryError):
            await call()


async def _main() -> None:
    for subject in SUBJECTS:
        connections = await count(subject, workers=16, seconds=10)
        print(f"| {subject} | {connections:,} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    logging.disable()
    asyncio.run(_main())
