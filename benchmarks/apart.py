"""Runs each subject, and each server that it calls, in a separate process.

Memory, threads and garbage left by earlier measurements therefore do not affect a result, and CPU time used by a server
is not counted as the client's. A process ends when the block that started it exits, and also when this process ends.
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
    """Call a function once for each tuple of arguments, concurrently and in separate processes; return the results."""
    calls = list(calls)
    with contextlib.ExitStack() as stack:
        pools = [stack.enter_context(ProcessPoolExecutor(1, _CONTEXT, _allow_files)) for _ in calls]
        futures = [pool.submit(function, *args) for pool, args in zip(pools, calls, strict=True)]
        return [future.result() for future in futures]


@dataclass(frozen=True, slots=True)
class Served:
    """A running server, as seen by the process that started it: its address, and the function that `Peer.ask` calls."""

    target: Any
    answer: Callable[[Any], Any] = lambda question: question


@dataclass(frozen=True, slots=True)
class Peer:
    """A server in another process."""

    target: Any
    _pipe: Connection
    _pid: int

    def ask(self, question: Any = None) -> Any:
        """Send the server a question and return its answer."""
        self._pipe.send(question)
        return self._pipe.recv()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Suspend the server inside the block. The kernel still accepts connections for it, but nothing answers."""
        os.kill(self._pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._pid, signal.SIGCONT)


@contextlib.contextmanager
def serving(serve: Callable[..., AbstractAsyncContextManager[Served]], *args: Any) -> Iterator[Peer]:
    """Run a server in its own process and yield its `Peer` once it is listening."""
    here, there = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_serve, args=(there, serve, args), daemon=True)
    process.start()
    there.close()  # without our copy, the pipe ends when the other side closes it
    try:
        if not here.poll(_STARTS_WITHIN):
            raise RuntimeError(f"{serve.__name__} did not start within {_STARTS_WITHIN:g} s")
        yield Peer(here.recv(), here, process.pid)
    finally:
        here.close()  # this tells the process to end
        process.join(_ENDS_WITHIN)
        process.kill()  # has no effect if the process has ended
        process.join()


def _serve(pipe: Connection, serve: Callable[..., AbstractAsyncContextManager[Served]], args: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # on Ctrl-C, the parent ends this process
    _allow_files()
    asyncio.run(_serve_until_told(pipe, serve(*args)))


def _allow_files() -> None:
    """Raise the limit on open files to the maximum that the system allows; thousands of connections need it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _serve_until_told(pipe: Connection, serve: AbstractAsyncContextManager[Served]) -> None:
    async with serve as served:
        pipe.send(served.target)
        with contextlib.suppress(EOFError):
            while True:
                question = await asyncio.to_thread(pipe.recv)
                pipe.send(served.answer(question))
