"""Which error texts of grpc's core are trusted, and under what conditions."""

from __future__ import annotations

import pytest

from grpc_backoff.base.status import Link
from grpc_backoff.decide.calls.call_texts import (
    Report,
    has_expired,
    is_oversized,
    never_left,
    never_ran,
    says_calm,
    says_refused,
    turned_away,
    was_cut,
    was_refused,
)
from grpc_backoff.policy.checks import STATUS_CODES

GOAWAY = "GOAWAY received; Error code: 0; Debug Text: x"
RESET = "Received RST_STREAM with error code 7"
REFUSED = Report(code="UNAVAILABLE", details=GOAWAY, link=Link.BROKEN, metadata=False)
UNSENT = Report(
    code="UNAVAILABLE",
    details="failed to connect to all addresses; last error: x",
    link=Link.UNREACHABLE,
    metadata=False,
)
OVERSIZED = REFUSED._replace(code="RESOURCE_EXHAUSTED", details="CLIENT: Sent message larger than max (5 vs. 4)")


@pytest.mark.parametrize("details", [GOAWAY, f"Stream removed ({GOAWAY})"])
@pytest.mark.parametrize("link", [Link.BROKEN, Link.UNREACHABLE])
def test_refused(details, link):
    """RT-10: the core's text for a call rejected by a GOAWAY is trusted if the connection ended without metadata."""
    assert was_refused(REFUSED._replace(details=details, link=link))


@pytest.mark.parametrize(
    "change",
    [
        *({"link": link} for link in (Link.NONE, Link.OPEN)),  # the server may have sent the text
        *({"code": code} for code in STATUS_CODES if code != "UNAVAILABLE"),  # the core produces it with this code only
        {"metadata": True},  # the server sent the status
        {"details": ""},
        {"details": "not now"},
        {"details": f"Socket closed ({GOAWAY})"},  # the server accepted the call
        {"details": f"Stream removed (Socket closed ({GOAWAY}))"},
    ],
)
def test_not_trusted(change):
    """RT-2, RT-10: the core's texts say nothing on a connection that is up, with another code, or beside metadata."""
    assert not was_refused(REFUSED._replace(**change))
    assert not never_left(UNSENT._replace(**change))


@pytest.mark.parametrize(
    ("code", "details", "calm"),
    [
        ("UNAVAILABLE", "Stream removed (Socket closed (GOAWAY received; Error code: 11; Debug Text: ))", True),
        ("UNAVAILABLE", "GOAWAY received; Error code: 11; Debug Text: Maximum number of RST frames reached", True),
        ("UNAVAILABLE", "GOAWAY received; Error code: 11; Debug Text: too_many_pings", False),
        ("UNAVAILABLE", "GOAWAY received; Error code: 1; Debug Text: 11", False),
        ("INTERNAL", "GOAWAY received; Error code: 11; Debug Text: ", False),
    ],
)
def test_says_calm(code, details, calm):
    """HG-11: a GOAWAY with ENHANCE_YOUR_CALM is known, also behind what the socket says, unless it is about pings."""
    assert says_calm(code, details) is calm


@pytest.mark.parametrize("link", Link)
@pytest.mark.parametrize("details", [RESET, f"Stream removed (RST_STREAM ({RESET}))"])
def test_says_refused(details, link):
    """RT-13: both texts of the core for REFUSED_STREAM are known, whatever the state of the connection."""
    assert says_refused(REFUSED._replace(details=details, link=link))


@pytest.mark.parametrize(
    "change",
    [
        {"code": "CANCELLED"},
        {"metadata": True},
        {"details": RESET.replace("7", "8")},
        {"details": f"{RESET}0"},
        {"details": f"upstream: {RESET}"},
        {"details": GOAWAY},
    ],
)
def test_says_something_else(change):
    """RT-13: another code, text or HTTP/2 error, or any metadata, does not say that the stream was refused."""
    assert not says_refused(REFUSED._replace(**{"details": RESET} | change))


def test_never_left():
    """CH-3: if the core's redial failed, its text for a failed connection means that the call never left the client."""
    assert never_left(UNSENT)
    assert never_left(UNSENT._replace(details="connections to all backends failing"))
    assert not never_left(UNSENT._replace(link=Link.BROKEN))


CUT = "Received RST_STREAM with error code 2"


@pytest.mark.parametrize("link", Link)
def test_oversized(link):
    """RT-2: the text for an oversized message is trusted from either side, because it can only prevent a retry."""
    assert is_oversized(OVERSIZED._replace(link=link))
    assert not is_oversized(OVERSIZED._replace(code="UNAVAILABLE"))
    assert not is_oversized(OVERSIZED._replace(details="quota"))
    assert not is_oversized(OVERSIZED._replace(code="UNKNOWN"))


@pytest.mark.parametrize(
    ("code", "details"),
    [
        # The C core.
        ("RESOURCE_EXHAUSTED", "SERVER: Received message larger than max (66060326 vs. 4194304)"),
        ("RESOURCE_EXHAUSTED", "Received message larger than max (5 vs. 4)"),
        ("RESOURCE_EXHAUSTED", "received metadata size exceeds hard limit (value length 20000 vs. 16384)"),
        ("RESOURCE_EXHAUSTED", "received metadata size exceeds hard limit (20000 vs. 16384)"),
        # Go.
        ("RESOURCE_EXHAUSTED", "grpc: received message larger than max (5266822 vs. 4194304)"),
        ("RESOURCE_EXHAUSTED", "grpc: received message after decompression larger than max 4194304"),
        ("RESOURCE_EXHAUSTED", "grpc: message after decompression larger than max (5 vs. 4)"),
        ("RESOURCE_EXHAUSTED", "grpc: trying to send message larger than max (5 vs. 4)"),
        # Java.
        ("RESOURCE_EXHAUSTED", "gRPC message exceeds maximum size 4194304: 5242886"),
        ("RESOURCE_EXHAUSTED", "Decompressed gRPC message exceeds maximum size 4194304"),
        ("RESOURCE_EXHAUSTED", "Compressed gRPC message exceeds maximum size 4: 5 bytes read"),
        ("RESOURCE_EXHAUSTED", "message too large 5 > 4"),
        # .NET.
        ("RESOURCE_EXHAUSTED", "Received message exceeds the maximum configured message size."),
        ("RESOURCE_EXHAUSTED", "Sending message exceeds the maximum configured message size."),
        # Node.
        ("RESOURCE_EXHAUSTED", "Received message larger than max (4518352 vs 4194304)"),
        ("RESOURCE_EXHAUSTED", "Received message that decompresses to a size larger than 4194304"),
        ("RESOURCE_EXHAUSTED", "Attempted to send message with a size larger than 4194304"),
        # tonic.
        ("OUT_OF_RANGE", "Error, decoded message length too large: found 5117681 bytes, the limit is: 4194304 bytes"),
        ("OUT_OF_RANGE", "Error, encoded message length too large: found 5 bytes, the limit is: 4 bytes"),
        (
            "RESOURCE_EXHAUSTED",
            "Error decompressing: size limit, of 1048576 bytes, exceeded while decompressing message",
        ),
        # connect-go.
        ("RESOURCE_EXHAUSTED", "message size 5 is larger than configured max 4"),
        ("RESOURCE_EXHAUSTED", "message is larger than configured max 4 - unable to determine message size: x"),
        # A proxy.
        ("UNKNOWN", "Received http2 header with status: 413"),
    ],
)
def test_oversized_elsewhere(code, details):
    """RT-2: the refusals of an oversized message by other stacks are known, too."""
    assert is_oversized(OVERSIZED._replace(code=code, details=details))
    assert not is_oversized(OVERSIZED._replace(code="UNAVAILABLE", details=details))


@pytest.mark.parametrize(
    "details",
    [
        "too many messages",
        "received metadata size exceeds soft limit (9000 vs. 8192)",
        "quota: 5 is larger than 4",
        "out of memory",
        "Received http2 header with status: 413",
    ],
)
def test_not_oversized(details):
    """RT-2: another lack of resources is retried."""
    assert not is_oversized(OVERSIZED._replace(details=details))


@pytest.mark.parametrize(
    ("details", "cut"),
    [
        (CUT, True),
        (f"Stream removed (RST_STREAM ({CUT}))", True),
        ("Stream removed (RST_STREAM (Received RST_STREAM with error code 12))", True),
        ("Data frame with END_STREAM flag received", True),
        ("Stream removed (Data frame with END_STREAM flag received)", True),
        ("No status received", True),
        (f"{CUT}; and more", False),
        (f"upstream: {CUT}", False),
        ("Stream removed (Socket closed)", False),  # the connection ended, not the stream alone
        ("Stream removed (Deadline Exceeded)", False),
        ("boom", False),
        ("", False),
    ],
)
def test_cut(details, cut):
    """SB-2, RT-7: the core's own texts for a stream that was cut, whatever code it gives them."""
    assert was_cut(REFUSED._replace(code="INTERNAL", details=details)) is cut


def test_expired():
    """RT-7: the core's second text for its own deadline is known; a server's text is left as it is."""
    expired = REFUSED._replace(code="DEADLINE_EXCEEDED", details="Stream removed (Deadline Exceeded)")
    assert has_expired(expired)
    assert not has_expired(expired._replace(code="UNAVAILABLE"))
    assert not has_expired(expired._replace(details="the database has timed out"))


ENVOY = "upstream connect error or disconnect/reset before headers. reset reason: "
RETRIED = ENVOY.replace("reset reason", "retried and the latest reset reason")  # an attempt of Envoy's may have run
OVERLOADED, SERVICE_TIME = ("x-envoy-overloaded", "true"), ("x-envoy-upstream-service-time", "3")
SERVER = ("server", "envoy")


@pytest.mark.parametrize(
    ("change", "metadata", "expected"),
    [
        # The core's own evidence.
        ({"details": UNSENT.details, "link": Link.UNREACHABLE}, (), True),
        ({"details": UNSENT.details, "link": Link.OPEN}, (), False),
        ({"details": GOAWAY, "link": Link.BROKEN}, (), True),
        ({"details": GOAWAY, "link": Link.OPEN}, (), False),
        # What Envoy has not passed on.
        ({"details": f"{ENVOY}remote connection failure"}, (SERVER,), True),
        ({"details": f"{ENVOY}remote connection failure, transport failure reason: delayed\nconnect"}, (SERVER,), True),
        ({"details": f"{ENVOY}connection timeout"}, (SERVER,), True),
        ({"details": f"{ENVOY}overflow"}, (SERVER, OVERLOADED), True),
        ({"details": f"{ENVOY}overflow"}, (SERVER,), False),
        ({"details": "no healthy upstream"}, (SERVER,), True),
        ({"details": "local_rate_limited"}, (SERVER,), True),
        ({"details": "local_rate_limited", "code": "RESOURCE_EXHAUSTED"}, (SERVER,), True),
        ({"details": "envoy overloaded"}, (), True),
        ({"details": "no healthy upstream"}, (SERVICE_TIME,), False),  # the server's own status
        ({"details": "no healthy upstream", "code": "INTERNAL"}, (SERVER,), False),
        ({"details": "shop: no healthy upstream"}, (SERVER,), False),
        # What may have run.
        ({"details": f"{ENVOY}connection termination"}, (SERVER,), False),
        (
            {"details": f"{RETRIED}remote connection failure"},
            (SERVER,),
            False,
        ),
        ({"details": "upstream request timeout"}, (SERVER,), False),
        ({"details": "stream timeout"}, (SERVER,), False),
        ({"details": "upstream max stream duration reached"}, (SERVER,), False),
        ({"details": "Received http2 header with status: 502"}, (), False),
        ({"details": "Received http2 header with status: 503"}, (), False),
        ({"details": RESET}, (), False),
        ({"details": CUT, "code": "INTERNAL"}, (), False),
        ({"details": "Socket closed", "link": Link.BROKEN}, (), False),
    ],
)
def test_never_ran(change, metadata, expected):
    """RT-14: which failures count as calls that no server executed."""
    report = REFUSED._replace(**{"link": Link.OPEN, "metadata": bool(metadata)} | change)
    assert never_ran(report, metadata) is expected


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"details": "Received http2 header with status: 502"}, 502),
        ({"details": "Received http2 header with status: 503", "metadata": True}, 503),  # proxies send headers
        ({"details": "Stream removed (Received http2 header with status: 504)"}, 504),
        ({"details": "Received http2 header with status: 500"}, 0),
        ({"details": "Received http2 header with status: 429"}, 0),
        ({"details": "Received http2 header with status: 5030"}, 0),
        ({"details": "shop: Received http2 header with status: 503"}, 0),
        ({"details": "Received http2 header with status: 503", "code": "INTERNAL"}, 0),
    ],
)
def test_turned_away(change, status):
    """RT-15: which HTTP statuses came instead of an answer."""
    assert turned_away(REFUSED._replace(**{"link": Link.OPEN} | change)) == status
