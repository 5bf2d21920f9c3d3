"""Building policies from their parts."""

from __future__ import annotations

from dataclasses import fields

import pytest

from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.parts import PARTS_OF_ANY_STRATEGY, PARTS_OF_STRATEGIES, build
from grpc_backoff.policy.presets import CONNECT, PRESETS, RETRY
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import STRATEGIES


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_every_strategy_has_its_parts(strategy):
    """BP: every field of a strategy has a part."""
    assert len(PARTS_OF_STRATEGIES[strategy.name]) == len(fields(strategy))
    assert set(PARTS_OF_STRATEGIES[strategy.name]) <= PARTS_OF_ANY_STRATEGY


@pytest.mark.parametrize("name", RETRY)
def test_a_preset_is_its_parts(name):
    """BP-3: the parts of a preset build its policy, and changing one part leaves the others unchanged."""
    assert build(RetryPolicy, PRESETS[name]) == RETRY[name]
    changed = build(RetryPolicy, {**PRESETS[name], "max_attempts": 3})
    assert (changed.max_attempts, changed.backoff) == (3, RETRY[name].backoff)


def test_connecting():
    """CB-2, CB-5: the parts of the preset `grpc` build the default connect policy."""
    assert build(ConnectPolicy, PRESETS["grpc"]) == CONNECT


def test_a_part_that_is_missing():
    """BP-3: a missing part is an error, because there is no default for it."""
    parts = {part: value for part, value in PRESETS["grpc"].items() if part != "max_delay"}
    with pytest.raises(KeyError, match="max_delay"):
        build(ConnectPolicy, parts)
