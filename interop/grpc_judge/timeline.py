"""The timeline of a server: what it saw of its connections. Servers write it, and clauses judge it.

This module contains only values; nothing here opens a socket, reads a clock or judges. All times are in seconds on one
monotonic clock, counted from the moment when the server started to listen.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Ending(enum.Enum):
    """How a connection ended."""

    OPEN = "open"
    """The connection was still open when the timeline was taken."""
    PEER_CLOSED = "peer closed"
    """The client sent FIN first."""
    PEER_RESET = "peer reset"
    """The client sent RST first."""
    CLOSED = "closed"
    """The server closed the connection, as its behaviour says."""
    RESET = "reset"
    """The server reset the connection, as its behaviour says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request stream.

    Attributes:
        at: when its HEADERS arrived.
        stream: its stream id.
        path: its `:path`.
        outcome: "ok", "unavailable", "reset", "refused" or "open".
        call: the id that the client gave the call; empty if there is none.
    """

    at: float
    stream: int
    path: str
    outcome: str
    call: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """An accepted connection. The time of an event that never happened is None.

    Attributes:
        number: its place among the accepted connections, counted from 1.
        client: a label that distinguishes several clients; empty if there is only one.
        behaviour: the name of its behaviour in the script.
        accepted: when it was accepted.
        first_bytes: when the client's first bytes arrived.
        preface: when the HTTP/2 client preface (and with TLS, the handshake before it) was complete.
        settings_sent: when the server's SETTINGS frame was written.
        settings_acknowledged: when the client's acknowledgement of that frame arrived.
        requests: the request streams.
        ended: when either side began to end it.
        ending: how it ended.
    """

    number: int
    client: str = ""
    behaviour: str
    accepted: float
    first_bytes: float | None = None
    preface: float | None = None
    settings_sent: float | None = None
    settings_acknowledged: float | None = None
    requests: tuple[Request, ...] = ()
    ended: float | None = None
    ending: Ending = Ending.OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A period in which nothing listened. The kernel refused connections, so the server saw none."""

    begin: float
    end: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """A delay of the server's event loop.

    Attributes:
        at: when the delay ended.
        by: how long it was, in seconds.
    """

    at: float
    by: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Everything that a server saw, in order.

    Attributes:
        visits: the accepted connections, ordered by number.
        refusing: the periods in which nothing listened.
        taken: when this record was taken.
        lags: the delays of the server's event loop; times near one may have been recorded late.
        refused: when each dial reached the port, whether accepted or not; None if dials were not visible.
    """

    visits: tuple[Visit, ...]
    refusing: tuple[Window, ...] = ()
    taken: float
    lags: tuple[Lag, ...] = ()
    refused: tuple[float, ...] | None = None
