"""The wait after the n-th failure: strategy, cap and jitter together."""

from __future__ import annotations

import math
import random
import sys
from dataclasses import FrozenInstanceError, replace
from itertools import islice

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from grpc_backoff.errors import OptionError
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.jitter import Additive, Equal, Full, NoJitter, Proportional, Scaled, Window
from grpc_backoff.policy.presets import GRPC
from grpc_backoff.policy.schedule import schedule
from grpc_backoff.policy.strategy import Decorrelated, Exponential, Fixed, Linear, Steps
from tests.policy.values import Always, backoffs, failures, jitters, unhurried
from tests.texts import exactly

LARGEST_FLOAT = 1.7976931348623157e308
HUGE = [
    # Here the product of valid values exceeds the range of a float.
    BackoffPolicy(Decorrelated(1.0), LARGEST_FLOAT, NoJitter()),
    BackoffPolicy(Decorrelated(LARGEST_FLOAT), LARGEST_FLOAT, NoJitter()),
    BackoffPolicy(Fixed(LARGEST_FLOAT), LARGEST_FLOAT, Proportional(0.9)),
    BackoffPolicy(Exponential(1.0, LARGEST_FLOAT), LARGEST_FLOAT, Scaled(0.0, 1000.0)),
    BackoffPolicy(Linear(LARGEST_FLOAT), 1.0, Additive(1000.0)),
]
SPREAD = [
    BackoffPolicy(strategy, 20.0, jitter)
    for strategy in (Fixed(3.0), Linear(3.0), Exponential(3.0, 2.0), Steps((3.0, 7.0, 5.0), 1.5))
    for jitter in (
        Proportional(0.3),
        Proportional(0.3, then_cap=True),
        Scaled(0.5, 1.5),
        Additive(0.5),
        Full(),
        Equal(),
    )
] + [BackoffPolicy(Decorrelated(3.0), 20.0, NoJitter())]


def largest_allowed(policy):
    """Return the longest wait allowed: the cap, which only gRPC's own jitter may exceed, by its fraction."""
    jitter = policy.jitter
    passing = isinstance(jitter, Proportional) and not jitter.then_cap
    return policy.cap * (1 + jitter.fraction) * (1 + 1e-12) if passing else policy.cap


def with_huge(test):
    for policy in HUGE:
        test = example(policy=policy, n=3, seed=0)(test)
    return test


@with_huge
@unhurried
@given(policy=backoffs, n=failures, seed=st.integers())
def test_delay_within_bounds(policy, n, seed):
    """BP-1: every delay lies within its bounds, and the bounds within the policy's limits; none is negative or NaN."""
    low, high = policy.bounds(n)

    assert 0 <= low <= policy.delay(n, random.Random(seed)) <= high <= largest_allowed(policy)
    assert math.isfinite(high)


@with_huge
@unhurried
@given(policy=backoffs, n=failures, seed=st.none())
def test_bounds_are_met(policy, n, seed):
    """BP-1: the smallest and the largest number that the generator can draw give exactly the bounds."""
    assert (policy.delay(n, Always(0.0)), policy.delay(n, Always(1.0))) == policy.bounds(n)


@with_huge
@unhurried
@given(policy=backoffs, n=failures, seed=st.none())
def test_nominal_within_bounds(policy, n, seed):
    """BP-1: the wait without jitter lies within the bounds, unless the jitter changes every wait."""
    jitter = policy.jitter
    assume(not isinstance(jitter, Scaled) or jitter.low <= 1 <= jitter.high)
    low, high = policy.bounds(n)

    assert low <= policy.nominal(n) <= high * (1 + 1e-12)
    assert policy.nominal(n) <= policy.cap


def formula(strategy, n):
    """Return a strategy's n-th wait by the documented formula, without jitter or cap."""
    match strategy:
        case Fixed(base):
            return base
        case Linear(base):
            return n * base
        case Exponential(base, multiplier, None):
            return base * multiplier ** (n - 1)
        case Exponential(base, multiplier, most):
            return base * multiplier ** min(n - 1, most)
        case Steps(waits, multiplier):
            return [*waits, *(waits[-1] * multiplier**more for more in range(1, n + 1))][n - 1]


def range_of(jitter, wait, cap):
    """Return the smallest and the largest wait, with jitter, by the documented formula."""
    match jitter:
        case NoJitter():
            return min(wait, cap), min(wait, cap)
        case Proportional(part, then_cap):
            low, high = min(wait, cap) * (1 - part), min(wait, cap) * (1 + part)
            return (min(low, cap), min(high, cap)) if then_cap else (low, high)
        case Scaled(least, most):
            return min(wait * least, cap), min(wait * most, cap)
        case Additive(part):
            return min(wait, cap), min(wait * (1 + part), cap)
        case Full():
            return 0.0, min(wait, cap)
        case Equal():
            return min(wait, cap) / 2, min(wait, cap)


some_times = st.floats(0.01, 100)
some_multipliers = st.floats(1, 4)
some_strategies = (
    st.builds(Fixed, some_times)
    | st.builds(Linear, some_times)
    | st.builds(Exponential, some_times, some_multipliers, st.none() | st.integers(0, 30))
    | st.builds(Steps, st.lists(some_times, min_size=1, max_size=25).map(tuple), some_multipliers)
)


@unhurried
@given(strategy=some_strategies, cap=some_times | st.floats(100, 1e9), jitter=jitters, n=st.integers(1, 60))
def test_bounds_are_the_documents(strategy, cap, jitter, n):
    """BP-1: nominal waits and bounds match the documented formulas, for early and late failures and any cap."""
    policy, wait = BackoffPolicy(strategy, cap, jitter), formula(strategy, n)

    assert policy.nominal(n) == pytest.approx(min(wait, cap), rel=1e-9)
    assert policy.bounds(n) == pytest.approx(range_of(jitter, wait, cap), rel=1e-9, abs=1e-9 * min(wait, cap))


@pytest.mark.parametrize("end", [(1.0, 9.0), (9.0, 1.0), (9.0, 1.0, 9.0, 1.0, 9.0), (9.0, 9.0, 1.0), (9.0, 9.0)])
@pytest.mark.parametrize("length", [1, 14, 15, 16, 17, 40])
def test_list_that_falls(end, length):
    """BP: a list of any length may have shorter waits after one that equals the cap, and every wait is used."""
    waits = (9.0,) * length + end
    policy = BackoffPolicy(Steps(waits, 2.0), 9.0, NoJitter())
    after = (2.0, 4.0, 8.0, 9.0, 9.0) if end[-1] == 1.0 else (9.0,) * 5

    assert tuple(islice(policy.delays(Always(0.5)), len(waits) + 5)) == waits + after


@unhurried
@given(policy=backoffs, seed=st.integers())
def test_series(policy, seed):
    """BP-1: `delays` yields what repeated calls of `delay` with the previous wait return, with one draw per wait."""
    rng, previous, expected = random.Random(seed), None, []
    for n in range(1, 25):
        previous = policy.delay(n, rng, previous)
        expected.append(previous)
    drawn = random.Random(seed)

    assert list(islice(policy.delays(drawn), 24)) == expected
    assert drawn.getstate() == rng.getstate()


@unhurried
@given(policy=backoffs, seed=st.integers())
def test_series_within_bounds(policy, seed):
    """BP-1: the bounds also hold for a series, in which each decorrelated wait depends on the previous one."""
    for n, delay in enumerate(islice(policy.delays(random.Random(seed)), 60), 1):
        low, high = policy.bounds(n)
        assert low <= delay <= high * (1 + 1e-9)  # rounding may put b + (3b - b) slightly above 3b


@pytest.mark.parametrize(
    "strategy",
    [
        *(Fixed(2), Linear(2), Decorrelated(2)),
        *(Exponential(2, 3), Exponential(2.0, 1.5), Steps((2,), 3), Steps((2.0,), 1.5)),
    ],
)
@pytest.mark.parametrize("n", [10_000, 10**9, 10**300, 10**310])
def test_many_failures(strategy, n):
    """CB-13: after any number of failures, the wait is at most the cap.

    The test would never finish if the library counted through the failures or computed such large powers of integers.
    """
    policy = BackoffPolicy(strategy, 9.0, NoJitter())

    assert policy.nominal(n) == (2.0 if strategy == Fixed(2.0) else 9.0)
    assert policy.bounds(n)[1] == policy.nominal(n)
    assert policy.delay(n, random.Random(0)) <= 9.0


def lines_run(function, *arguments):
    """Return how many lines of the library a call executes, counting every pass through a loop."""
    count = 0

    def tracer(frame, event, _argument):
        nonlocal count
        count += event == "line" and frame.f_globals.get("__name__", "").startswith("grpc_backoff.")
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        function(*arguments)
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("policy", SPREAD, ids=str)
def test_cost(policy):
    """CB-13: the 10,000th delay executes as many lines as the 20th, or two more if the power overflows a float."""
    early, late = (lines_run(replace(policy).delay, n, Always(0.5)) for n in (20, 10_000))

    assert 0 < early <= late <= early + 2


def test_lines_are_counted():
    """CB-13: the count of executed lines grows with the length of a loop."""
    assert 0 < lines_run(schedule, GRPC, 2) < lines_run(schedule, GRPC, 9)


def test_memory():
    """CB-13: a policy caches a limited number of waits, no matter how many are computed."""
    policy = replace(GRPC)
    for n in range(1, 5000):
        policy.delay(n, Always(0.5))
        policy.nominal(n)

    assert len(policy._windows) < 1000
    assert policy.nominal(4999) == 120.0
    assert policy.bounds(4999) == (96.0, 144.0)


def test_jitter_does_not_compound():
    """CB-5: the previous wait does not affect the next one, so jitter does not accumulate."""
    for n in range(1, 20):
        assert GRPC.delay(n, Always(1.0), 500.0) / GRPC.delay(n, Always(0.0), 0.1) == pytest.approx(1.2 / 0.8)


def test_decorrelated_goes_on():
    """BP: a decorrelated wait is drawn from the base to three times the previous wait and then capped."""
    policy = BackoffPolicy(Decorrelated(1.0), 10.0, NoJitter())

    assert [policy.delay(2, Always(part), 2.0) for part in (0.0, 0.5, 1.0)] == [1.0, 3.5, 6.0]
    assert [policy.delay(3, Always(part), 6.0) for part in (0.0, 0.25, 0.5, 1.0)] == [1.0, 5.25, 9.5, 10.0]


@pytest.mark.parametrize("previous", [0.0, 0.5, 1.0, 2.9])
def test_decorrelated_after_a_larger_base(previous):
    """BP: after a wait drawn from a smaller base, a decorrelated wait is drawn as after a wait of the base."""
    policy = BackoffPolicy(Decorrelated(3.0), 10.0, NoJitter())

    assert [policy.delay(2, Always(part), previous) for part in (0.0, 0.5, 1.0)] == [3.0, 6.0, 9.0]


def test_decorrelated_without_a_wait_before():
    """BP: if the previous wait is not given, decorrelated backoff assumes the largest possible previous wait."""
    policy = BackoffPolicy(Decorrelated(1.0), 10.0, NoJitter())

    assert [policy.bounds(n) for n in (1, 2, 3, 4)] == [(1.0, 3.0), (1.0, 9.0), (1.0, 10.0), (1.0, 10.0)]
    assert policy.delay(2, Always(0.5)) == policy.delay(2, Always(0.5), 3.0) == 5.0


def test_same_seed_same_delays():
    """CB-11: all randomness comes from the given generator."""
    one, other, third = (list(islice(GRPC.delays(random.Random(seed)), 30)) for seed in (4, 4, 5))

    assert one == other
    assert not set(one) & set(third)


@pytest.mark.parametrize("n", [0, -1, -(10**300)])
def test_no_such_failure(n):
    """BP: failures count from 1."""
    for ask in (GRPC.nominal, GRPC.bounds, GRPC.window, lambda n: GRPC.delay(n, random.Random())):
        with pytest.raises(ValueError, match=f"n={n}: expected at least 1, since failures are counted from 1"):
            ask(n)


def test_value():
    """BP: a policy is a frozen, hashable value that compares by content; its `repr` omits the cache."""
    policy = BackoffPolicy(Steps([1.0, 2.0], 2.0), 60.0, Proportional(0.1))

    assert policy == BackoffPolicy(Steps((1.0, 2.0), 2.0), 60.0, Proportional(0.1))
    assert len({policy, BackoffPolicy(Steps((1.0, 2.0), 2.0), 60.0, Proportional(0.1)), GRPC}) == 2
    assert eval(repr(policy)) == policy
    with pytest.raises(FrozenInstanceError):
        policy.cap = 2.0


STRATEGY = "a strategy such as Exponential(1.0, 2.0)"
JITTER = "a jitter such as Proportional(0.2)"
CAP = "a finite number of seconds above 0"


@pytest.mark.parametrize(
    ("strategy", "cap", "jitter", "problem", "allowed"),
    [
        (2.0, 9.0, NoJitter(), "strategy=2.0", STRATEGY),
        (None, 9.0, NoJitter(), "strategy=None", STRATEGY),
        (Fixed(1.0), 9.0, 0.2, "jitter=0.2", JITTER),
        (Fixed(1.0), 9.0, None, "jitter=None", JITTER),
        (Decorrelated(1.0), math.nan, NoJitter(), "cap=nan", CAP),
        (Decorrelated(1.0), math.inf, NoJitter(), "cap=inf", CAP),
        (Decorrelated(1.0), 0, NoJitter(), "cap=0", CAP),
        (Decorrelated(1.0), -1.0, NoJitter(), "cap=-1.0", CAP),
        (Decorrelated(1.0), 9.0, Full(), "jitter=Full()", "NoJitter(), since Decorrelated has its own jitter"),
    ],
)
def test_impossible(strategy, cap, jitter, problem, allowed):
    """CH-10: a policy created in code is checked when it is created, not on first use."""
    with pytest.raises(OptionError, match=exactly(f"BackoffPolicy.{problem}: expected {allowed}")):
        BackoffPolicy(strategy, cap, jitter)


def test_decorrelated_starts_from_the_cap_at_most():
    """BP-1: without a previous wait, a decorrelated wait far into a series is drawn as after a wait of the cap."""
    policy = BackoffPolicy(Decorrelated(1.0), 10.0, NoJitter())
    assert policy.window(50) == policy.window(50, previous=10.0) == Window(1.0, 29.0, 10.0)
