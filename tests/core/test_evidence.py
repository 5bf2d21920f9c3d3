"""Which error texts of grpc's core are trusted, and under what conditions."""

from __future__ import annotations

import pytest

from grpc_backoff.core.texts import Link, Report, is_oversized, never_left, says_refused, was_refused
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


@pytest.mark.parametrize("link", Link)
def test_oversized(link):
    """RT-2: the text for an oversized message is trusted from either side, because it can only prevent a retry."""
    assert is_oversized(OVERSIZED._replace(link=link))
    assert not is_oversized(OVERSIZED._replace(code="UNAVAILABLE"))
    assert not is_oversized(OVERSIZED._replace(details="quota"))
