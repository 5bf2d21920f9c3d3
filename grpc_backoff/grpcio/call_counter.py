"""Shows a plugin of grpcio that counts calls those that end without a connection, as plain grpcio does (RT-12).

Such a plugin counts the calls that are made on the core's channels. Here, a call gets a channel of the core once it has
a connection, so the plugin would see no calls in an outage.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from typing import Any

import grpc

from grpc_backoff.grpcio.forks import generation

_NEVER_DIALS = (
    ("grpc.service_config", '{"loadBalancingConfig": [{"priority_experimental": {"children": {}, "priorities": []}}]}'),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_channelz", 0),
)
"""The options of a channel that resolves its target, and then fails fail-fast calls with UNAVAILABLE, because its load
balancing policy has nothing to dial. Calls that wait reach their deadline."""


_RESOLVES_WITHIN = 5.0
"""How long a call waits for the target's name at most, in seconds, so that little is left after `close()`."""


class CallCounter:
    """Makes each call that has ended without a connection once more, on a channel that never dials.

    The plugin counts it with the same target, method and code. Thread-safe.
    """

    def __init__(self, target: str) -> None:
        """Prepare; the channel is made for the first call."""
        importlib.import_module("grpc._channel")  # which grpc imports when it makes a channel (CH-12)
        self._target = target
        self._channel: Any = None
        self._calls: set[object] = set()
        self._lock = threading.RLock()  # a call may end while it is made
        self._generation = generation()
        self._closed = False

    def count(self, method: str, code: str) -> None:
        """Let the plugin count a call that has ended with this code, UNAVAILABLE or DEADLINE_EXCEEDED."""
        waits = code != grpc.StatusCode.UNAVAILABLE.name
        if self._generation is not generation():
            return
        with self._lock, contextlib.suppress(Exception):  # of the plugin, or too many threads: the call goes on
            if self._closed:
                return
            if self._channel is None:
                self._channel = grpc.insecure_channel(self._target, _NEVER_DIALS)
            timeout = 0.0 if waits else _RESOLVES_WITHIN
            call = self._channel.unary_unary(method).future(b"", timeout=timeout, wait_for_ready=waits)
            self._calls.add(call)  # grpc cancels a call to which nothing refers
            call.add_done_callback(self._ended)

    def close(self) -> None:
        """Count no more calls, and close the channel once the last one has been counted, which takes a moment."""
        self._closed = True
        self._close_unused()

    def _ended(self, call: object) -> None:
        self._calls.discard(call)
        self._close_unused()

    def _close_unused(self) -> None:
        if self._generation is not generation():
            return  # the channel belongs to the parent of a fork
        with self._lock:
            if not self._closed or self._calls:
                return
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()
