"""Threads that work for the main thread while that waits, because signal handlers run there (TH-6).

A handler may run while grpcio holds a lock of its channel, and may make a hedged call itself. That call would wait for
the conductor, and the conductor for the lock (seen with grpcio 1.85).

A thread that has no more work stays for a while, because starting one for each call would cost as much as the call.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import Context
from queue import Empty, SimpleQueue
from typing import Any

import grpc

from grpc_backoff.base.process import after_fork
from grpc_backoff.base.threads import longest_sleep, new_queue, take
from grpc_backoff.grpcio.sync_private import FORKED_DETAILS, InactiveRpcError, call_state

_LINGERS = 1.0
"""How long a thread stays without work, in seconds."""


class _Task:
    """A piece of work for one of the threads: what it has returned or raised, and a lock that is held until then."""

    __slots__ = ("done", "error", "result", "work")

    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()


class _Worker:
    """A thread that does one task at a time."""

    def __init__(self) -> None:
        self.tasks: SimpleQueue[_Task] = new_queue()
        self._thread = threading.Thread(target=self._run, name="grpc-backoff-worker", daemon=True)
        self.is_alive = self._thread.is_alive
        Context().run(self._thread.start)  # last: if a signal handler raises here, the thread may work for later calls

    def _run(self) -> None:
        while True:
            try:
                task = take(self.tasks, _LINGERS)
            except Empty:
                if _withdraw(self):
                    return
                _idle.append(self)  # a signal handler has raised before the main thread could pass on its task
                continue
            _withdraw(self)  # if the task was only late
            try:
                task.result = task.work()
            except BaseException as error:  # noqa: BLE001 - whatever the main thread would have raised
                task.error = error
            _idle.append(self)
            task.done.release()
            del task


_idle: list[_Worker] = []
"""The threads without work. Its methods are atomic."""


def _withdraw(worker: _Worker) -> bool:
    """Give a thread no more tasks; return whether it was one of those without work."""
    if worker not in _idle:
        return False
    try:
        _idle.remove(worker)
    except ValueError:  # it is about to get one
        return False
    return True


def run(work: Callable[[], Any], interrupted: Callable[[], object]) -> Any:
    """Do some work in another thread, and return what it returns, or raise what it raises.

    If a signal handler raises meanwhile, `interrupted` is called, and the work is not waited for.

    Raises:
        grpc.RpcError: this is the child of a fork, where the thread does not exist.
        RuntimeError: the process has too many threads.
    """
    if sys.is_finalizing():  # no other thread runs any more
        return work()
    task, longest = _Task(work), longest_sleep()
    try:
        try:
            worker = _idle.pop()
        except IndexError:
            worker = _Worker()
        worker.tasks.put(task)
        while not task.done.acquire(timeout=longest):
            if not worker.is_alive():  # this is the child of a fork
                task.error = InactiveRpcError(call_state(grpc.StatusCode.CANCELLED, FORKED_DETAILS, (), ()))
                break
    except BaseException:
        interrupted()
        raise
    if task.error is None:
        return task.result
    try:
        raise task.error
    finally:
        del task  # its error's traceback refers to this frame


after_fork(_idle.clear)
