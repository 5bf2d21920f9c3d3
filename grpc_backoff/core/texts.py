"""What the texts of grpcio's core say: why a dial failed (CH-11), and whether a failed call reached a server (RT-2).

The core's texts differ from release to release, so everything that reads them is here.

A text that describes a failed call needs care. The core reports its own errors as a status code and a text, but so does
a server, and a proxy may even pass on the text of another core. Such a text is trusted only together with evidence that
no server can produce: the state of the connection when the call ended, and the absence of any metadata.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

import enum
import re
from functools import lru_cache
from typing import NamedTuple

from grpc_backoff.connection.events import NO_SETTINGS, Failure, Stage
from grpc_backoff.record import record

# Failed dials.

EXPLAIN_SERVICE = "grpc_backoff.WhyIsThereNoConnection"
EXPLAIN_METHOD = f"/{EXPLAIN_SERVICE}/Ask"
"""The method of the call that asks a channel why its dial failed: the only place where the core says it. The call fails
at once, with the reason in its details, and never leaves this process."""
MORE_THAN_THE_RETRY_BUFFER = bytes(256 * 1024 + 1)
"""The request of that call if there is a service config, whose retry policy would otherwise retry the call."""

_UNAVAILABLE = "UNAVAILABLE"
_NO_REASON = "the core gave no reason"
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


def failure_of(code: str, details: str) -> Failure:
    """Return why a dial failed, as the core's answer to the call that asks for it says."""
    if code != _UNAVAILABLE:
        return Failure(Stage.UNKNOWN, _NO_REASON)
    reason = reason_in(details or _NO_REASON)
    return Failure(stage_of(reason), reason)


def reason_in(text: str) -> str:
    """Return the core's message on one line, or `NO_SETTINGS` if it says that the attempt reached its limit."""
    if _CORES_LIMIT in text:
        return NO_SETTINGS
    text = text.partition("\0")[0]  # stray memory may follow a NUL, as in "Too many open files"
    return " ".join(text.split())


@lru_cache(64)
def stage_of(reason: str) -> Stage:
    """Return the stage that the core's message indicates; UNKNOWN if it contains no known phrase."""
    text = re.split(_ADDRESS, reason, maxsplit=1)[-1].lower()
    for stage, marks in _STAGE_MARKS:
        if any(mark in text for mark in marks):
            return stage
    return Stage.UNKNOWN


# Liveness calls.

LIVENESS_SERVICE = "grpc.health.v1.Health"
LIVENESS_METHOD = f"/{LIVENESS_SERVICE}/Check"
"""The method of the call that asks a peer whether it is alive (LV-1). Any answer will do, even that there is no such
method."""
WATCH_METHOD = f"/{LIVENESS_SERVICE}/Watch"
"""The method of the call whose answers say whether a server serves (RO-1)."""
TIMED_OUT = "DEADLINE_EXCEEDED"
"""The code of a call that has reached its deadline."""

# Failed calls.

_RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
_NO_ANSWER = {_UNAVAILABLE, "CANCELLED", "DEADLINE_EXCEEDED"}
"""The status codes with which a call can end without an answer from the server."""

_REFUSED = r"(Stream removed \()?GOAWAY received"
"""Matches the beginning of the core's text for a call that a GOAWAY rejected. Anywhere else in the text, these words
mean that the call was accepted and that its connection broke after a GOAWAY."""
_RESET = r"(Stream removed \(RST_STREAM \()?Received RST_STREAM with error code 7\)*"
"""Matches the core's text for a call whose stream was reset with REFUSED_STREAM."""
_UNSENT = r"failed to connect to all addresses|connections to all backends failing"
"""Matches the core's text for a call without a connection. Here, it means that the connection broke just as the call
was assigned to it."""
_OVERSIZED = r"(Received|Sent) message larger than max"
"""Matches the text for a message that exceeds a limit, from the core of the client or of the server."""

_NO_ANSWERS = (
    r"(Stream removed \()?(RST_STREAM \()?Received RST_STREAM with error code"
    r"|Received http2 header with status: |Data frame with END_STREAM flag received"
    r"|Sent message larger than max|Internal error from Core|Exception (iterating requests|serializing request)!"
)
"""Matches the beginning of texts with which grpcio or its core ends a call that the server has not answered, although
the status code is one that servers send. A server that sends such a text itself has no answer counted, which costs no
more than a wait."""


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


def says_goaway(code: str, details: str) -> bool:
    """Return whether a call that failed says that a GOAWAY ended it. A server may say so, so it may decide no retry."""
    return code == _UNAVAILABLE and re.match(_REFUSED, details) is not None


def says_refused(report: Report) -> bool:
    """Return whether a call that failed says that its stream was reset with REFUSED_STREAM (RT-13).

    Nothing proves it: a server that sends this text as its own status looks the same in every field of grpcio's calls.
    Even a genuine code does not prove that nothing was executed, because HAProxy sends it for calls that its server was
    executing when it was killed. So this may decide when a call is retried, but never whether it is.
    """
    return report.code == _UNAVAILABLE and not report.metadata and re.fullmatch(_RESET, report.details) is not None


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


def shows_life(code: str) -> bool:
    """Return whether a call that ended with this status on a connection that is still READY shows a living peer.

    UNAVAILABLE does: the core makes it only when a connection ends.
    """
    return is_answer(code) or code == _UNAVAILABLE


def is_answer(code: str) -> bool:
    """Return whether a call's status shows that the server answered it: the core may produce the other codes itself."""
    return code not in _NO_ANSWER


def pays(code: str, details: str) -> bool:
    """Return whether a call that ended with this status was answered by its server (CB-7).

    UNAVAILABLE is no answer, whoever sends it, nor is what the core makes of a stream that was reset.
    """
    return code == "OK" or (is_answer(code) and re.match(_NO_ANSWERS, details) is None)
