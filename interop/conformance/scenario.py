"""The scenarios that clauses read: what a server does to a client, by name. `interop/matrix/` stages them."""

from __future__ import annotations

import enum

__all__ = ["Scenario"]


class Scenario(enum.Enum):
    """What the server does. The value completes "The server ..." in reports."""

    HANG_UP = "accepts each connection and closes it at once"
    STEADY = "accepts each connection and closes it at once, to a client told a MAX_BACKOFF that is soon reached"
    FAILURES = "resets, speaks HTTP/1.1, answers with garbage"
    TLS_SILENT = "accepts, and never answers the TLS handshake"
    SLOW_FAILURE = "closes each connection three quarters of INITIAL_BACKOFF after it was made"
    SILENT = "accepts, and sends SETTINGS never, or byte by byte"
    SLOW_SETTINGS = "sends SETTINGS late, yet within MIN_CONNECT_TIMEOUT"
    HANDSHAKE = "finishes the TLS handshake, then closes"
    RESET = "closes a few connections, serves one for a while and breaks it, then closes again"
    FLAPPING = "sends SETTINGS and hangs up, with GOAWAY or without"
    UNSTABLE = "sends SETTINGS and hangs up, to a client told that this is a failure"
    HERD = "serves two clients, drops both at the same moment, then closes each connection"
    OUTAGE = "serves, is gone for a while, and serves again"
    RESTART = "is replaced again and again, each time with GOAWAY, and once takes no call"
    HELD_OUTAGE = "serves, falls silent, hangs up, and serves again, to a client that keeps what is left of its calls"
    HELD_RESTART = "is replaced with GOAWAY and hangs up in between, to a client that keeps what is left of its calls"
    HELD_MOVE = "moves to another address, from a client that keeps what is left of its calls"

    @property
    def label(self) -> str:
        """The name in file names, in JSON and on the command line."""
        return self.name.lower()
