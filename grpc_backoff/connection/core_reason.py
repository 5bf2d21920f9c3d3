"""Reads from the words of grpcio's core how far a connection had come when it failed (CH-11)."""

from __future__ import annotations

import re
from functools import lru_cache

from grpc_backoff.connection.events import Stage

__all__ = ["one_line", "stage_of"]

_STAGE_MARKS = (
    (Stage.RESOLVE, ("errors resolving", "address lookup", "dns resolution", "hostname lookup", "name resolution")),
    (
        Stage.TCP,
        (
            "failed to connect to remote",
            "connect failed",
            "no such file",
            "unreachable",
            "no route",
            "connection refused",
            "too many open files",
            "http proxy",
        ),
    ),
    (Stage.TLS, ("handshake", "ssl", "tls", "certificate", "verification check", "check peer", "alpn")),
    (
        Stage.SETTINGS,
        (
            "settings",
            "http/2",
            "http2",
            "http1.x",
            "socket closed",
            "endpoint closing",
            "connection reset",
            "broken pipe",
            "recvmsg",
            "sendmsg",
        ),
    ),
)
"""The core's words by stage, in this order: a socket that is closed in the TLS handshake says both."""
_ADDRESS = r"last error: [A-Z_]+: (?:ipv4|ipv6|unix|unix-abstract|vsock):.*?: "
"""What stands before the core's words: a path may have "tls" in it."""


def one_line(text: str) -> str:
    """Return a text of the core's in one line."""
    text = text.partition("\0")[0]  # behind it the core's own memory can follow, as in that of "Too many open files"
    return " ".join(text.split())


@lru_cache(64)
def stage_of(reason: str) -> Stage:
    """Read the stage from the core's words."""
    said = re.split(_ADDRESS, reason, maxsplit=1)[-1].lower()
    for stage, marks in _STAGE_MARKS:
        if any(mark in said for mark in marks):
            return stage
    return Stage.UNKNOWN
