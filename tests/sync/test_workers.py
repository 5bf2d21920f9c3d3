"""TH-6: the threads that work for the main thread."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from grpc_backoff.sync import workers
from tests.sync.service import until

FORKING = """
import os, signal, time
import grpc
from grpc_backoff.sync import workers

signal.signal(signal.SIGALRM, lambda *_: pids.append(os.fork()))
signal.setitimer(signal.ITIMER_REAL, 0.2)
pids = []
try:
    ended = workers.run(lambda: time.sleep(1) or "done", lambda: print("interrupted"))
except grpc.RpcError as error:
    ended = error.code().name
if pids == [0]:
    signal.alarm(20)
    print(ended, workers.run(lambda: "again", print), flush=True)
    os._exit(0)
os.waitpid(pids[0], 0)
print(ended)
"""


class Stopped(Exception):  # noqa: N818
    """What a signal handler raises."""


def ignored():
    raise AssertionError("the work was not interrupted")


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Threads without work end soon; none is left of earlier tests."""
    until(lambda: not workers._idle)
    monkeypatch.setattr(workers, "_LINGERS", 0.3)
    yield
    until(lambda: not any(thread.name == "grpc-backoff-worker" for thread in threading.enumerate()))


def test_work_has_one_thread_that_ends_when_there_is_no_more():
    """TH-6: one thread does what follows each other, returns or raises what the work does, and then ends."""
    threads = {workers.run(threading.current_thread, ignored) for _ in range(20)}
    assert threading.current_thread() not in threads
    assert len(threads) == 1
    with pytest.raises(SystemExit, match="7"):
        workers.run(lambda: sys.exit(7), ignored)
    until(lambda: not any(thread.is_alive() for thread in threads))
    assert workers.run(lambda: "again", ignored) == "again"


def test_work_during_other_work():
    """TH-6: a signal handler may wait for work while the main thread does."""

    def outer():
        return threading.current_thread(), workers.run(threading.current_thread, ignored)

    first, second = workers.run(outer, ignored)
    assert first is not second


@pytest.mark.skipif(sys.platform == "win32", reason="a system without signals to threads")
def test_a_signal_handler_that_raises(monkeypatch):
    """TH-6: what it raises is raised at once; the work is told, and its result dropped."""
    go, told, main = threading.Event(), [], threading.get_ident()

    def stop(*_):
        raise Stopped

    def work():
        signal.pthread_kill(main, signal.SIGUSR1)
        go.wait(20)

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(Stopped):
            workers.run(work, lambda: told.append(go.is_set()))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert told == [False]
    assert workers.run(lambda: "other", ignored) == "other"
    go.set()


def test_a_late_task():
    """TH-6: a thread may wait in vain for the task that it was chosen for, but if the task comes, it does only that."""
    workers.run(lambda: None, ignored)
    until(lambda: workers._idle)
    late = workers._idle.pop()
    until(lambda: workers._idle == [late])
    task = workers._Task(lambda: list(workers._idle))
    late.tasks.put(task)
    assert task.done.acquire(timeout=20)
    assert task.result == []


def test_a_thread_whose_start_was_interrupted(monkeypatch):
    """TH-6: if a signal handler raises while a thread starts, that thread does later work."""

    class Interrupted(threading.Thread):
        def start(self):
            super().start()
            if self.name == "grpc-backoff-worker":  # others may start meanwhile
                raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(threading, "Thread", Interrupted)
        with pytest.raises(Stopped):
            workers.run(lambda: None, lambda: None)
    until(lambda: workers._idle)
    (worker,) = workers._idle
    assert workers.run(threading.current_thread, ignored) is worker._thread
    assert worker.is_alive()


@pytest.mark.skipif(sys.platform == "win32", reason="a system without forks")
def test_in_the_child_of_a_fork():
    """FK-1: work ends with CANCELLED in the child, where its thread does not exist; new work has a new thread."""
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["CANCELLED again", "done"], done.stderr


def test_no_worker_at_the_end_of_the_interpreter(monkeypatch):
    """TH-6: when the interpreter exits, other threads run no more, so a finalizer's call is made in its own."""
    assert workers.run(threading.current_thread, ignored) is not threading.current_thread()  # this one would be idle
    monkeypatch.setattr(sys, "is_finalizing", lambda: True)
    assert workers.run(threading.current_thread, ignored) is threading.current_thread()
