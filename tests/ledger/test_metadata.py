"""Metadata in a row: valid metadata is stored unchanged, and errors for invalid metadata do not show its values."""

from __future__ import annotations

import json

import pytest

from grpc_backoff.ledger.stores.rows import decode_metadata, encode_metadata, unsendable


def test_metadata_as_text():
    """LG-1: metadata can be stored as text and read back, including binary values."""
    metadata = (("a", "some text"), ("b-bin", b"\x00\xff"))

    assert decode_metadata(encode_metadata(metadata)) == metadata


@pytest.mark.parametrize(
    ("key", "sent", "unsent"),
    [
        ("x", ["", "a b~"], [b"raw", "\xe9", "a\n", "a\x7f", 7]),
        ("x-bin", [b"", b"\x00\n"], ["abc", None]),
        *((key, [], ["a"]) for key in (7, "", "X", "x y", "x\n", "\xe9", b"x")),
    ],
)
def test_what_grpc_sends(key, sent, unsent):
    """LG-11: metadata needs legal keys, bytes for those that end with -bin and printable ASCII for others."""
    assert [unsendable(key, value) for value in sent] == [None] * len(sent)
    assert None not in [unsendable(key, value) for value in unsent]


@pytest.mark.parametrize(
    "text",
    ["secret", "7", '{"secret": 1}', '["secret"]', '[["x-bin", "secret!"]]', json.dumps([["x", "secret\n"]]), "null"],
)
def test_text_that_is_no_metadata(text):
    """LG-11: any invalid metadata in a row raises a ValueError whose message does not show the metadata."""
    with pytest.raises(ValueError, match=r"metadata.*expected") as caught:
        decode_metadata(text)

    assert "secret" not in str(caught.value)
