"""Makes the calls for peers whose channel is a threaded `grpc.Channel`."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import grpc

from grpc_judge.clients.peer_program import CALL_ID, GRACE, METHOD, CallOrder, Tally

__all__ = ["call_all", "credentials", "hold_all"]

_PAUSES = 5
"""How many pauses a worker takes after each call while calls are held. There are more workers then, and they must not
keep the interpreter so busy that its timers are late."""


def credentials(order: CallOrder) -> grpc.ChannelCredentials | None:
    """Return the credentials for TLS; None if the peer connects without TLS."""
    return None if order.ca is None else grpc.ssl_channel_credentials(order.ca)


class _Workers:
    """Threads that make calls one after another and share a tally."""

    def __init__(self, order: CallOrder, channel: grpc.Channel) -> None:
        self.tally = Tally()
        self._order = order
        self._call: Callable[..., object] = channel.unary_unary(METHOD)
        self._over = time.monotonic() + order.seconds
        self._lock = threading.Lock()
        self._cut_off = False

    def work(self, number: int) -> None:
        """Make calls until the time is up; workers with odd numbers make wait-for-ready calls."""
        for made in itertools.count():
            if time.monotonic() >= self._over:
                return
            with self._lock:
                self.tally.made += 1
            self._call_once(f"{number}-{made}", wait_for_ready=number % 2 == 1)
            time.sleep(self._order.pause)

    def _call_once(self, name: str, *, wait_for_ready: bool) -> None:
        try:
            self._call(b"", metadata=[(CALL_ID, name)], wait_for_ready=wait_for_ready)
        except grpc.RpcError as error:
            with self._lock:
                if not self._cut_off:
                    self.tally.failed[error.code().name] += 1
        else:
            with self._lock:
                self.tally.ok += 1

    def cut_off(self) -> None:
        """Stop counting failures. Calls that fail from now on were cancelled, and count as unfinished."""
        with self._lock:
            self._cut_off = True


def call_all(order: CallOrder, channel: grpc.Channel) -> Tally:
    """Make calls with one thread per worker until the time is up, close the channel, and return the tally."""
    with ThreadPoolExecutor(order.workers) as pool:
        with channel:
            workers = _Workers(order, channel)
            running = [pool.submit(workers.work, number) for number in range(order.workers)]
            wait(running, timeout=order.seconds + GRACE)
            workers.cut_off()
        for worker in running:
            worker.result()
    return workers.tally


class _Holder:
    """Threads that make calls of every arity and keep references to everything the calls leave behind."""

    def __init__(self, order: CallOrder, channel: grpc.Channel) -> None:
        self.tally = Tally()
        self._order = order
        self._over = time.monotonic() + order.seconds
        self._lock = threading.Lock()
        self._cut_off = False
        self._kept: list[object] = []
        self._multicallables: list[Any] = [
            channel.unary_unary(METHOD),
            channel.unary_stream(METHOD),
            channel.stream_unary(METHOD),
            channel.stream_stream(METHOD),
        ]

    def calls(self, *, wait_for_ready: bool) -> Sequence[Callable[[], object]]:
        """Return functions that each make a call and wait for its end: one per arity and way to use the call."""
        unary, answers, requests, both = self._multicallables
        how = {"wait_for_ready": wait_for_ready}
        return [
            lambda: self._keep(unary.with_call(b"", **how)),
            lambda: self._keep(unary.future(b"", **how)).result(self._order.seconds),
            lambda: self._answers(answers(b"", **how)),
            lambda: self._keep(requests.with_call(iter([b""]), **how)),
            lambda: self._keep(requests.future(self._unfinished(), **how)).result(),
            lambda: self._answers(both(iter([b""]), **how)),
            lambda: self._answers(both(self._unfinished(), **how)),
        ]

    def work(self, call: Callable[[], object]) -> None:
        """Make calls until the time is up and keep the error of each call that fails."""
        while time.monotonic() < self._over:
            with self._lock:
                self.tally.made += 1
            try:
                call()
            except (grpc.RpcError, grpc.FutureTimeoutError, grpc.FutureCancelledError) as error:
                self._kept.append(error)
                code = error.code() if isinstance(error, grpc.RpcError) else grpc.StatusCode.DEADLINE_EXCEEDED
                with self._lock:
                    if not self._cut_off:
                        self.tally.failed[code.name] += 1
            else:
                with self._lock:
                    self.tally.ok += 1
            time.sleep(_PAUSES * self._order.pause)

    def cut_off(self) -> None:
        """Stop counting failures. Calls that fail from now on were cancelled, and count as unfinished."""
        with self._lock:
            self._cut_off = True

    def _keep(self, call: Any) -> Any:
        self._kept.append(call)
        return call

    def _answers(self, call: Any) -> None:
        for answer in self._keep(call):
            self._kept.append(answer)

    def _unfinished(self) -> Iterator[bytes]:
        requests = _endless()
        self._kept.append(requests)
        return requests


def _endless() -> Iterator[bytes]:
    yield b""
    threading.Event().wait()


def hold_all(order: CallOrder, channel: grpc.Channel, closed: Callable[[], None]) -> Tally:
    """Keep the channel busy, close it, report the close, and keep all references for the time in `--hold-ms`."""
    gc.disable()  # a collection would release the references
    with channel:
        holder = _Holder(order, channel)
        for wait_for_ready in (False, True):
            for call in holder.calls(wait_for_ready=wait_for_ready):
                threading.Thread(target=holder.work, args=(call,), daemon=True).start()
        time.sleep(order.seconds)
        holder.cut_off()
    closed()
    time.sleep((order.hold_ms or 0) / 1000)
    return holder.tally
