"""Keeps grpcio's core running in versions in which the core has no threads of its own.

From 1.80 on, grpcio's core performs its input and output on its own threads. In earlier versions it does so only while
some thread waits for it. Without such a thread, no connection is established, and the end of one goes unnoticed. For
these versions, the thread in this module waits as long as there are threaded channels, on a channel that never
connects.
"""

from __future__ import annotations

import threading
import time
from contextvars import Context
from typing import Any

import grpc

from grpc_backoff.sync.grpcio import close_channel, core_channel

_OWN_THREADS_SINCE = (1, 80)
_SLICE = 0.2
"""The longest single wait, in seconds. Closing a channel blocks until such a wait on it ends, so it must be short."""
_IDLE = 0
"""IDLE, as the integer that grpcio's core uses."""


def needs_pump() -> bool:
    """Return whether this version of grpcio needs a thread that waits for the core."""
    return tuple(int(part) for part in grpc.__version__.split(".")[:2]) < _OWN_THREADS_SINCE


class Pump:
    """A thread that waits for the core."""

    def __init__(self) -> None:
        self._channel: Any = core_channel("127.0.0.1:0", None, [("grpc.enable_channelz", 0)], None)
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="grpc-backoff-pump", daemon=True)
        Context().run(self._thread.start)

    def _run(self) -> None:
        while not self._stopped:
            self._channel._channel.watch_connectivity_state(_IDLE, time.time() + _SLICE)  # noqa: SLF001 - see `grpcio.py`
        close_channel(self._channel)

    def stop(self) -> None:
        """Stop waiting; the thread ends within `_SLICE` seconds."""
        self._stopped = True
