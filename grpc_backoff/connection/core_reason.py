"""Infers from the error text of grpcio's core how far a connection attempt came before it failed (CH-11)."""

from __future__ import annotations

import re
from functools import lru_cache

from grpc_backoff.connection.events import Stage

__all__ = ["NO_SETTINGS", "reason_in", "stage_of"]

NO_SETTINGS = "no SETTINGS frame within the attempt's time limit"
"""The reason of an attempt that reached its limit; the core has the same limit, and may notice first (CH-4)."""
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
"""The core's phrases by stage, in this order: a socket closed during the TLS handshake matches both."""
_ADDRESS = r"last error: [A-Z_]+: (?:ipv4|ipv6|unix|unix-abstract|vsock):.*?: "
"""The prefix of the core's text, with an address that may itself contain a phrase, such as "tls" in a path."""


def reason_in(text: str) -> str:
    """Return the core's text on one line, or `NO_SETTINGS` if it says that the attempt reached its limit."""
    if _CORES_LIMIT in text:
        return NO_SETTINGS
    text = text.partition("\0")[0]  # after a NUL, the core's memory may follow, as for "Too many open files"
    return " ".join(text.split())


@lru_cache(64)
def stage_of(reason: str) -> Stage:
    """Return the stage that the core's text indicates."""
    said = re.split(_ADDRESS, reason, maxsplit=1)[-1].lower()
    for stage, marks in _STAGE_MARKS:
        if any(mark in said for mark in marks):
            return stage
    return Stage.UNKNOWN
