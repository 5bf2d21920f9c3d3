"""Counts how often a reader who follows a call has to change the file: `python -m benchmarks.stays`.

A stay is a stretch of a thread's way in one file of the library: it ends when a function of another file is called, or
returns to one. A coroutine that goes on after it waited is no new way. Time is not measured, so the machine may be
busy; a count differs by a few from run to run, since the order of callbacks does.
"""

from __future__ import annotations

import asyncio
import dis
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import grpc_backoff
import grpc_backoff.aio
import grpc_backoff.sync
from benchmarks.apart import serving
from benchmarks.peers import echoing

__all__ = ["Way", "followed", "main"]

LIBRARY = Path(grpc_backoff.__file__).parent
METHOD = "/echo.v1.Echo/Unary"
OPTION = ("grpc_backoff.jitter", 0.1)
_RESUME, _RETURNS = dis.opmap["RESUME"], {dis.opmap[name] for name in dis.opmap if name.startswith("RETURN_")}


class Way:
    """The stays of all threads, by file."""

    def __init__(self) -> None:
        self.stays: Counter[str] = Counter()
        self._last: dict[int, str] = {}

    def enter(self, frame: FrameType | None) -> None:
        """Note that a thread runs in the file of this frame; other libraries' files are no stays."""
        if frame is None or not frame.f_code.co_filename.startswith(f"{LIBRARY}/"):
            return
        thread, file = threading.get_ident(), frame.f_code.co_filename
        if self._last.get(thread) != file:
            self._last[thread] = file
            self.stays[file.removeprefix(f"{LIBRARY}/")] += 1

    def copy(self) -> Way:
        """Return what was seen so far."""
        way = Way()
        way.stays.update(self.stays)
        return way

    def __str__(self) -> str:
        rooms = Counter[str]()
        for file, stays in self.stays.items():
            rooms[file.partition("/")[0]] += stays
        by_room = ", ".join(f"{room} {stays}" for room, stays in rooms.most_common())
        return f"{self.stays.total()} stays in {len(self.stays)} files ({by_room})"


@contextmanager
def followed() -> Iterator[Way]:
    """Follow all threads that the block uses or starts."""
    way = Way()

    def profile(frame: FrameType, event: str, _arg: object) -> None:
        operation, argument = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
        if event == "call" and (operation != _RESUME or argument == 0):
            way.enter(frame)
        elif event == "return" and operation in _RETURNS:
            way.enter(frame.f_back)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield way
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]  # typeshed knows only functions


def _asyncio_call(target: str) -> Way:
    async def first_call() -> Way:
        async with grpc_backoff.aio.insecure_channel(target) as channel:
            way.stays.clear()
            await channel.unary_unary(METHOD)(b"", timeout=60, wait_for_ready=True)
            return way.copy()

    with followed() as way:
        return asyncio.run(first_call())


def _threads_call(target: str) -> Way:
    with followed() as way, grpc_backoff.sync.insecure_channel(target) as channel:
        way.stays.clear()
        channel.unary_unary(METHOD)(b"", timeout=60, wait_for_ready=True)
        return way.copy()


def _asyncio_channel(target: str, *options: tuple[str, Any]) -> Way:
    async def make() -> Way:
        with followed() as way:
            channel = grpc_backoff.aio.insecure_channel(target, options=options)
        await channel.close()
        return way

    return asyncio.run(make())


def _threads_channel(target: str, *options: tuple[str, Any]) -> Way:
    with followed() as way:
        channel = grpc_backoff.sync.insecure_channel(target, options=options)
    channel.close()
    return way


def main() -> None:
    """Print the ways of the first call of a channel, and of making a channel with an option and without."""
    with serving(echoing) as peer:
        for what, run in {
            "asyncio, first call of a channel, which waits": lambda: _asyncio_call(peer.target),
            "threads, first call of a channel, which waits": lambda: _threads_call(peer.target),
            "asyncio, a channel without options": lambda: _asyncio_channel(peer.target),
            "asyncio, a channel with an option": lambda: _asyncio_channel(peer.target, OPTION),
            "threads, a channel without options": lambda: _threads_channel(peer.target),
            "threads, a channel with an option": lambda: _threads_channel(peer.target, OPTION),
        }.items():
            run()  # imports, and what is made once
            for thread in threading.enumerate():
                if thread.daemon:
                    thread.join(10)  # only a thread that starts now is followed
            print(f"{what}: {run()}")


if __name__ == "__main__":
    main()
