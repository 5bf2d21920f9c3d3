"""The numbers of a retry budget. `tests/decide/calls/test_budget.py` tests how tokens are counted."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff.errors import OptionError
from grpc_backoff.policy.budget import RetryBudget
from tests.policy.values import unhurried
from tests.texts import exactly

ALLOWED = {"max_tokens": "a number above 0 and at most 1000", "token_ratio": "a number from 0.001 to 1000"}


@pytest.mark.parametrize(
    ("max_tokens", "token_ratio"), [(1000, 0.1), (10, 1), (0.5, 0.001), (1e-9, 1000), (1000.0, 0.0010000001)]
)
def test_allowed(max_tokens, token_ratio):
    """RT-9: `max_tokens` is at most 1000, and `token_ratio` at least 0.001, the precision of gRPC."""
    budget = RetryBudget(max_tokens, token_ratio)

    assert (budget.max_tokens, budget.token_ratio) == (max_tokens, token_ratio)
    assert {type(budget.max_tokens), type(budget.token_ratio)} == {float}


@pytest.mark.parametrize(
    ("part", "value"),
    [
        *(("max_tokens", value) for value in (0, -1, 1000.001, 1001, math.inf, -math.inf, math.nan)),
        *(("max_tokens", value) for value in (True, "10", None, [10], 10**400)),
        *(("token_ratio", value) for value in (0, -0.1, 0.0009, 1000.1, math.inf, math.nan, False, "0.1", None)),
    ],
)
def test_bad_values(part, value):
    """RT-9, CH-10: the error for a value outside gRPC's limits has its name, the value and the allowed range."""
    shown = repr(value) if len(repr(value)) < 200 else f"{value!r:.200}..."
    with pytest.raises(OptionError, match=exactly(f"RetryBudget.{part}={shown}: expected {ALLOWED[part]}")):
        RetryBudget(**{"max_tokens": 10, "token_ratio": 0.1, part: value})


def test_value():
    """RT-9: a budget is a frozen value; integers and floats of the same value are equal."""
    budget = RetryBudget(max_tokens=10, token_ratio=1)

    assert len({budget, RetryBudget(10.0, 1.0), RetryBudget(10, 0.5)}) == 2
    assert pickle.loads(pickle.dumps(budget)) == budget
    assert repr(budget) == "RetryBudget(max_tokens=10.0, token_ratio=1.0)"
    with pytest.raises(FrozenInstanceError):
        budget.max_tokens = 5


@unhurried
@given(max_tokens=st.floats() | st.integers(), token_ratio=st.floats() | st.integers())
def test_budget_or_error(max_tokens, token_ratio):
    """RT-9: any two numbers either give a budget within gRPC's limits or raise an `OptionError`."""
    try:
        budget = RetryBudget(max_tokens, token_ratio)
    except OptionError:
        assert not (0 < max_tokens <= 1000 and 0.001 <= token_ratio <= 1000)
    else:
        assert 0 < budget.max_tokens <= 1000
        assert 0.001 <= budget.token_ratio <= 1000
