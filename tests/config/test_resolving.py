"""The policies that sources describe, and the named policies from which they inherit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpc_backoff.config.resolving import resolve_connect, resolve_retry
from grpc_backoff.config.settings import read_source
from grpc_backoff.config.sources import source_of
from grpc_backoff.errors import OptionError
from grpc_backoff.policy.jitter import Full
from grpc_backoff.policy.presets import CONNECT, RETRY_PRESETS
from grpc_backoff.policy.retry import RETRYING


@pytest.mark.parametrize("sources", [[], [{}], [{}, {}]])
def test_nothing_said(sources):
    """BP-3: without settings, connections use gRPC's policy and calls are attempted once."""
    assert resolve_connect(sources, {})[0].policy == CONNECT
    assert resolve_retry(sources, {}).policy.max_attempts == 1


POLICIES = {
    "own": source_of("file", {"delay": 3.0}),
    "careful": source_of("file", {"preset": "standard", "max_delay": 7.0}),
    "more careful": source_of("file", {"preset": "careful", "jitter": Full()}),
}


def test_chain():
    """BP-3: policies can inherit through several steps; each value comes from the nearest policy that sets it."""
    policy = resolve_retry([source_of("a", {"preset": "more careful", "max_attempts": 2})], POLICIES).policy
    standard = RETRY_PRESETS["standard"]

    assert policy == replace(standard, backoff=replace(standard.backoff, cap=7.0, jitter=Full()), max_attempts=2)


def test_chain_begins_with_the_nearest_name():
    """BP-3: if several sources name a policy to inherit from, the source with the highest precedence decides."""
    sources = [source_of("a", {}), source_of("b", {"preset": "careful"}), source_of("c", {"preset": "nowhere"})]

    assert resolve_retry(sources, POLICIES).policy.backoff.cap == 7.0


def test_default_of_own_policies():
    """BP-2: a user-defined policy inherits from `fixed` if it names no other, even for connections."""
    assert resolve_retry([source_of("a", {"preset": "own"})], POLICIES).policy.backoff.bounds(5) == (3.0, 3.0)
    assert resolve_connect([source_of("a", {"preset": "own"})], POLICIES)[0].policy.backoff.bounds(5) == (3.0, 3.0)


def unknown_policy(name, policies):
    with pytest.raises(OptionError) as caught:
        resolve_retry([read_source(RETRYING, {"preset": ("x.preset", name)}, "x")], policies)
    return str(caught.value)


@pytest.mark.parametrize(("name", "near"), [("standrd", "standard"), ("STEPS", "steps"), ("carefull", "careful")])
def test_unknown_policy(name, near):
    """BP-4: the error for an unknown policy suggests the nearest name."""
    assert unknown_policy(name, POLICIES) == f"x.preset={name!r}: expected the name of a policy; did you mean {near!r}?"


@pytest.mark.parametrize(
    ("begins", "circle"),
    [
        ({"a": "a"}, "a -> a"),
        ({"a": "b", "b": "a"}, "a -> b -> a"),
        ({"a": "b", "b": "c", "c": "a"}, "a -> b -> c -> a"),
        ({"a": "b", "b": "c", "c": "b"}, "b -> c -> b"),
    ],
)
def test_circle(begins, circle):
    """BP-4: policies that inherit from each other in a circle are rejected, and the error shows the circle."""
    policies = {
        name: read_source(RETRYING, {"preset": (f"policies.{name}.preset", other)}, "x")
        for name, other in begins.items()
    }

    assert unknown_policy("a", policies).endswith(f"makes a policy inherit from itself: {circle}")
