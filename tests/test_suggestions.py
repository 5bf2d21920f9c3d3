"""Suggestions for misspelt names."""

from __future__ import annotations

import pytest

from grpc_backoff.base_errors import near_miss, unknown

KEYS = {"jitter": "grpc_backoff.jitter", "multiplier": "grpc_backoff.multiplier"}


@pytest.mark.parametrize("word", ["jiter", "Jitter", "jitterr", "JITTER"])
def test_near_miss(word):
    """CH-10: the most similar key is found, whether it is written in upper or lower case."""
    assert near_miss(word, KEYS) == "grpc_backoff.jitter"


def test_nothing_is_near():
    """CH-10: if no key is similar, the error lists all keys, each once."""
    assert near_miss("timeout", KEYS) is None
    error = unknown("option", "timeout", 1, "timeout", KEYS | {"factor": "grpc_backoff.multiplier"})
    assert str(error) == "unknown option 'timeout': expected one of: grpc_backoff.jitter, grpc_backoff.multiplier"
    assert (error.key, error.value, error.meant) == ("timeout", 1, None)
