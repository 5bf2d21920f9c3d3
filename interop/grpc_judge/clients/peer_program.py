"""Code that the Python peers share: the command line, the workers of asyncio clients, and the two lines of output."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

METHOD = "/grpc.testing.TestService/EmptyCall"
"""The method that peers call, with empty messages as request and response."""

CALL_ID = "call-id"
"""The metadata key for the id of a call, which is `WORKER-CALL`. Both numbers count from 0."""

GRACE = 1.0
"""How long calls may still run after the time is up, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOrder:
    """The command-line arguments of a peer.

    Attributes:
        target: where to connect.
        seconds: how long to make calls.
        workers: how many workers make calls concurrently.
        pause: how long a worker pauses after each call, in seconds.
        ca: the certificate authority to trust, in PEM; None for no TLS.
        initial_ms: INITIAL_BACKOFF; like the settings below, None for the client's default.
        max_ms: MAX_BACKOFF.
        min_connect_timeout_ms: MIN_CONNECT_TIMEOUT.
        stable_after_ms: how long a connection must last in order not to count as a failed attempt.
        defect: the name of the defect that the reference client is given; None for no defect.
    """

    target: str
    seconds: float
    workers: int
    pause: float
    ca: bytes | None
    initial_ms: int | None
    max_ms: int | None
    min_connect_timeout_ms: int | None
    stable_after_ms: int | None
    defect: str | None = None

    @property
    def core_options(self) -> list[tuple[str, int]]:
        """Channel options that apply these settings to grpc's core."""
        told = {
            "grpc.initial_reconnect_backoff_ms": self.initial_ms,
            "grpc.max_reconnect_backoff_ms": self.max_ms,
            "grpc.min_reconnect_backoff_ms": self.min_connect_timeout_ms,
        }
        return [(name, value) for name, value in told.items() if value is not None]

    @property
    def own_options(self) -> list[tuple[str, float]]:
        """Channel options that apply these settings to this project's channels."""
        own = [] if self.stable_after_ms is None else [("grpc_backoff.stable_after", self.stable_after_ms / 1000)]
        return [*self.core_options, *own]


class CallFailed(Exception):  # noqa: N818 - an outcome, not an error of the program
    """A call failed. The argument is the name of its status code."""


class Tally:
    """Counts how the calls ended."""

    def __init__(self) -> None:
        self.made = 0
        self.ok = 0
        self.failed: Counter[str] = Counter()

    def say_done(self, **versions: str) -> None:
        """Print the last line: the counts and the software versions."""
        unfinished = self.made - self.ok - self.failed.total()
        versions["python"] = platform.python_version()
        figures = {"made": self.made, "ok": self.ok, "failed": self.failed, "unfinished": unfinished}
        click.echo(json.dumps({"event": "done", **figures, "versions": versions}))


def _listen_for_stop(stop: Callable[[], object]) -> None:
    """Call `stop` when another line arrives on standard input; the end of the input has no meaning."""
    loop, given = asyncio.get_running_loop(), sys.__stdin__

    def heard() -> None:
        loop.remove_reader(0)
        if os.read(0, 1):
            stop()

    if given is not None:
        with contextlib.suppress(OSError):  # a file
            loop.add_reader(0, heard)


def _wait_for_start() -> None:
    """Print the first line and wait for the start signal."""
    click.echo(json.dumps({"event": "ready"}))
    if not sys.stdin.readline():
        sys.exit(0)


async def keep_busy(order: CallOrder, call: Callable[[bool, str], Awaitable[object]]) -> Tally:
    """Make calls with all workers until the time is up, or until another line says so, and return the tally.

    Args:
        order: the number of workers, the pauses and the duration.
        call: makes one call. Its arguments are whether the call is wait-for-ready, and the call's id. It raises
            CallFailed if the call fails.
    """
    tally, over = Tally(), asyncio.Event()
    asyncio.get_running_loop().call_later(order.seconds, over.set)
    _listen_for_stop(over.set)

    async def work(number: int) -> None:
        for made in itertools.count():
            if over.is_set():
                return
            tally.made += 1
            try:
                await call(number % 2 == 1, f"{number}-{made}")
                tally.ok += 1
            except CallFailed as error:
                tally.failed[str(error)] += 1
            await asyncio.sleep(order.pause)

    workers = [asyncio.create_task(work(number)) for number in range(order.workers)]
    outcomes = asyncio.gather(*workers, return_exceptions=True)
    passing = asyncio.create_task(over.wait())
    either: set[asyncio.Future[Any]] = {outcomes, passing}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    passing.cancel()
    await asyncio.wait({outcomes}, timeout=GRACE)
    for worker in workers:
        worker.cancel()
    for outcome in await outcomes:
        if isinstance(outcome, Exception):
            raise outcome  # this is an error of the program, not of a call
    return tally


def command(run: Callable[[CallOrder], None]) -> click.Command:
    """Return a command that parses the arguments of a peer and calls `run` with them."""

    @click.command()
    @click.option("--target", required=True)
    @click.option("--seconds", type=float, required=True)
    @click.option("--workers", type=int, default=1)
    @click.option("--pause-ms", type=int, default=20)
    @click.option("--ca", type=click.Path(exists=True, dir_okay=False, path_type=Path))
    @click.option("--initial-ms", type=int)
    @click.option("--max-ms", type=int)
    @click.option("--min-connect-timeout-ms", type=int)
    @click.option("--stable-after-ms", type=int)
    @click.option("--defect", hidden=True)
    def peer(pause_ms: int, ca: Path | None, **given: Any) -> None:
        """Keep one channel busy with calls and report how they ended."""
        order = CallOrder(pause=pause_ms / 1000, ca=None if ca is None else ca.read_bytes(), **given)
        _wait_for_start()
        run(order)

    return peer
