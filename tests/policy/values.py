"""Strategies for property tests with policies of every kind, and a random source with a constant result."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.checks import STATUS_CODES
from grpc_backoff.policy.jitter import Additive, Equal, Full, NoJitter, Proportional, Scaled
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import Decorrelated, Exponential, Fixed, Linear, Steps

__all__ = ["Always", "backoffs", "failures", "jitters", "retry_policies", "strategies", "times", "unhurried"]

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # no test asserts speed

times = st.floats(1e-3, 1e5) | st.floats(min_value=1e-300, allow_infinity=False)
"""Times above 0: mostly common ones, and some as small or as large as a float allows."""

multipliers = st.floats(1, 10) | st.floats(min_value=1, allow_infinity=False)
factors = st.floats(0, 1000)
parts = st.floats(0, 1, exclude_max=True)

strategies = (
    st.builds(Fixed, st.just(0.0) | times)
    | st.builds(Linear, times)
    | st.builds(Exponential, times, multipliers, st.none() | st.integers(0, 2000))
    | st.builds(Steps, st.lists(times, min_size=1, max_size=20).map(tuple), multipliers)
)
"""All strategies except the decorrelated one, which takes no jitter."""

jitters = (
    st.just(NoJitter())
    | st.builds(Proportional, parts, st.booleans())
    | st.lists(factors, min_size=2, max_size=2).filter(any).map(lambda pair: Scaled(*sorted(pair)))
    | st.builds(Additive, factors)
    | st.just(Full())
    | st.just(Equal())
)

backoffs = st.builds(BackoffPolicy, strategies, times, jitters) | st.builds(
    BackoffPolicy, st.builds(Decorrelated, times), times, st.just(NoJitter())
)
"""Every strategy with every jitter that it supports."""

failures = st.integers(1, 100) | st.integers(1, 10**12) | st.just(10**300)
"""A number of failures in a row."""

retry_policies = st.builds(
    RetryPolicy,
    backoff=backoffs,
    max_attempts=st.none() | st.integers(1, 100),
    codes=st.frozensets(st.sampled_from(STATUS_CODES), min_size=1),
    timeout=st.none() | times,
    deadline=st.none() | times,
    server_delay_jitter=st.just(0.0) | times,
    max_server_delay=st.none() | times,
    never_ran_only=st.booleans(),
)


class Always:
    """A stand-in for a random source that always returns the same number."""

    def __init__(self, drawn):
        self.drawn = drawn

    def random(self):
        return self.drawn
