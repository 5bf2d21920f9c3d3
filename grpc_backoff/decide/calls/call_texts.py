"""What the end of a call says: whether the call reached a server (RT-2), and whether the server answered it (CB-7).

The texts of grpcio's core differ from release to release, so everything that reads them is here; those for failed dials
are in `decide/connections/dial_texts.py`.

A text that describes a failed call needs care. The core reports its own errors as a status code and a text, but so does
a server, and a proxy may even pass on the text of another core. Such a text is trusted only together with evidence that
no server can produce: the state of the connection when the call ended, and the absence of any metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.base.status import Link
from grpc_backoff.decide.calls.call_machine import TIMED_OUT

# Liveness calls.

LIVENESS_SERVICE = "grpc.health.v1.Health"
LIVENESS_METHOD = f"/{LIVENESS_SERVICE}/Check"
"""The method of the call that asks a peer whether it is alive (LV-1). Any answer will do, even that there is no such
method."""
WATCH_METHOD = f"/{LIVENESS_SERVICE}/Watch"
"""The method of the call whose answers say whether a server serves (RO-1)."""
_PROXY_HEADERS = ("via", "x-envoy-upstream-service-time")
_PROXIES = ("envoy", "istio-envoy", "nginx", "openresty", "caddy", "apache", "nghttpx", "cloudflare", "awselb")
"""How the values of the header `server` begin that the usual proxies send. Some servers send one of their own."""

# Failed calls.

_UNAVAILABLE = "UNAVAILABLE"
_RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
_NO_ANSWER = {_UNAVAILABLE, "CANCELLED", TIMED_OUT}
"""The status codes with which a call can end without an answer from the server."""

_REFUSED = r"(Stream removed \()?GOAWAY received"
"""Matches the beginning of the core's text for a call that a GOAWAY rejected. Anywhere else in the text, these words
mean that the call was accepted and that its connection broke after a GOAWAY."""
_RESET = r"(Stream removed \(RST_STREAM \()?Received RST_STREAM with error code 7\)*"
"""Matches the core's text for a call whose stream was reset with REFUSED_STREAM."""
_UNSENT = r"failed to connect to all addresses|connections to all backends failing"
"""Matches the core's text for a call without a connection. Here, it means that the connection broke just as the call
was assigned to it."""
_CUT = (
    r"(Stream removed \()?((RST_STREAM \()?Received RST_STREAM with error code \d+"
    r"|Data frame with END_STREAM flag received)\)*|No status received|Stream removed"  # the last is of grpcio 1.63
)
"""Matches the core's texts for a stream that ended without a status from the server: it was reset, or ended in the
middle. Proxies cut streams so once response headers are out."""
_EXPIRED = r"Stream removed \(Deadline Exceeded\)"
"""Matches the text that the core has instead of `EXPIRED`, for unary calls only without its own retries."""
EXPIRED = "Deadline Exceeded"
"""The core's text for a call that has reached its deadline."""
_OVERSIZED = (
    r"(received|sent|send) message (after decompression )?larger than max"  # the C core, Go, Node
    r"|received metadata size exceeds hard limit"  # the C core; above the soft limit, it refuses at random
    r"|message after decompression larger than max"  # older Go
    r"|gRPC message exceeds maximum size|message too large \d+ > \d+"  # Java
    r"|message exceeds the maximum configured message size"  # .NET
    r"|(send message with a|message that decompresses to a) size larger than"  # Node
    r"|(en|de)coded message length too large|size limit, of \d+ bytes, exceeded while decompressing"  # tonic
    r"|message (size \d+ )?is larger than configured max"  # connect-go
)
"""Matches the texts for a message, or metadata, beyond a limit, from the core or from servers of other stacks."""
_TOO_LARGE_FOR_HTTP = r"Received http2 header with status: 413"
"""Matches the core's text for a proxy's refusal of a request that is too large."""
_TURNED_AWAY = r"(Stream removed \()?Received http2 header with status: (50[234])\)?"
"""Matches the core's text for a call that a proxy or a draining server answered with an HTTP status, without gRPC's
trailers."""
_PROXYS = (
    r"upstream connect error or disconnect/reset before headers\. reset reason: (?P<reason>remote connection failure"
    r"|connection timeout|overflow)(, transport failure reason: .*)?"
    r"|no healthy upstream|local_rate_limited|envoy overloaded"
)
"""Matches the texts with which Envoy says that it has not passed a call on."""
_OVERLOADED, _ANSWERED = "x-envoy-overloaded", "x-envoy-upstream-service-time"
"""The metadata that Envoy adds to its own refusals at a limit, and to what the server behind it has answered."""


_TOO_MANY_PINGS = "[Tt]oo[ _]many[ _]pings"
"""Matches the core's text for a call whose connection the server ended because of the pings on it."""

_CALM = r"GOAWAY received; Error code: 11\b"
"""Matches the core's text for a call whose connection the server ended with GOAWAY(ENHANCE_YOUR_CALM)."""

_NO_ANSWERS = (
    r"Stream removed(?! \(CLIENT: Received message larger than max)"  # a message that is too large is an answer
    r"|Received RST_STREAM with error code|Received http2 header with status: |Data frame with END_STREAM flag received"
    r"|No status received|received metadata size exceeds|frame of size \d+ overflows"
    r"|(CLIENT: )?Sent message larger than max|Internal error from Core"
    r"|Exception (iterating requests|serializing request)!"
)
"""Matches the beginning of texts with which grpcio or its core ends a call that the server has not answered, although
the status code is one that servers send. A server that sends such a text itself has no answer counted, which costs no
more than a wait."""


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


def says_calm(code: str, details: str) -> bool:
    """Return whether a call that failed says that GOAWAY(ENHANCE_YOUR_CALM) ended it, and not because of pings.

    A text from a server may be trusted here, because it can only make hedging rarer.
    """
    return code == _UNAVAILABLE and re.search(_CALM, details) is not None and not says_too_many_pings(details)


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


def never_ran(report: Report, metadata: Iterable[tuple[str, str | bytes]]) -> bool:
    """Return whether a failed call says that no server executed it: a proxy by its text, or the core by its evidence.

    What a proxy says is not proven, because a server can send the same text. So it counts only for policies that ask
    for it (RT-14). The texts were measured with Envoy 1.40. What nginx, Apache, Caddy, nghttpx and HAProxy say for a
    server that they cannot reach is also what they say for one that dies during the call, so they have no text here.

    Args:
        report: how the call failed.
        metadata: its initial and trailing metadata.
    """
    if never_left(report) or was_refused(report):
        return True
    said = (
        re.fullmatch(_PROXYS, report.details, re.DOTALL) if report.code in (_UNAVAILABLE, _RESOURCE_EXHAUSTED) else None
    )
    if said is None:
        return False
    keys = {key for key, _ in metadata}
    return _ANSWERED not in keys and (said["reason"] != "overflow" or _OVERLOADED in keys)


def was_cut(report: Report) -> bool:
    """Return whether the core says that the stream ended without a status from the server.

    A server that sends this text looks the same. So it may make a subscription read on, but a call run again only at
    its attempt's time limit, where it would anyway (RT-7).
    """
    return re.fullmatch(_CUT, report.details) is not None


def turned_away(report: Report) -> int:
    """Return the HTTP status 502, 503 or 504 that came instead of an answer; 0 if none did (RT-15).

    A server that sends this text looks the same. So it may decide which connection a retry takes, but never whether
    there is one.
    """
    said = re.fullmatch(_TURNED_AWAY, report.details) if report.code == _UNAVAILABLE else None
    return 0 if said is None else int(said[2])


def has_expired(report: Report) -> bool:
    """Return whether the core's own timer ended the call, in the text that differs from `EXPIRED`."""
    return report.code == TIMED_OUT and re.fullmatch(_EXPIRED, report.details) is not None


def is_oversized(report: Report) -> bool:
    """Return whether a message, or metadata, exceeded the size limit of the client, of the server, or of a proxy.

    A text from the server may be trusted here, because it can only prevent a retry, never cause one.
    """
    if report.code == "UNKNOWN":
        return re.fullmatch(_TOO_LARGE_FOR_HTTP, report.details) is not None
    in_words = report.code in (_RESOURCE_EXHAUSTED, "OUT_OF_RANGE")  # the latter is tonic's
    return in_words and re.search(_OVERSIZED, report.details, re.IGNORECASE) is not None


def says_too_many_pings(details: str) -> bool:
    """Return whether a call failed because the server got more pings than it allows (gRFC A8).

    A text from a server may be trusted here, because it can only make pings rarer.
    """
    return re.search(_TOO_MANY_PINGS, details) is not None


def _is_the_cores(report: Report, *links: Link) -> bool:
    return report.code == _UNAVAILABLE and not report.metadata and report.link in links


def proxy_header(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Return the header by which an answer shows that a proxy has passed it on; empty if none does."""
    for key, value in metadata:
        if key in _PROXY_HEADERS or (key == "server" and str(value).lower().startswith(_PROXIES)):
            return key
    return ""


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

    UNAVAILABLE is no answer, even if the server sends it, nor is what the core makes of a stream that was reset.
    """
    return code == "OK" or (is_answer(code) and re.match(_NO_ANSWERS, details) is None)
