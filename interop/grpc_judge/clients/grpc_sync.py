"""Makes the calls for peers whose channel is a threaded `grpc.Channel`, and opens channels."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import grpc

from grpc_judge.clients.peer_program import CALL_ID, GRACE, METHOD, CallOrder, Tally


def opened(
    order: CallOrder, options: Sequence[tuple[str, Any]], insecure: Callable[..., Any], secure: Callable[..., Any]
) -> Any:
    """Open a channel with these options by one of these functions: by `secure`, which uses TLS, if the order has a CA.

    They are functions and not their module, which may load them late: a program must have loaded when it is ready.
    """
    if order.ca is None:
        return insecure(order.target, options)
    return secure(order.target, grpc.ssl_channel_credentials(order.ca), options)


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
