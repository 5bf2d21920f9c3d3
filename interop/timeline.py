"""What a server saw of the connections that were made to it: the one record that servers write and verdicts read.

Values only: nothing here opens a socket, reads a clock or judges. All times are seconds on one monotonic clock, counted
from the moment at which the server began to listen.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Ending", "Lag", "Request", "Timeline", "Visit", "Window"]


class Ending(enum.Enum):
    """How a connection ended."""

    OPEN = "open"
    """It had not, when the timeline was taken."""
    PEER_CLOSED = "peer closed"
    """The client sent FIN first."""
    PEER_RESET = "peer reset"
    """The client sent RST first."""
    CLOSED = "closed"
    """The server closed it, as its behaviour says."""
    RESET = "reset"
    """The server reset it, as its behaviour says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request stream.

    Attributes:
        at: when its HEADERS arrived.
        stream: its stream id.
        path: its `:path`.
        outcome: "ok", "reset", "refused" or "open".
        call: the id that the client gave the call; empty if it gave none.
    """

    at: float
    stream: int
    path: str
    outcome: str
    call: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One accepted connection; a moment that never came is None.

    Attributes:
        number: counts the accepted connections, from 1.
        client: a label of whose connection it is, where several clients share a server; otherwise empty.
        behaviour: the name of the behaviour that the script had for it.
        accepted: when it was accepted.
        first_bytes: when the client's first bytes arrived.
        preface: when the HTTP/2 client preface (and, on TLS, the handshake before it) was complete.
        settings_sent: when the server's SETTINGS frame was written.
        settings_acknowledged: when the client's acknowledgement of it arrived.
        requests: the request streams.
        ended: when the first sign of its end was seen or given.
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
    """A stretch of time in which nothing listened, so that the kernel refused connections and none was seen."""

    begin: float
    end: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """The server's event loop came back late.

    Attributes:
        at: when it did.
        by: how late that was, in seconds.
    """

    at: float
    by: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """All that a server saw, in order.

    Attributes:
        visits: the accepted connections by their number.
        refusing: when nothing listened.
        taken: when this record was taken.
        lags: when the server's event loop was late: moments may be noted as much too late.
        refused: when each dial reached the port, accepted or not, where that can be seen; None where it cannot.
    """

    visits: tuple[Visit, ...]
    refusing: tuple[Window, ...] = ()
    taken: float
    lags: tuple[Lag, ...] = ()
    refused: tuple[float, ...] | None = None

    def dials(self, attempts: Sequence[float], closed: float) -> tuple[tuple[int, ...], int]:
        """Return how many connections were accepted for each attempt, and how many after a client was closed.

        Those of an attempt were accepted from its beginning to that of the next one; the first attempt has also those
        before it. Where nothing listened, nothing was accepted.

        Args:
            attempts: when each began, in order.
            closed: when the client was closed.
        """
        counts = [0] * len(attempts)
        after = 0
        for visit in self.visits:
            if visit.accepted >= closed:
                after += 1
            elif counts:
                counts[max(0, bisect_right(attempts, visit.accepted) - 1)] += 1
        return tuple(counts), after
