"""What the counts of calls have in common: both APIs, calls that go on until a block ends, and lines of JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.both_apis.api import AsyncioApi, ThreadedApi


def together(stack: contextlib.ExitStack, *kinds: str) -> list[Any]:
    """Return both APIs, of plain grpc and of this library or of these kinds, to be closed with the stack."""
    made = list[Any]()
    for kind in kinds or ("plain", "ours"):
        for api in (AsyncioApi(kind, asyncio.new_event_loop), ThreadedApi(kind)):
            stack.callback(api.close)
            made.append(api)
    return made


def subjects(*kinds: str) -> Iterator[Any]:
    """Yield the same, each of them to be used before the next one, and close it then."""
    for kind in kinds or ("plain", "ours"):
        for api in (AsyncioApi(kind, asyncio.new_event_loop), ThreadedApi(kind)):
            yield api
            api.close()


def tell(program: str, what: str, api: Any, **figures: object) -> None:
    """Print the figures of a subject as a line of JSON."""
    print(json.dumps({program: what, "subject": str(api), **figures}), flush=True)


@contextlib.contextmanager
def load(
    channel: Any,
    workers: int = 4,
    pause: float = 0.02,
    failed: list[tuple[float, float, str]] | None = None,
    **how: Any,
) -> Iterator[Counter[str]]:
    """Make calls until the end of the block; yield the number of calls by code.

    `failed` gets, for each call that fails, when it began and ended, and the details.
    """
    codes, stop = Counter[str](), threading.Event()

    def work() -> Iterator[Any]:
        while not stop.is_set():
            began = time.monotonic()
            outcome = yield "a", {"timeout": 20, **how}
            codes[outcome.code.name] += 1
            if failed is not None and outcome.error is not None:
                failed.append((began, time.monotonic(), outcome.details))
            yield pause

    join = channel.start([work() for _ in range(workers)])
    try:
        yield codes
    finally:
        stop.set()
        join()
