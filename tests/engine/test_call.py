"""What the calls of both APIs have in common."""

from __future__ import annotations

import pytest

from grpc_backoff.base.status import Link
from grpc_backoff.engine import call as c


@pytest.mark.parametrize("link", list(Link))
@pytest.mark.parametrize("code", ["UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "UNKNOWN"])
@pytest.mark.parametrize(
    "details", ["", "not now", "Socket closed", "GOAWAY received", "Received RST_STREAM with error code 7"]
)
def test_a_text_is_read_alike_again(details, code, link):
    """RT-2: a text that comes again says what it said the first time, and with another code or link perhaps not."""
    report = code, details, link, ()
    assert c._read_again(*report) == c._read_again(*report) == c._read(*report)


def test_few_texts_are_kept():
    """RT-2: what is kept of texts that failed attempts came with does not grow."""
    for number in range(200):
        c._read_again("UNAVAILABLE", f"text {number}", Link.OPEN, ())
    assert c._read_again.cache_info().currsize <= 32
