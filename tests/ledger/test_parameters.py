"""Policies as text, and as the parameters that SQL functions take."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given

from grpc_backoff.config.policy_string import parse_policy
from grpc_backoff.ledger.parameters import parameters, policy_text
from grpc_backoff.policy.presets import RETRY_PRESETS
from tests.ledger.policies import policies


@given(policies())
def test_text_is_read_back(policy):
    """LG-1: parsing the text of any policy returns an equal policy."""
    assert parse_policy(policy_text(policy)) == policy


@pytest.mark.parametrize("name", sorted(RETRY_PRESETS))
def test_presets_as_text(name):
    """LG-1: parsing the text of any preset returns an equal policy."""
    assert parse_policy(policy_text(RETRY_PRESETS[name])) == RETRY_PRESETS[name]


@given(policies())
def test_parameters_are_json(policy):
    """LG-3: a policy's parameters for SQL contain its exact numbers, which survive conversion to JSON."""
    made = parameters(policy)

    assert json.loads(json.dumps(made)) == made
    assert made["cap"] == policy.backoff.cap
    assert made["strategy"] == policy.backoff.strategy.name
    assert made["jitter"] == policy.backoff.jitter.name


def test_a_foreign_strategy_is_refused():
    """LG-3: a strategy that SQL does not implement is refused, with a TypeError, when the policy is converted."""

    class Mine:
        name = "mine"

        def value(self, n):
            return 1.0

    standard = RETRY_PRESETS["standard"]
    foreign = replace(standard, backoff=replace(standard.backoff, strategy=Mine()))
    for convert in (parameters, policy_text):
        with pytest.raises(TypeError, match=r"strategy=<.*Mine object at .*>: expected a built-in strategy"):
            convert(foreign)
