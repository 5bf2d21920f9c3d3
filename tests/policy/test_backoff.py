"""How long to wait after the n-th failure."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grpc_backoff.errors import OptionError
from grpc_backoff.policy.backoff import BackoffPolicy, Exponential, Proportional
from grpc_backoff.policy.presets import GRPC

GOLDEN = [
    # n, nominal, smallest, largest
    (1, 1.0, 0.8, 1.2),
    (2, 1.6, 1.28, 1.92),
    (3, 2.56, 2.048, 3.072),
    (4, 4.096, 3.2768, 4.9152),
    (5, 6.5536, 5.24288, 7.86432),
    (6, 10.48576, 8.388608, 12.582912),
    (7, 16.777216, 13.4217728, 20.1326592),
    (8, 26.8435456, 21.47483648, 32.21225472),
    (9, 42.94967296, 34.359738368, 51.539607552),
    (10, 68.719476736, 54.9755813888, 82.4633720832),
    (11, 109.9511627776, 87.96093022208, 131.94139533312),
    (12, 120.0, 96.0, 144.0),
    (13, 120.0, 96.0, 144.0),
    (10_000, 120.0, 96.0, 144.0),
    (10**9, 120.0, 96.0, 144.0),
]

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # no test asserts speed
policies = st.builds(
    BackoffPolicy,
    st.builds(Exponential, st.floats(1e-6, 1e9), st.floats(1, 1e6)),
    st.floats(1e-6, 1e9),
    st.builds(Proportional, st.floats(0, 1, exclude_max=True)),
)
failures = st.integers(1, 100) | st.integers(1, 10**12)


class Edge:
    """Draws always the smallest, or always the largest number."""

    def __init__(self, *, high):
        self.high = high

    def uniform(self, a, b):
        return b if self.high else a


@pytest.mark.parametrize(("n", "nominal", "low", "high"), GOLDEN)
def test_grpc(n, nominal, low, high):
    """BP-1: gRPC's table: 1 s, times 1.6, up to 120 s, each plus or minus a fifth, at the cap too (96 to 144)."""
    assert GRPC.nominal(n) == pytest.approx(nominal, rel=1e-12)
    assert GRPC.bounds(n) == pytest.approx((low, high), rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 11, 12, 500])
def test_bounds_are_met(n):
    """CB-5: the smallest and the largest number drawn give the bounds, so jitter comes after the cap."""
    assert (GRPC.delay(n, Edge(high=False)), GRPC.delay(n, Edge(high=True))) == GRPC.bounds(n)


@pytest.mark.parametrize("n", [10_000, 10**9, 10**300])
def test_many_failures(n):
    """CB-13: the 10,000th failure waits the cap; were each failure counted through, this would never end."""
    assert GRPC.nominal(n) == 120.0


def test_no_growth():
    """CB-13: a multiplier of 1 stays where it is however many failures there are."""
    policy = BackoffPolicy(Exponential(2.0, 1.0), 10.0, Proportional(0.0))

    assert {policy.nominal(n) for n in (1, 2, 10_000, 10**300)} == {2.0}


def test_jitter_does_not_compound():
    """CB-5: the value before jitter is the same whatever was drawn before."""
    low, high = Edge(high=False), Edge(high=True)

    for n in range(1, 20):
        assert GRPC.delay(n, high) / GRPC.delay(n, low) == pytest.approx(1.2 / 0.8)


def test_same_seed_same_delays():
    """CB-11: all chance comes from the generator that is handed in."""
    one, other = ([GRPC.delay(n, rng) for n in range(1, 30)] for rng in (random.Random(4), random.Random(4)))

    assert one == other


def test_dispersion():
    """CB-11: two generators give other delays, spread over the whole width."""
    rng = random.Random(0)
    delays = [GRPC.delay(1, rng) for _ in range(2000)]

    assert min(delays) < 0.81
    assert max(delays) > 1.19
    assert sum(delays) / len(delays) == pytest.approx(1.0, abs=0.01)


def test_cap_below_base():
    """CB-5: a cap below the base caps the first wait as well."""
    assert BackoffPolicy(Exponential(5.0, 2.0), 3.0, Proportional(0.0)).nominal(1) == 3.0


@pytest.mark.parametrize("n", [0, -1])
def test_no_such_failure(n):
    """BP: failures count from 1."""
    for ask in (GRPC.nominal, GRPC.bounds, lambda n: GRPC.delay(n, random.Random())):
        with pytest.raises(ValueError, match=f"n is {n}; failures count from 1"):
            ask(n)


@unhurried
@given(policy=policies, n=failures, seed=st.integers())
def test_delay_within_bounds(policy, n, seed):
    """CB-5: every delay lies within its bounds, is a number and is never negative."""
    low, high = policy.bounds(n)
    delay = policy.delay(n, random.Random(seed))

    assert 0 <= low <= policy.nominal(n) <= high
    assert low <= delay <= high
    assert math.isfinite(delay)


@unhurried
@given(policy=policies, n=failures)
def test_nominal_grows(policy, n):
    """CB-5: without jitter a wait is never shorter than the one before it, and never above the cap."""
    assert policy.nominal(n) <= policy.nominal(n + 1) <= policy.cap


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Exponential(0, 2),
            "Exponential.base = 0 is not allowed; a finite number of seconds above 0 is",
        ),
        (
            lambda: Exponential(1, 0.5),
            "Exponential.multiplier = 0.5 is not allowed; a finite number of at least 1 is",
        ),
        (
            lambda: Proportional(1.0),
            "Proportional.fraction = 1.0 is not allowed; a number from 0 to below 1 is",
        ),
        (
            lambda: BackoffPolicy(Exponential(1, 2), math.nan, Proportional(0)),
            "BackoffPolicy.cap = nan is not allowed; a finite number of seconds above 0 is",
        ),
    ],
)
def test_impossible(make, message):
    """CH-10: a policy made by hand is held to what options are held to: it never waits for nothing or for ever."""
    with pytest.raises(OptionError) as caught:
        make()

    assert str(caught.value) == message
