"""Builds peers and servers, few at a time, and says what took how long."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from interop.runner.program import BuildError, Program, build

__all__ = ["REQUIRE_PEERS", "Built", "build_all", "peers_required"]

REQUIRE_PEERS: Final = "GRPC_BACKOFF_REQUIRE_PEERS"
"""The environment variable that makes a missing peer a failure, if it is 1."""

_AT_ONCE = 2
"""Compilers take all the cores that they find."""


@dataclass(frozen=True, slots=True)
class Built:
    """What became of the building of one program.

    Attributes:
        program: which.
        seconds: how long it took.
        missing: why it is not here, in words; empty if it is.
    """

    program: Program
    seconds: float
    missing: str = ""

    def __str__(self) -> str:
        """Say it in a line."""
        if self.missing:
            return f"{self.program.name}: not there, since {self.missing}"
        return f"{self.program.name}: " + (
            f"built in {self.seconds:.1f} s" if self.program.build else "nothing to build"
        )


def peers_required() -> bool:
    """Return whether a missing peer is a failure."""
    return os.environ.get(REQUIRE_PEERS) == "1"


async def build_all(programs: Iterable[Program], told: Callable[[Built], None] = lambda _: None) -> list[Built]:
    """Build them all, and return what became of each, in their order; `told` is called with each as it is done."""
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
    try:
        await build(program)
    except BuildError as error:
        return Built(program, time.monotonic() - began, str(error))
    return Built(program, time.monotonic() - began)
