"""Which words of grpc's core are believed, and beside what."""

from __future__ import annotations

import pytest

from grpc_backoff.calls.core_words import Link, Report, is_oversized, never_left, was_refused
from grpc_backoff.policy.checks import STATUS_CODES

GOAWAY = "GOAWAY received; Error code: 0; Debug Text: x"
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
    """RT-10: the words, with nothing of the server's, as the connection ends."""
    assert was_refused(REFUSED._replace(details=details, link=link))


@pytest.mark.parametrize("link", [Link.NONE, Link.OPEN])
def test_words_on_a_connection_that_stands(link):
    """RT-2: a server may have said them."""
    assert not was_refused(REFUSED._replace(link=link))
    assert not never_left(UNSENT._replace(link=link))


@pytest.mark.parametrize("code", [code for code in STATUS_CODES if code != "UNAVAILABLE"])
def test_words_with_another_code(code):
    """RT-2: the core says UNAVAILABLE."""
    assert not was_refused(REFUSED._replace(code=code))
    assert not never_left(UNSENT._replace(code=code))


def test_words_beside_metadata():
    """RT-2: what brings metadata is the server's."""
    assert not was_refused(REFUSED._replace(metadata=True))
    assert not never_left(UNSENT._replace(metadata=True))


@pytest.mark.parametrize(
    "details", ["", "not now", f"Socket closed ({GOAWAY})", f"Stream removed (Socket closed ({GOAWAY}))"]
)
def test_other_words(details):
    """RT-10: farther behind, the same words tell of a call that was taken."""
    assert not was_refused(REFUSED._replace(details=details))
    assert not never_left(UNSENT._replace(details=details))


def test_never_left():
    """CH-3: the words, as the core dialled for the call in vain."""
    assert never_left(UNSENT)
    assert never_left(UNSENT._replace(details="connections to all backends failing"))
    assert not never_left(UNSENT._replace(link=Link.BROKEN))


@pytest.mark.parametrize("link", Link)
def test_oversized(link):
    """RT-2: the words of either side's core, wherever they stand; they can only prevent a repetition."""
    assert is_oversized(OVERSIZED._replace(link=link))
    assert not is_oversized(OVERSIZED._replace(code="UNAVAILABLE"))
    assert not is_oversized(OVERSIZED._replace(details="quota"))
