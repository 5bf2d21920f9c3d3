"""What grpcio's core says of a failed dial: at which stage it failed, and why (CH-11).

The core's texts differ from release to release, so everything that reads them is here; those for failed calls are in
`decide/calls/call_texts.py`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from grpc_backoff.base.status import Failure, Stage

NO_SETTINGS = "failed to connect to all addresses; last error: no SETTINGS frame within the attempt's time limit"
"""The reason given for an attempt that reached its limit, whether this library or the core noticed first (CH-4). It
begins like the core's, because client libraries recognize a server that cannot be reached by these words."""
EXPLAIN_SERVICE = "grpc_backoff.WhyIsThereNoConnection"
EXPLAIN_METHOD = f"/{EXPLAIN_SERVICE}/Ask"
"""The method of the call that asks a channel why its dial failed: the only place where the core says it. The call fails
at once, with the reason in its details, and never leaves this process."""
MORE_THAN_THE_RETRY_BUFFER = bytes(256 * 1024 + 1)
"""The request of that call if there is a service config, whose retry policy would otherwise retry the call."""

_UNAVAILABLE = "UNAVAILABLE"
_NO_REASON = "the core gave no reason"
_CORES_LIMIT = "timed out before receiving SETTINGS frame"
_UNUSABLE = r"(?s:Failed to create (?:secure client )?channel(?: to '.*?':)?|(?=Illegal status code from resolver))"
"""Matches the beginning of the core's texts, with various codes, for a target or a service config that it cannot use.
The target in them may contain a phrase, too, and the error of a call names it anyway."""

_ALERT = "Unwrap failed (TSI_DATA_CORRUPTED)"
_REFUSES = "the server ended the TLS handshake with an alert: it may want a client certificate"
"""What the core's message means if the peer of a TLS 1.3 handshake sends an alert after the client's last message."""

_STAGE_MARKS = (
    (
        Stage.RESOLVE,
        (
            "errors resolving",
            "address lookup",
            "dns resolution",
            "hostname lookup",
            "name resolution",
            "from resolver",
            "target uri",
        ),
    ),
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
    (
        Stage.TLS,
        ("handshake", "ssl", "tls", "certificate", "verification check", "check peer", "alpn", "unwrap failed"),
    ),
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
    unusable = re.match(_UNUSABLE, details)
    lasting = unusable is not None and unusable.end() > 0  # a resolver may find its name server later
    if unusable is not None:
        details = details[unusable.end() :] or details
    elif code != _UNAVAILABLE:
        details = ""  # what a server has said, or the end of the call itself
    reason = reason_in(details or _NO_REASON)
    return Failure(stage_of(reason), reason, lasting)


def reason_in(text: str) -> str:
    """Return the core's message on one line, or `NO_SETTINGS` if it says that the attempt reached its limit."""
    if _CORES_LIMIT in text:
        return NO_SETTINGS
    text = text.partition("\0")[0]  # stray memory may follow a NUL, as in "Too many open files"
    return " ".join(text.split()).replace(_ALERT, f"{_ALERT}: {_REFUSES}")


@lru_cache(64)
def stage_of(reason: str) -> Stage:
    """Return the stage that the core's message indicates; UNKNOWN if it contains no known phrase."""
    text = re.split(_ADDRESS, reason, maxsplit=1)[-1].lower()
    for stage, marks in _STAGE_MARKS:
        if any(mark in text for mark in marks):
            return stage
    return Stage.UNKNOWN
