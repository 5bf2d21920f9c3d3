"""Interprets the texts with which grpc's core describes a failed call, and decides when to trust them (RT-2).

The core reports its own errors as a status code and a text, but so does a server, and a proxy may even pass on the text
of another core. So a text is trusted only together with evidence that no server can produce: the state of the
connection when the call ended, and the absence of any metadata.
"""

from __future__ import annotations

import enum
import re

from grpc_backoff.record import NamedTuple, record

__all__ = ["Link", "Report", "is_oversized", "never_left", "was_refused"]

_UNAVAILABLE = "UNAVAILABLE"
_RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"

_REFUSED = r"(Stream removed \()?GOAWAY received"
"""Matches the beginning of the core's text for a call that a GOAWAY rejected. Anywhere else in the text, the words mean
that the call was accepted and its connection broke after a GOAWAY."""
_UNSENT = r"failed to connect to all addresses|connections to all backends failing"
"""The core's text for a call without a connection: here, one that was assigned to a connection as it broke."""
_OVERSIZED = r"(Received|Sent) message larger than max"
"""The text of either core, the client's or the server's, for a message that exceeds its limit."""


class Link(enum.Enum):
    """The state of a failed call's connection at the moment the call ended."""

    NONE = "none"
    """The call had not been assigned to a connection."""
    OPEN = "open"
    """The connection was up or draining: whatever failed the call, the server may have sent the status."""
    BROKEN = "broken"
    """The connection ended together with the call."""
    UNREACHABLE = "unreachable"
    """The connection had already ended, and the core had redialled by itself, without success."""


@record
class Report(NamedTuple):
    """How a call failed, as seen by the client.

    Attributes:
        code: the status code's name.
        details: the status details, from the core or the server.
        link: the state of the call's connection at that moment.
        metadata: whether any metadata arrived from the server.
    """

    code: str
    details: str
    link: Link
    metadata: bool


def was_refused(report: Report) -> bool:
    """Return whether a GOAWAY ended the call before the server accepted it (gRFC A6).

    A server that sends this text and closes the connection at the same moment is trusted: it could just as well have
    sent a GOAWAY.
    """
    return _is_the_cores(report, Link.BROKEN, Link.UNREACHABLE) and re.match(_REFUSED, report.details) is not None


def never_left(report: Report) -> bool:
    """Return whether the call was assigned to a connection as that broke, and so never left this process (CH-3)."""
    return _is_the_cores(report, Link.UNREACHABLE) and re.match(_UNSENT, report.details) is not None


def is_oversized(report: Report) -> bool:
    """Return whether a message exceeded the size limit of one of the two sides.

    A text from the server may be trusted here: it can only prevent a retry, never cause one.
    """
    return report.code == _RESOURCE_EXHAUSTED and re.search(_OVERSIZED, report.details) is not None


def _is_the_cores(report: Report, *links: Link) -> bool:
    return report.code == _UNAVAILABLE and not report.metadata and report.link in links
