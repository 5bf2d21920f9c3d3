"""The numbers of a retry budget. `tests/calls/test_budget.py` tests how tokens are counted."""

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

TOKENS = "a number above 0 and at most 1000"
RATIO = "a number from 0.001 to 1000"


@pytest.mark.parametrize(
    ("max_tokens", "token_ratio"), [(1000, 0.1), (10, 1), (0.5, 0.001), (1e-9, 1000), (1000.0, 0.0010000001)]
)
def test_allowed(max_tokens, token_ratio):
    """RT-9: `max_tokens` is at most 1000, and `token_ratio` at least 0.001, the precision of gRPC."""
    budget = RetryBudget(max_tokens, token_ratio)

    assert (budget.max_tokens, budget.token_ratio) == (max_tokens, token_ratio)
    assert {type(budget.max_tokens), type(budget.token_ratio)} == {float}


@pytest.mark.parametrize(
    "value", [0, -1, 1000.001, 1001, math.inf, -math.inf, math.nan, True, "10", None, [10], 10**400]
)
def test_bad_max_tokens(value):
    """RT-9: the error for a value that gRFC A6 does not allow has the name, the value and the allowed range (CH-10)."""
    with pytest.raises(OptionError) as caught:
        RetryBudget(value, 0.1)

    shown = repr(value) if len(repr(value)) < 200 else f"{value!r:.200}..."
    assert str(caught.value) == f"RetryBudget.max_tokens={shown}: expected {TOKENS}"


@pytest.mark.parametrize("value", [0, -0.1, 0.0009, 1000.1, math.inf, math.nan, False, "0.1", None])
def test_bad_token_ratio(value):
    """RT-9: ratios that gRPC would round to 0 are rejected, and so are ratios above 1000."""
    with pytest.raises(OptionError) as caught:
        RetryBudget(10, value)

    assert str(caught.value) == f"RetryBudget.token_ratio={value!r}: expected {RATIO}"


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
