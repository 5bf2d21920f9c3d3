"""Counts what a process has open: threads, descriptors and futures."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Errors", "Open", "settled"]

_PROCESS = Path("/proc/self")
_SETTLES_WITHIN = 10.0  # seconds; grpcio's core closes everything on its own threads


@dataclass(frozen=True, slots=True)
class Open:
    """What a process has open. `tasks` counts kernel threads, which include those of grpc's core."""

    threads: int = field(default_factory=threading.active_count)
    tasks: int = field(default_factory=lambda: len(list(_PROCESS.joinpath("task").iterdir())))
    descriptors: int = field(default_factory=lambda: len(list(_PROCESS.joinpath("fd").iterdir())))
    futures: int = field(default_factory=lambda: sum(isinstance(one, asyncio.Future) for one in gc.get_objects()))

    def beyond(self, before: Open) -> dict[str, int]:
        """Return by how much each count exceeds the earlier one; 0 if it does not."""
        names = ("threads", "tasks", "descriptors", "futures")
        return {name: max(0, getattr(self, name) - getattr(before, name)) for name in names}


def settled(before: Open) -> dict[str, int]:
    """Wait up to ten seconds until no count exceeds `before`; return the remaining excess of each count."""
    end = time.monotonic() + _SETTLES_WITHIN
    while True:
        gc.collect()
        left = Open().beyond(before)
        if not any(left.values()) or time.monotonic() > end:
            return left
        time.sleep(0.05)


class Errors(logging.Handler):
    """Counts log records at ERROR and above and keeps the text of the first few."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.count = 0
        self.texts: set[str] = set()
        logging.getLogger().addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        if len(self.texts) < 5:
            error = "" if record.exc_info is None else f": {record.exc_info[1]!r}"
            self.texts.add(f"{record.name}: {record.getMessage()[:200]}{error}")
