"""Options in grpcio's form."""

from __future__ import annotations

import pytest

from grpc_backoff.config.channel_settings import typed_pairs
from grpc_backoff.config.core_options import first_values, key_text


def test_first_values():
    """CH-9: if a key occurs twice, as text or bytes, the first value wins; pairs may be lists."""
    assert first_values([(b"grpc.x", 1), ("grpc.y", 2), ["grpc.x", 3], (b"grpc.y", 4)]) == {"grpc.x": 1, "grpc.y": 2}
    assert first_values([]) == {}


@pytest.mark.parametrize(("key", "text"), [("grpc.x", "grpc.x"), (b"grpc.x", "grpc.x"), (b"\xff", "\ufffd")])
def test_key_text(key, text):
    """CH-9: a key in bytes equals the same key as text, and invalid UTF-8 is not an error."""
    assert key_text(key) == text


def test_options_are_known_by_values_and_types():
    """CH-10: `typed_pairs` distinguishes equal values of different types; for unusual options it returns None."""
    known = [typed_pairs([("a", value)]) for value in (1, 1.0, True, "1", b"1")]
    assert len(set(known)) == len(known)
    assert typed_pairs((("a", 1), ("b", 2))) == typed_pairs([("a", 1), ("b", 2)])
    assert [typed_pairs([each]) for each in (["a", 1], ("a",), ("a", object()), (1, 1), ("a", [1]), None)] == [None] * 6
