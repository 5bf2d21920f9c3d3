"""Which name was meant."""

from __future__ import annotations

import pytest

from grpc_backoff.policy.spelling import near_miss, suggestion

KEYS = {"jitter": "grpc_backoff.jitter", "multiplier": "grpc_backoff.multiplier"}


@pytest.mark.parametrize("word", ["jiter", "Jitter", "jitterr", "JITTER"])
def test_near_miss(word):
    """CH-10: the nearest right key is found, in any case."""
    assert near_miss(word, KEYS) == "grpc_backoff.jitter"


def test_nothing_is_near():
    """CH-10: what is like no key is told all of them, each once."""
    assert near_miss("timeout", KEYS) is None
    expected, meant = suggestion("timeout", KEYS | {"factor": "grpc_backoff.multiplier"}, "option")
    assert (expected, meant) == ("a known option, one of: grpc_backoff.jitter, grpc_backoff.multiplier", None)


def test_suggestion():
    """CH-10: the suggestion names the key as its user has to write it."""
    assert suggestion("jiter", KEYS, "option") == ("a known option", "grpc_backoff.jitter")
