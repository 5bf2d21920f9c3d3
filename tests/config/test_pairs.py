"""Options as grpcio takes them."""

from __future__ import annotations

import pytest

from grpc_backoff.config.pairs import first_values, key_text


def test_first_values():
    """CH-9: where a key stands twice the first wins, whichever of its two forms it has; pairs may be lists."""
    assert first_values([(b"grpc.x", 1), ("grpc.y", 2), ["grpc.x", 3], (b"grpc.y", 4)]) == {"grpc.x": 1, "grpc.y": 2}
    assert first_values([]) == {}


@pytest.mark.parametrize(("key", "text"), [("grpc.x", "grpc.x"), (b"grpc.x", "grpc.x"), (b"\xff", "\ufffd")])
def test_key_text(key, text):
    """CH-9: a key in bytes is the same key, and one that is no text harms nobody."""
    assert key_text(key) == text
