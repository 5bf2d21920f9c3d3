"""Runs what is measured, and the servers that it calls, each in its own process.

So nothing that ran before counts (memory, threads, garbage), and the server's CPU is not attributed to the client. Each
process ends with the block that started it, and with this process, whatever happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeVar

__all__ = ["Peer", "Served", "at_once", "in_child", "serving"]

_CONTEXT = multiprocessing.get_context("spawn")
_STARTS_WITHIN = 60.0  # seconds; more than any machine needs
_ENDS_WITHIN = 10.0

T = TypeVar("T")


def in_child(function: Callable[..., T], *args: Any) -> T:
    """Return the result of a module-level function, called in a new process."""
    return at_once(function, [args])[0]


def at_once(function: Callable[..., T], calls: Iterable[tuple[Any, ...]]) -> list[T]:
    """Return the results of several calls of a function, each in a new process, all at the same time."""
    calls = list(calls)
    with contextlib.ExitStack() as stack:
        pools = [stack.enter_context(ProcessPoolExecutor(1, _CONTEXT, _allow_files)) for _ in calls]
        futures = [pool.submit(function, *args) for pool, args in zip(pools, calls, strict=True)]
        return [future.result() for future in futures]


@dataclass(frozen=True, slots=True)
class Served:
    """What a server offers: its address, and how it answers questions from its starter."""

    target: Any
    answer: Callable[[Any], Any] = lambda question: question


@dataclass(frozen=True, slots=True)
class Peer:
    """A server in another process."""

    target: Any
    _pipe: Connection
    _pid: int

    def ask(self, question: Any = None) -> Any:
        """Return its answer."""
        self._pipe.send(question)
        return self._pipe.recv()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the process for a while. The kernel keeps accepting connections for it, but nothing answers."""
        os.kill(self._pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._pid, signal.SIGCONT)


@contextlib.contextmanager
def serving(serve: Callable[..., AbstractAsyncContextManager[Served]], *args: Any) -> Iterator[Peer]:
    """Run a server in its own process; yield it as soon as it listens."""
    here, there = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_serve, args=(there, serve, args), daemon=True)
    process.start()
    there.close()  # our copy, so that the pipe ends when the other side does
    try:
        if not here.poll(_STARTS_WITHIN):
            raise RuntimeError(f"{serve.__name__} did not start within {_STARTS_WITHIN:g} s")
        yield Peer(here.recv(), here, process.pid)
    finally:
        here.close()  # tells it to end
        process.join(_ENDS_WITHIN)
        process.kill()  # harmless if it has ended
        process.join()


def _serve(pipe: Connection, serve: Callable[..., AbstractAsyncContextManager[Served]], args: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends this process through the pipe
    _allow_files()
    asyncio.run(_serve_until_told(pipe, serve(*args)))


def _allow_files() -> None:
    """Raise the limit on open files as far as the system allows: thousands of connections need them."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve_until_told(pipe: Connection, serve: AbstractAsyncContextManager[Served]) -> None:
    async with serve as served:
        pipe.send(served.target)
        with contextlib.suppress(EOFError):
            while True:
                question = await asyncio.to_thread(pipe.recv)
                pipe.send(served.answer(question))
