"""Keeps grpcio's core running, and waits for it.

The core runs as long as one of its channels is open. The standby is such a channel, which never connects; no thread
waits for it, because a thread that is inside the core at a fork keeps grpcio from preparing for the fork, and a child
in which the core cannot be shut down exits.

From 1.80 on, grpcio's core performs its input and output on its own threads. In earlier versions it does so only while
some thread waits for it. Without such a thread, no connection is established, and the end of one goes unnoticed. For
these versions, the pump waits as long as there are threaded channels, on another such channel.
"""

from __future__ import annotations

import time
from functools import cache

import grpc

from grpc_backoff.base import threads
from grpc_backoff.grpcio.sync_private import close_channel, core_channel, inner_channel

_OWN_THREADS_SINCE = (1, 80)
_SLICE = 0.2
"""The longest single wait, in seconds. Closing a channel blocks until such a wait on it ends, so it must be short."""
_IDLE = 0
"""IDLE, as the integer that grpcio's core uses."""


@cache
def needs_pump() -> bool:
    """Return whether this version of grpcio needs a thread that waits for the core."""
    return tuple(int(part) for part in grpc.__version__.split(".")[:2]) < _OWN_THREADS_SINCE


class Standby:
    """A channel of the core that never connects. Used by one thread at a time."""

    def __init__(self) -> None:
        """Start without a channel."""
        self._channel: grpc.Channel | None = None

    def open(self) -> None:
        """Keep the core running from now on."""
        if self._channel is None:
            self._channel = core_channel("127.0.0.1:0", None, [("grpc.enable_channelz", 0)], None)

    def close(self) -> None:
        """Let the core shut down; harmless if this is not open."""
        channel, self._channel = self._channel, None
        if channel is not None:
            close_channel(channel)

    def wait(self, seconds: float) -> bool:
        """Wait for the core in place of the pump; return False at once if this is not open."""
        if self._channel is None:
            return False
        inner_channel(self._channel).watch_connectivity_state(_IDLE, time.time() + seconds)
        return True


class Pump:
    """A thread that waits for the core."""

    def __init__(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: no thread can be started.
        """
        self._standby = Standby()
        self._standby.open()
        self._stopped = False
        try:
            threads.start(self._run, "grpc-backoff-pump")
        except RuntimeError:
            self._standby.close()
            raise

    def _run(self) -> None:
        while not self._stopped:
            self._standby.wait(_SLICE)
        self._standby.close()

    def stop(self) -> None:
        """Stop waiting; the thread ends within `_SLICE` seconds."""
        self._stopped = True
