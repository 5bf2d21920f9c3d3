"""Separate processes for benchmarks: they end with the code that started them, and report their errors to it."""

from __future__ import annotations

import contextlib
import os
import socket
import time

import psutil
import pytest

from benchmarks.apart import Served, at_once, in_child, serving


def identify(*given):
    return os.getpid(), given


def break_down():
    raise ValueError("it broke")


@contextlib.asynccontextmanager
async def listening():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Served(listener.getsockname()[1], lambda question: (os.getpid(), question))


@contextlib.asynccontextmanager
async def unable():
    raise OSError("nothing to listen on")
    yield


def test_in_child():
    """CH-5: `in_child` runs a function in a new process, which has ended when the call returns."""
    pid, given = in_child(identify, 1, "two")
    assert given == (1, "two")
    assert pid != os.getpid()
    assert not psutil.pid_exists(pid)


def test_at_once():
    """CH-5: `at_once` runs several calls concurrently, each in its own process, and returns the results in order."""
    answers = at_once(identify, [(1,), (2,)])
    assert [given for _, given in answers] == [(1,), (2,)]
    assert len({pid for pid, _ in answers}) == 2


def test_what_it_raises():
    """CH-5: an exception in the child process is raised in the parent."""
    with pytest.raises(ValueError, match="it broke"):
        in_child(break_down)


def test_serving():
    """CH-5: `serving` runs a server in its own process, which answers questions and ends with the `with` block."""
    with serving(listening) as peer:
        pid, question = peer.ask("how many?")
        assert question == "how many?"
        assert pid != os.getpid()
        socket.create_connection(("127.0.0.1", peer.target)).close()
    assert not psutil.pid_exists(pid)


def test_serving_ends_when_the_block_breaks():
    """CH-5: an exception in the `with` block ends the server process too."""
    pids = []

    def use():
        with serving(listening) as peer:
            pids.append(peer.ask()[0])
            break_down()

    with pytest.raises(ValueError, match="it broke"):
        use()
    assert not psutil.pid_exists(pids[0])


def test_a_server_that_does_not_start():
    """CH-5: a server that fails to start raises an error in the parent at once."""
    with pytest.raises(EOFError), serving(unable):
        pytest.fail("it cannot have started")


def test_frozen():
    """CH-5: `frozen` stops a server process (SIGSTOP), which then continues. Runs in real time, with generous slack."""
    with serving(listening) as peer:
        pid, _ = peer.ask()
        with peer.frozen():
            end = time.monotonic() + 5
            while psutil.Process(pid).status() != psutil.STATUS_STOPPED and time.monotonic() < end:
                time.sleep(0.01)
            assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
        assert peer.ask("again") == (pid, "again")
