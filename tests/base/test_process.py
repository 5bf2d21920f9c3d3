"""FK-1: what the library does once in the child of a fork, however it was forked."""

from __future__ import annotations

import threading
import time

import pytest

from grpc_backoff.base import process
from grpc_backoff.base.process import _Process, notice_fork


@pytest.fixture
def forked(monkeypatch):
    """A process, and a function that makes it the child of a fork that ran no callbacks."""
    pids = iter(range(-2, -100, -1))

    def fork():
        pid = next(pids)
        monkeypatch.setattr(process, "getpid", lambda: pid)
        return lambda: pid

    return _Process(), fork


def test_reactions(forked):
    """FK-1: reactions run once for each fork, in order, and not at all without one."""
    here, fork = forked
    said = []
    here.reactions.append(lambda: said.append("first"))
    here.reactions.append(lambda: said.append("second"))
    notice_fork(process=here)
    assert said == []
    for times in (1, 2):
        getpid = fork()
        notice_fork(getpid, here)
        notice_fork(getpid, here)
        assert said == ["first", "second"] * times


def test_the_callback(forked):
    """FK-1: where the callback of a fork has run, the first use of a channel does not run the reactions again."""
    here, fork = forked
    said = []
    here.reactions.append(lambda: said.append("ran"))
    getpid = fork()
    here.begin_anew()
    notice_fork(getpid, here)
    assert said == ["ran"]


def test_a_reaction_that_asks(forked):
    """FK-1: a reaction may free a channel, which asks for forks itself; that does not run the reactions again."""
    here, fork = forked
    said = []
    getpid = fork()
    here.reactions.append(lambda: said.append("ran") or notice_fork(getpid, here))
    notice_fork(getpid, here)
    assert said == ["ran"]


def test_threads(forked):
    """FK-1: the first uses in several threads run the reactions once, and all threads wait until they have run."""
    here, fork = forked
    said, seen = [], []
    here.reactions.append(lambda: time.sleep(0.1) or said.append("ran"))
    getpid = fork()
    threads = [threading.Thread(target=lambda: notice_fork(getpid, here) or seen.append(tuple(said))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [("ran",)] * 8


def test_a_lock_of_the_parent(forked):
    """FK-1: a fork while another thread begins anew leaves the child neither a held lock nor a half-done beginning."""
    here, fork = forked
    said, goes_on, began = [], threading.Event(), threading.Event()
    getpid = fork()
    here.reactions.append(lambda: said.append("ran") or began.set() or (len(said) == 1 and goes_on.wait(20)))
    thread = threading.Thread(target=lambda: notice_fork(getpid, here))
    thread.start()
    assert began.wait(20)
    try:
        notice_fork(fork(), here)
        assert said == ["ran"] * 2
    finally:
        goes_on.set()
        thread.join()


@pytest.mark.parametrize(("drawn", "number"), [(b"\0" * 8, 0.0), (b"\x80" + b"\0" * 7, 0.5), (b"\xff" * 8, 1 - 2**-53)])
def test_the_interval(monkeypatch, drawn, number):
    """CB-11: the numbers are in [0, 1), as `random.random()` draws them."""
    monkeypatch.setattr(process, "urandom", {8: drawn}.__getitem__)
    assert process.CHANCE.random() == number


def test_no_state():
    """CB-11: two draws differ."""
    assert process.CHANCE.random() != process.CHANCE.random()
