"""Interprets the texts with which grpc's core describes a failed call, and decides when to trust them (RT-2).

The core reports its own errors as a status code and a text, but so does a server, and a proxy may even pass on the text
of another core. A text is therefore trusted only together with evidence that no server can produce: the state of the
connection when the call ended, and the absence of any metadata.
"""

from __future__ import annotations

import enum
import re
from typing import NamedTuple

from grpc_backoff.record import record

_UNAVAILABLE = "UNAVAILABLE"
_RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"

_REFUSED = r"(Stream removed \()?GOAWAY received"
"""Matches the beginning of the core's text for a call that a GOAWAY rejected. Anywhere else in the text, these words
mean that the call was accepted and that its connection broke after a GOAWAY."""
_UNSENT = r"failed to connect to all addresses|connections to all backends failing"
"""Matches the core's text for a call without a connection. Here, it means that the connection broke just as the call
was assigned to it."""
_OVERSIZED = r"(Received|Sent) message larger than max"
"""Matches the text for a message that exceeds a limit, from the core of the client or of the server."""


class Link(enum.Enum):
    """The state of a failed call's connection at the moment the call ended."""

    NONE = "none"
    """The call had not been assigned to a connection."""
    OPEN = "open"
    """The connection was up or draining, so the status may have come from the server."""
    BROKEN = "broken"
    """The connection ended together with the call."""
    UNREACHABLE = "unreachable"
    """The connection had already ended, and the core had redialled by itself without success."""


@record
class Report(NamedTuple):
    """How a call failed, as seen by the client.

    Attributes:
        code: the status code's name.
        details: the status details, from the core or the server.
        link: the state of the call's connection when the call ended.
        metadata: whether any metadata arrived from the server.
    """

    code: str
    details: str
    link: Link
    metadata: bool


def was_refused(report: Report) -> bool:
    """Return whether a GOAWAY ended the call before the server accepted it (gRFC A6).

    A server that sends this text and closes the connection at the same moment is trusted, because it could just as well
    have sent a GOAWAY.
    """
    return _is_the_cores(report, Link.BROKEN, Link.UNREACHABLE) and re.match(_REFUSED, report.details) is not None


def never_left(report: Report) -> bool:
    """Return whether the call was assigned just as its connection broke, and so never left this process (CH-3)."""
    return _is_the_cores(report, Link.UNREACHABLE) and re.match(_UNSENT, report.details) is not None


def is_oversized(report: Report) -> bool:
    """Return whether a message exceeded the size limit of the client or of the server.

    A text from the server may be trusted here, because it can only prevent a retry, never cause one.
    """
    return report.code == _RESOURCE_EXHAUSTED and re.search(_OVERSIZED, report.details) is not None


def _is_the_cores(report: Report, *links: Link) -> bool:
    return report.code == _UNAVAILABLE and not report.metadata and report.link in links
