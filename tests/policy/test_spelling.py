"""Suggestions for misspelt names."""

from __future__ import annotations

import pytest

from grpc_backoff.policy.spelling import near_miss, suggestion

KEYS = {"jitter": "grpc_backoff.jitter", "multiplier": "grpc_backoff.multiplier"}


@pytest.mark.parametrize("word", ["jiter", "Jitter", "jitterr", "JITTER"])
def test_near_miss(word):
    """CH-10: the most similar key is found, whether it is written in upper or lower case."""
    assert near_miss(word, KEYS) == "grpc_backoff.jitter"


def test_nothing_is_near():
    """CH-10: if no key is similar, the error lists all keys, each once."""
    assert near_miss("timeout", KEYS) is None
    expected, meant = suggestion("timeout", KEYS | {"factor": "grpc_backoff.multiplier"}, "option")
    assert (expected, meant) == ("one of: grpc_backoff.jitter, grpc_backoff.multiplier", None)


def test_suggestion():
    """CH-10: a suggestion gives the key exactly as a user has to write it."""
    assert suggestion("jiter", KEYS, "option") == ("a valid option name", "grpc_backoff.jitter")
