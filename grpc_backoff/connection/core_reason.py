"""Infers from the messages of grpcio's core how far a connection attempt got before it failed (CH-11)."""

from __future__ import annotations

import re
from functools import lru_cache

from grpc_backoff.connection.events import Stage

NO_SETTINGS = "no SETTINGS frame within the attempt's time limit"
"""The reason given for an attempt that reached its limit, whether this library or the core noticed first (CH-4)."""
_CORES_LIMIT = "timed out before receiving SETTINGS frame"

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
"""The phrases in the core's messages that indicate each stage. Some messages match several stages; the first one
counts."""
_ADDRESS = r"last error: [A-Z_]+: (?:ipv4|ipv6|unix|unix-abstract|vsock):.*?: "
"""Matches the prefix of the core's message, because the address in it may contain a phrase, such as "tls" in a path."""


def reason_in(text: str) -> str:
    """Return the core's message on one line, or `NO_SETTINGS` if it says that the attempt reached its limit."""
    if _CORES_LIMIT in text:
        return NO_SETTINGS
    text = text.partition("\0")[0]  # stray memory may follow a NUL, as in "Too many open files"
    return " ".join(text.split())


@lru_cache(64)
def stage_of(reason: str) -> Stage:
    """Return the stage that the core's message indicates; UNKNOWN if it contains no known phrase."""
    said = re.split(_ADDRESS, reason, maxsplit=1)[-1].lower()
    for stage, marks in _STAGE_MARKS:
        if any(mark in said for mark in marks):
            return stage
    return Stage.UNKNOWN
