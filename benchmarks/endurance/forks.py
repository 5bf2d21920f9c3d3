"""Forks a process whose threads make calls, wait, dial and sleep in backoff (FK-1, FK-2).

Each child uses a channel that it inherited, closes it, and creates a new one. A child that is still running after
twenty seconds counts as hung. A child that exits with an error or without a report counts as crashed.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import threading
import time
from collections import Counter
from dataclasses import dataclass

import grpc

import grpc_backoff
from tests.echo import EchoStub, Message

__all__ = ["Verdict", "fork_under_load"]

_HANGS_AFTER = 20.0
_CALLERS = 4
_NOBODY = "127.0.0.1:1"
_FAST = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 200)]
_MAKERS = {"plain": grpc.insecure_channel, "ours": grpc_backoff.insecure_channel}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of the run.

    Attributes:
        dialling: whether a channel kept dialling an unreachable server, because a call was waiting on it.
        outcomes: the number of children, by the outcomes of their calls on the inherited and on the new channel.
        calls: how many calls of the parent's threads succeeded during the forks.
        failed: how many calls of the parent's threads failed.
    """

    kind: str
    fork_support: bool
    dialling: bool
    forks: int
    hung: int
    crashed: int
    outcomes: dict[str, int]
    calls: int
    failed: int
    seconds: float


class _Load:
    """Threads that make calls continuously, and optionally one whose call waits for an unreachable server."""

    def __init__(self, kind: str, target: str, *, dialling: bool) -> None:
        self.calls = self.failed = 0
        self.channel = _MAKERS[kind](target, _FAST)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._call, daemon=True) for _ in range(_CALLERS)]
        if dialling:
            self._absent = _MAKERS[kind](_NOBODY, _FAST)
            threading.Thread(target=self._wait, daemon=True).start()
        for thread in self._threads:
            thread.start()
        grpc.channel_ready_future(self.channel).result(_HANGS_AFTER)

    def _call(self) -> None:
        stub = EchoStub(self.channel)
        while not self._over.is_set():
            try:
                stub.Unary(Message(text="a"), wait_for_ready=True, timeout=_HANGS_AFTER)
                self.calls += 1
            except grpc.RpcError:
                self.failed += 1
            time.sleep(0.002)

    def _wait(self) -> None:
        EchoStub(self._absent).Unary(Message(text="a"), wait_for_ready=True)

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def fork_under_load(kind: str, target: str, count: int, dialling: bool) -> Verdict:
    """Fork this many times. Call this in a separate process, because its waiting call never ends."""
    load = _Load(kind, target, dialling=dialling)
    context = multiprocessing.get_context("fork")
    outcomes: Counter[str] = Counter()
    hung = crashed = 0
    began = time.monotonic()
    for _ in range(count):
        told, tell = context.Pipe(duplex=False)
        child = context.Process(target=_use, args=(tell, kind, load.channel, target))
        child.start()
        tell.close()
        child.join(_HANGS_AFTER)
        if child.is_alive():
            hung += 1
            child.kill()
            child.join()
        elif child.exitcode != 0 or not told.poll():
            crashed += 1
        else:
            outcomes[told.recv()] += 1
        told.close()
    load.end()
    support = os.environ.get("GRPC_ENABLE_FORK_SUPPORT") == "1"
    took = round(time.monotonic() - began, 1)
    return Verdict(kind, support, dialling, count, hung, crashed, dict(outcomes), load.calls, load.failed, took)


def _use(tell, kind: str, inherited, target: str) -> None:
    faulthandler.dump_traceback_later(_HANGS_AFTER - 2, exit=False)
    # A call on plain grpc's inherited channel would hang: its threads do not survive a fork.
    old = "-" if kind == "plain" else _outcome(inherited)
    inherited.close()
    try:
        with _MAKERS[kind](target, _FAST) as channel:
            new = _outcome(channel)
    except grpc_backoff.ForkError:
        new = "ForkError"
    tell.send(f"{old}, {new}")


def _outcome(channel) -> str:
    try:
        return EchoStub(channel).Unary(Message(text="answered"), timeout=_HANGS_AFTER / 2).text
    except (grpc.RpcError, grpc_backoff.ForkError) as error:
        return type(error).__name__
