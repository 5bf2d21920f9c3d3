"""The scenarios, which define what a server does to a client. `matrix/` stages them."""

from __future__ import annotations

import enum
from typing import Final


class Scenario(enum.Enum):
    """What a server does. The value completes the sentence "The server ..." in reports."""

    HANG_UP = "accepts each connection and closes it at once"
    STEADY = "accepts each connection and closes it at once, and configurable clients have a short MAX_BACKOFF"
    FAILURES = "resets connections, speaks HTTP/1.1, or answers with garbage"
    TLS_SILENT = "accepts connections but never answers the TLS handshake"
    SLOW_FAILURE = "accepts each connection and closes it after three quarters of INITIAL_BACKOFF"
    SILENT = "accepts connections but sends SETTINGS byte by byte or not at all"
    SLOW_SETTINGS = "sends SETTINGS late, but within MIN_CONNECT_TIMEOUT"
    HANDSHAKE = "completes the TLS handshake and then closes the connection"
    TLS_FAILURE = (
        "shows a certificate that the client does not trust, answers the TLS handshake with garbage, or closes"
    )
    RESET = "closes a few connections, serves one for a while and breaks it, twice, and closes all later ones"
    FLAPPING = "sends SETTINGS and hangs up, with or without GOAWAY"
    LIMITED = "answers calls and soon ends each connection with GOAWAY"
    DEAD_UPSTREAM = "answers calls with UNAVAILABLE and soon ends each connection with GOAWAY"
    DRAINED = "sends SETTINGS, a GOAWAY without an error, and hangs up"
    UNSTABLE = "sends SETTINGS and hangs up, and the client counts this as a failed attempt"
    HERD = "serves two clients, drops both at the same moment, and then closes each new connection"
    OUTAGE = "works, goes down for a while, and comes back"
    RESTART = "is replaced again and again, each time with GOAWAY, and one replacement accepts no calls"

    @property
    def label(self) -> str:
        """The name in file names, in JSON and on the command line."""
        return self.name.lower()


SCHEDULE: Final = (Scenario.HANG_UP, Scenario.STEADY)
"""The scenarios from which a client's own schedule is fitted."""
