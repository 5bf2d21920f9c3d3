"""Metadata in a row: what can be sent comes back as it was; what cannot is refused, without its value."""

from __future__ import annotations

import json

import pytest

from grpc_backoff.ledger.metadata import decode_metadata, encode_metadata, metadata_bytes, unsendable


def test_metadata_as_text():
    """LG-1: metadata survive as text, binary values too."""
    metadata = (("a", "some text"), ("b-bin", b"\x00\xff"))

    assert decode_metadata(encode_metadata(metadata)) == metadata
    assert metadata_bytes(metadata) == 1 + 9 + 5 + 2


@pytest.mark.parametrize(
    ("key", "value"),
    [("x-bin", "abc"), ("x", b"raw"), ("x", "\xe9"), ("x", "a\n"), ("x", "a\x7f"), ("x", 7), (7, "a"), ("x-bin", None)],
)
def test_what_grpc_does_not_send(key, value):
    """LG-11: bytes for keys that end with -bin, printable ASCII for others; nothing else goes over the wire."""
    assert unsendable(key, value) is not None


@pytest.mark.parametrize(("key", "value"), [("x", ""), ("x", "a b~"), ("x-bin", b""), ("x-bin", b"\x00\n")])
def test_what_grpc_sends(key, value):
    """LG-11: what gRPC sends is stored."""
    assert unsendable(key, value) is None


@pytest.mark.parametrize(
    "text",
    ["secret", "7", '{"secret": 1}', '["secret"]', '[["x-bin", "secret!"]]', json.dumps([["x", "secret\n"]]), "null"],
)
def test_text_that_is_no_metadata(text):
    """LG-11: whatever stands in a row, the error is one kind and does not show it."""
    with pytest.raises(ValueError, match=r"metadata.*expected") as caught:
        decode_metadata(text)

    assert "secret" not in str(caught.value)
