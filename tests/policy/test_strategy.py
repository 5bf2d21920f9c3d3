"""How waits grow, before cap and jitter."""

from __future__ import annotations

import math
import random
from dataclasses import FrozenInstanceError, fields

import pytest

from grpc_backoff.errors import OptionError
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.jitter import NoJitter
from grpc_backoff.policy.strategy import (
    PARTS_OF_ANY_STRATEGY,
    PARTS_OF_STRATEGIES,
    STRATEGIES,
    Decorrelated,
    Exponential,
    Fixed,
    Linear,
    Steps,
)
from tests.texts import exactly

SECONDS = "a finite number of seconds above 0"
GROWTH = "a finite number of at least 1"

GROWING = [
    # strategy, its first waits
    (Fixed(0.5), (0.5, 0.5, 0.5, 0.5, 0.5, 0.5)),
    (Fixed(0.0), (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)),
    (Linear(0.25), (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)),
    (Exponential(0.5, 2.0), (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)),
    (Exponential(1.0, 1.5), (1.0, 1.5, 2.25, 3.375, 5.0625, 7.59375)),
    (Exponential(3.0, 1.0), (3.0, 3.0, 3.0, 3.0, 3.0, 3.0)),
    (Exponential(1.0, 2.0, 3), (1.0, 2.0, 4.0, 8.0, 8.0, 8.0)),
    (Exponential(1.0, 2.0, 0), (1.0, 1.0, 1.0, 1.0, 1.0, 1.0)),
    (Steps((5.0, 1.0, 3.0), 2.0), (5.0, 1.0, 3.0, 6.0, 12.0, 24.0)),
    (Steps((5.0, 1.0, 3.0), 1.0), (5.0, 1.0, 3.0, 3.0, 3.0, 3.0)),
    (Steps((5.0,), 3.0), (5.0, 15.0, 45.0, 135.0, 405.0, 1215.0)),
    (Decorrelated(1.0), (2.0, 3.5, 5.75, 9.125, 14.1875, 21.78125)),
    (Decorrelated(0.5), (1.0, 1.75, 2.875, 4.5625, 7.09375, 10.890625)),
]


@pytest.mark.parametrize(("strategy", "waits"), GROWING, ids=[str(strategy) for strategy, _ in GROWING])
def test_growth(strategy, waits):
    """BP: each strategy gives exactly the expected waits, before cap and jitter."""
    assert tuple(strategy.value(n) for n in range(1, 7)) == waits


def test_decorrelated_mean():
    """BP: for decorrelated backoff, the nominal n-th wait is the mean of its draws."""
    policy, rng = BackoffPolicy(Decorrelated(1.0), 1e9, NoJitter()), random.Random(20)
    series = [policy.delays(rng) for _ in range(40_000)]

    for n in range(1, 6):
        waits = [next(one) for one in series]
        assert sum(waits) / len(waits) == pytest.approx(policy.strategy.value(n), rel=0.02)


def test_decorrelated_reach():
    """BP: the largest possible wait before the n-th triples each time, starting from the base."""
    assert [Decorrelated(2.0).largest_before(n) for n in (1, 2, 3, 4)] == [2.0, 6.0, 18.0, 54.0]
    assert Decorrelated(2.0).largest_before(10**300) == math.inf


@pytest.mark.parametrize(
    "strategy",
    [Fixed(1), Linear(1), Exponential(1, 2), Exponential(1, 2, 10**9), Steps((1, 2), 2), Decorrelated(1)],
    ids=repr,
)
def test_whole_numbers(strategy):
    """CB-13: whole numbers become floats, because computing large powers of integers would never finish."""
    assert strategy == type(strategy)(
        *(tuple(map(float, part)) if isinstance(part, tuple) else part for part in parts(strategy))
    )
    assert type(strategy.value(10**12)) is float


def parts(strategy):
    return [getattr(strategy, field.name) for field in fields(strategy)]


@pytest.mark.parametrize("strategy", [Linear(1e300), Exponential(1.0, 1.001), Steps((1.0,), 1.001), Decorrelated(1.0)])
@pytest.mark.parametrize("n", [10**300, 10**400])
def test_more_than_a_float(strategy, n):
    """CB-13: a wait too large for a float is infinite and does not raise an error."""
    assert strategy.value(n) == math.inf


@pytest.mark.parametrize("n", [1, 10**300, 10**400])
def test_never_grows(n):
    """CB-13: a strategy that does not grow never overflows."""
    assert Fixed(2.0).value(n) == 2.0
    assert Exponential(2.0, 3.0, max_exponent=1).value(n) == (2.0 if n == 1 else 6.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fixed(-1), "Fixed.base=-1: expected a finite, non-negative number of seconds"),
        (lambda: Fixed(math.inf), "Fixed.base=inf: expected a finite, non-negative number of seconds"),
        (lambda: Fixed(True), "Fixed.base=True: expected a finite, non-negative number of seconds"),
        (lambda: Linear(0.0), f"Linear.base=0.0: expected {SECONDS}"),
        (lambda: Linear("1s"), f"Linear.base='1s': expected {SECONDS}"),
        (lambda: Exponential(0, 2), f"Exponential.base=0: expected {SECONDS}"),
        (lambda: Exponential(math.nan, 2), f"Exponential.base=nan: expected {SECONDS}"),
        (lambda: Exponential(1, 0.5), f"Exponential.multiplier=0.5: expected {GROWTH}"),
        (lambda: Exponential(1, math.inf), f"Exponential.multiplier=inf: expected {GROWTH}"),
        (lambda: Exponential(1, 2, -1), "Exponential.max_exponent=-1: expected a whole number of at least 0"),
        (lambda: Exponential(1, 2, 1.5), "Exponential.max_exponent=1.5: expected a whole number of at least 0"),
        (lambda: Exponential(1, 2, True), "Exponential.max_exponent=True: expected a whole number of at least 0"),
        (lambda: Steps((), 2), "Steps.waits=(): expected a list of at least one wait"),
        (lambda: Steps("1s", 2), "Steps.waits='1s': expected a list of at least one wait"),
        (lambda: Steps((1, 0), 2), f"Steps.waits[1]=0: expected {SECONDS}"),
        (lambda: Steps((1,), 0), f"Steps.multiplier=0: expected {GROWTH}"),
        (lambda: Decorrelated(0), f"Decorrelated.base=0: expected {SECONDS}"),
    ],
)
def test_impossible(make, message):
    """CH-10: a strategy created in code is checked in the same way as options."""
    with pytest.raises(OptionError, match=exactly(message)):
        make()


def test_names():
    """BP: the names that strategies have in text are fixed."""
    assert [strategy.name for strategy in STRATEGIES] == ["fixed", "linear", "exponential", "steps", "decorrelated"]


@pytest.mark.parametrize("strategy", [strategy for strategy, _ in GROWING], ids=str)
def test_value(strategy):
    """BP: a strategy is a frozen value."""
    assert eval(repr(strategy)) == strategy
    assert len({strategy, eval(repr(strategy))}) == 1
    with pytest.raises(FrozenInstanceError):
        setattr(strategy, fields(strategy)[0].name, 7.0)


def test_parts():
    """BP-3: what presets, files and options call the fields of a strategy is fixed; the first one is required."""
    assert PARTS_OF_STRATEGIES == {
        "fixed": ("delay",),
        "linear": ("delay",),
        "exponential": ("delay", "multiplier", "max_exponent"),
        "steps": ("steps", "multiplier"),
        "decorrelated": ("delay",),
    }
    assert set().union(*PARTS_OF_STRATEGIES.values()) == PARTS_OF_ANY_STRATEGY
