"""The texts in which grpc's core describes a failed call, and when they can be trusted (RT-2).

The core reports its own findings as a status code and a text, which is also how a server reports its own. A proxy even
passes on the words of a core that is not ours. So a text is believed only beside what no server can say: the state of
the connection at the moment when the call ended, and the absence of any metadata.
"""

from __future__ import annotations

import enum
import re

from grpc_backoff.record import NamedTuple, record

__all__ = ["Link", "Report", "is_oversized", "never_left", "was_refused"]

_UNAVAILABLE = "UNAVAILABLE"
_RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"

_REFUSED = r"(Stream removed \()?GOAWAY received"
"""How the core's words begin for a call that a GOAWAY says was not taken. Farther behind, the connection of a call that
was taken has broken after a GOAWAY."""
_UNSENT = r"failed to connect to all addresses|connections to all backends failing"
"""The core's text for a call that found no connection: here, one that entered a connection as it broke."""
_OVERSIZED = r"(Received|Sent) message larger than max"
"""The text of a core, ours or the server's, for a message that exceeds its limit."""


class Link(enum.Enum):
    """The connection of a failed call, at the moment when the call ended."""

    NONE = "none"
    """The call had not entered any."""
    OPEN = "open"
    """It stood, or was being drained: whatever failed the call, the server may have said it."""
    BROKEN = "broken"
    """It ended together with the call."""
    UNREACHABLE = "unreachable"
    """It had ended, and the core had dialled again by itself, in vain."""


@record
class Report(NamedTuple):
    """How a call failed, as its client saw it.

    Attributes:
        code: the status code's name.
        details: the status details, the core's or the server's.
        link: the call's connection at that moment.
        metadata: whether any metadata of the server's came.
    """

    code: str
    details: str
    link: Link
    metadata: bool


def was_refused(report: Report) -> bool:
    """Return whether a GOAWAY ended the call before the server took it (gRFC A6).

    A server that says these words and ends the connection in the same moment is believed: a GOAWAY has the same power.
    """
    return _is_the_cores(report, Link.BROKEN, Link.UNREACHABLE) and re.match(_REFUSED, report.details) is not None


def never_left(report: Report) -> bool:
    """Return whether the call entered a connection as that broke, and so never left this process (CH-3)."""
    return _is_the_cores(report, Link.UNREACHABLE) and re.match(_UNSENT, report.details) is not None


def is_oversized(report: Report) -> bool:
    """Return whether a message was larger than one of the two sides takes.

    A server's own text may be trusted here: it can only prevent a retry, never cause one.
    """
    return report.code == _RESOURCE_EXHAUSTED and re.search(_OVERSIZED, report.details) is not None


def _is_the_cores(report: Report, *links: Link) -> bool:
    return report.code == _UNAVAILABLE and not report.metadata and report.link in links
