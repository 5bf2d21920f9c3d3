"""Builds the programs of peers and servers, a few at a time, and reports how long each build took."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from grpc_judge.runner.program import Program, build

REQUIRE_PEERS: Final = "GRPC_BACKOFF_REQUIRE_PEERS"
"""The environment variable that makes a missing peer a failure if set to 1."""

_AT_ONCE = 2
"""How many builds run concurrently. Compilers already use all cores."""


@dataclass(frozen=True, slots=True)
class Built:
    """The result of building one program.

    Attributes:
        program: the program.
        seconds: how long the build took.
        missing: why the program is not available; empty if it is.
    """

    program: Program
    seconds: float
    missing: str = ""

    def __str__(self) -> str:
        """Return the result as one line of text."""
        if self.missing:
            return f"{self.program.name}: not available, since {self.missing}"
        return f"{self.program.name}: " + (
            f"built in {self.seconds:.1f} s" if self.program.build else "nothing to build"
        )


def peers_required() -> bool:
    """Return whether a missing peer is a failure."""
    return os.environ.get(REQUIRE_PEERS) == "1"


async def build_all(programs: Iterable[Program], told: Callable[[Built], None] = lambda _: None) -> list[Built]:
    """Build all programs; return the results in the same order. `told` receives each result as soon as it is ready."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def one(program: Program) -> Built:
        async with turns:
            built = await _build(program)
        told(built)
        return built

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one(program)) for program in programs]
    return [task.result() for task in running]


async def _build(program: Program) -> Built:
    if program.missing:
        return Built(program, 0.0, f"{program.missing} is missing")
    began = time.monotonic()
    missing = await build(program)
    return Built(program, time.monotonic() - began, missing)
