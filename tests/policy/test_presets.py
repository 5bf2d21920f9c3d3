"""The named policies, compared with a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpc_backoff.config.policy_string import parse_policy
from grpc_backoff.config.resolving import resolve_connect
from grpc_backoff.config.sources import source_of
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.connect import ConnectPolicy, Reconnect
from grpc_backoff.policy.jitter import Additive, Equal, NoJitter, Proportional, Scaled
from grpc_backoff.policy.presets import CONNECT, GRPC, PRESETS, RETRY_PRESETS, build
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import Exponential, Fixed, Linear, Steps

ALSO = frozenset({"UNAVAILABLE", "RESOURCE_EXHAUSTED"})
OUTLIVED = ALSO | {"CANCELLED", "UNKNOWN", "DEADLINE_EXCEEDED", "INTERNAL", "DATA_LOSS"}

# For each named policy: strategy, cap, jitter, total attempts, the call's deadline in seconds, and codes.
TABLE = [
    ("grpc", Exponential(1.0, 1.6), 120.0, Proportional(0.2), None, None, ALSO),
    ("contention", Exponential(0.010, 2.0, max_exponent=6), 1.0, Additive(0.5), 7, 30.0, ALSO | {"ABORTED"}),
    ("steps", Steps((1.0, 2.0, 4.0, 8.0, 16.0, 32.0), 2.0), 60.0, Proportional(0.1, then_cap=True), None, None, ALSO),
    ("standard", Exponential(1.0, 2.0), 30.0, Scaled(0.5, 1.5), 5, None, ALSO),
    ("aggressive", Exponential(0.5, 2.0), 10.0, Scaled(0.5, 1.5), 5, None, ALSO),
    ("conservative", Exponential(2.0, 2.0), 30.0, Scaled(0.5, 1.5), 5, None, ALSO),
    ("background", Exponential(2.0, 2.0), 60.0, Scaled(0.5, 1.5), 7, None, ALSO),
    ("durable", Exponential(2.0, 2.0), 600.0, Equal(), None, 259_200.0, OUTLIVED),
]
# The policies that set no delay, here combined with a delay of 3 s.
BY_WORDS = [("fixed", Fixed(3.0)), ("linear", Linear(3.0)), ("exponential", Exponential(3.0, 2.0))]


@pytest.mark.parametrize(
    ("name", "strategy", "cap", "jitter", "attempts", "deadline", "codes"), TABLE, ids=[row[0] for row in TABLE]
)
def test_preset(name, strategy, cap, jitter, attempts, deadline, codes):
    """BP: every preset has the values of the document that defines it."""
    assert RETRY_PRESETS[name] == RetryPolicy(
        backoff=BackoffPolicy(strategy, cap, jitter),
        max_attempts=attempts,
        codes=codes,
        timeout=None,
        deadline=deadline,
        server_delay_jitter=0.0 if name == "contention" else 5.0,
        max_server_delay=60.0 if name == "steps" else None,
    )


@pytest.mark.parametrize(("name", "strategy"), BY_WORDS)
def test_preset_of_words(name, strategy):
    """BP-2: the presets without a delay have a cap of 30 s and no jitter; the user sets the number of retries."""
    assert parse_policy(f"preset: {name}, delay: 3s, retry: 2") == RetryPolicy(
        backoff=BackoffPolicy(strategy, 30.0, NoJitter()), max_attempts=3, codes=ALSO, server_delay_jitter=5.0
    )


def test_all_presets():
    """BP: `TABLE` and `BY_WORDS` contain every preset."""
    assert list(PRESETS) == [row[0] for row in TABLE] + [name for name, _ in BY_WORDS]
    assert list(RETRY_PRESETS) == [row[0] for row in TABLE]


def test_connect():
    """CB: the default connect policy allows 20 s to connect, adds no jitter to the first gap, and is lazy."""
    assert (
        ConnectPolicy(
            backoff=GRPC,
            min_connect_timeout=20.0,
            jitter_first=False,
            stable_after=0.0,
            reconnect=Reconnect.LAZY,
            idle_timeout=1800.0,
        )
        == CONNECT
    )
    assert RETRY_PRESETS["grpc"].backoff == GRPC


@pytest.mark.parametrize("name", RETRY_PRESETS)
def test_every_preset_connects(name):
    """BP: a connect policy can use every preset with a delay, while its other parts keep gRPC's values."""
    assert resolve_connect([source_of("a test", {"preset": name})], {})[0].policy == replace(
        CONNECT, backoff=RETRY_PRESETS[name].backoff
    )


@pytest.mark.parametrize("mapping", [PRESETS, RETRY_PRESETS])
def test_nobody_changes_them(mapping):
    """BP-3: the presets are read-only."""
    with pytest.raises(TypeError):
        mapping["grpc"] = None


@pytest.mark.parametrize("name", RETRY_PRESETS)
def test_a_preset_is_its_parts(name):
    """BP-3: the parts of a preset build its policy, and changing one part leaves the others unchanged."""
    assert build(RetryPolicy, PRESETS[name]) == RETRY_PRESETS[name]
    changed = build(RetryPolicy, {**PRESETS[name], "max_attempts": 3})
    assert (changed.max_attempts, changed.backoff) == (3, RETRY_PRESETS[name].backoff)


def test_connecting():
    """CB-2, CB-5: the parts of the preset `grpc` build the default connect policy."""
    assert build(ConnectPolicy, PRESETS["grpc"]) == CONNECT


def test_a_part_that_is_missing():
    """BP-3: a missing part is an error, because there is no default for it."""
    parts = {part: value for part, value in PRESETS["grpc"].items() if part != "max_delay"}
    with pytest.raises(KeyError, match="max_delay"):
        build(ConnectPolicy, parts)
