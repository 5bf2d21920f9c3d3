"""Keeps grpcio's core running.

The core shuts down when its last channel is closed, and a channel that waits for its next attempt has none. Starting
the core again takes longer than many attempts, and aborts the process if it has no file descriptor left. So a channel
that never connects stays open from a connector's first failed attempt until it has a connection or dials no more. It is
not open for longer, because with grpcio's support for forks, children that were forked during a response stream exited
if it was.

From 1.80 on, grpcio's core performs its input and output on its own threads. In earlier versions it does so only while
some thread waits for it. Without such a thread, no connection is established, and the end of one goes unnoticed. For
these versions, the thread in this module waits as long as there are threaded channels, on another such channel.
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


class Standby:
    """A channel of the core that never connects and is open as long as it is held. Used by one thread."""

    def __init__(self) -> None:
        """Start without a channel."""
        self._holders: set[object] = set()
        self._channel: Any = None

    def hold(self, holder: object) -> None:
        """Keep the core running until `holder` drops this."""
        self._holders.add(holder)
        if self._channel is None:
            self._channel = _channel_to_nowhere()

    def drop(self, holder: object) -> None:
        """Let the core shut down, as far as `holder` is concerned; harmless if it does not hold this."""
        self._holders.discard(holder)
        if not self._holders and self._channel is not None:
            close_channel(self._channel)
            self._channel = None


def _channel_to_nowhere() -> Any:
    return core_channel("127.0.0.1:0", None, [("grpc.enable_channelz", 0)], None)


class Pump:
    """A thread that waits for the core."""

    def __init__(self) -> None:
        self._channel: Any = _channel_to_nowhere()
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
