"""The connect policy: the gaps between the starts of attempts."""

from __future__ import annotations

import math
import random
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from grpc_backoff.errors import OptionError
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.connect import Reconnect
from grpc_backoff.policy.jitter import Full, NoJitter
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.policy.strategy import Decorrelated, Fixed
from tests.policy.values import Always, backoffs, failures, unhurried
from tests.texts import begins

JITTERED = replace(CONNECT, jitter_first=True)
NO_WAIT = BackoffPolicy(Fixed(0.0), 1.0, Full())
DECORRELATED = replace(CONNECT, backoff=BackoffPolicy(Decorrelated(1.0), 60.0, NoJitter()))


@pytest.mark.parametrize("drawn", [0.0, 0.5, 1.0])
def test_first_gap(drawn):
    """CB-2: the first gap is exactly INITIAL_BACKOFF, regardless of the number that is drawn."""
    assert CONNECT.gap(1, Always(drawn)) == 1.0
    assert CONNECT.bounds(1) == (1.0, 1.0)


def test_first_gap_jittered():
    """CB-2: with `jitter_first`, the first gap has the same jitter as all later gaps."""
    gaps = [JITTERED.gap(1, random.Random(seed)) for seed in range(200)]

    assert len(set(gaps)) > 150
    assert all(0.8 <= gap <= 1.2 for gap in gaps)


@pytest.mark.parametrize("policy", [CONNECT, JITTERED])
@pytest.mark.parametrize("attempt", [2, 3, 50])
def test_later_gaps(policy, attempt):
    """CB-5: every later gap is the backoff's delay for that attempt, including jitter."""
    assert policy.gap(attempt, random.Random(7)) == policy.backoff.delay(attempt, random.Random(7))


@pytest.mark.parametrize("policy", [CONNECT, JITTERED, DECORRELATED])
@pytest.mark.parametrize("attempt", [1, 2, 20])
def test_one_draw(policy, attempt):
    """CB-11: each gap draws exactly one number from the generator, so a simulated fleet can draw them in advance."""
    asked, expected = random.Random(3), random.Random(3)
    policy.gap(attempt, asked)
    expected.random()

    assert asked.getstate() == expected.getstate()


@unhurried
@given(backoff=backoffs, jitter_first=st.booleans(), attempt=failures, seed=st.integers())
def test_gap_within_bounds(backoff, jitter_first, attempt, seed):
    """CB-5: every gap, including the first, lies within its bounds for any backoff."""
    assume(backoff.nominal(1) > 0)
    policy = replace(CONNECT, backoff=backoff, jitter_first=jitter_first)
    low, high = policy.bounds(attempt)

    assert 0 <= low <= policy.gap(attempt, random.Random(seed)) <= high
    assert (policy.gap(attempt, Always(0.0)), policy.gap(attempt, Always(1.0))) == (low, high)


def test_gap_goes_on():
    """CB-2, BP: with decorrelated backoff, the first gap is its base; each later gap depends on the previous one."""
    assert DECORRELATED.initial_backoff == DECORRELATED.gap(1, Always(0.9)) == 1.0
    assert [DECORRELATED.gap(2, Always(drawn), 1.0) for drawn in (0.0, 1.0)] == [1.0, 3.0]
    assert [DECORRELATED.bounds(n) for n in (1, 2, 3, 4, 9)] == [(1, 1), (1, 3), (1, 9), (1, 27), (1, 60)]
    assert [DECORRELATED.nominal(n) for n in (1, 2, 3)] == [1.0, 2.0, 3.5]


def test_decorrelated_from_the_first():
    """CB-2: with `jitter_first`, the first gap of decorrelated backoff is drawn as well."""
    policy = replace(DECORRELATED, jitter_first=True)

    assert [policy.bounds(n) for n in (1, 2, 3)] == [(1, 3), (1, 9), (1, 27)]


def test_what_is_checked_is_kept():
    """CH-10: a policy stores each value as the checks return it."""
    policy = replace(CONNECT, idle_timeout=0.1, jitter_first=1, min_connect_timeout=5)

    assert (policy.idle_timeout, policy.jitter_first, type(policy.min_connect_timeout)) == (1.0, True, float)


def test_limit():
    """CB-3: an attempt may last until the next attempt may start, but at least MIN_CONNECT_TIMEOUT."""
    assert [CONNECT.limit(gap) for gap in (1.0, 20.0, 50.0)] == [20.0, 20.0, 50.0]


def test_initial_backoff():
    """CB-2: INITIAL_BACKOFF is the first wait without jitter, capped."""
    assert CONNECT.initial_backoff == 1.0
    assert replace(CONNECT, backoff=replace(CONNECT.backoff, cap=0.25)).initial_backoff == 0.25


def test_frozen():
    """BP: a connect policy is a frozen, hashable value that compares by content."""
    with pytest.raises(FrozenInstanceError):
        CONNECT.stable_after = 1.0

    assert replace(CONNECT) == CONNECT
    assert len({CONNECT, replace(CONNECT), JITTERED}) == 2


def test_reconnect_words():
    """CB-7: the two ways to replace a lost connection have the names that the option uses."""
    assert [when.value for when in Reconnect] == ["lazy", "eager"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"min_connect_timeout": math.inf}, "min_connect_timeout=inf: expected a finite number of seconds above 0"),
        ({"stable_after": math.nan}, "stable_after=nan: expected a finite, non-negative number of seconds"),
        ({"idle_timeout": -1}, "idle_timeout=-1: expected a number of seconds from 0 to inf (never)"),
        ({"reconnect": "eager"}, "reconnect='eager': expected "),
        ({"jitter_first": "no"}, "jitter_first='no': expected "),
        ({"backoff": 1.0}, "backoff=1.0: expected "),
        ({"backoff": NO_WAIT}, f"backoff={NO_WAIT}: expected a BackoffPolicy that waits after a failure"),
    ],
)
def test_impossible(change, message):
    """CH-10: a policy created in code is checked in the same way as options."""
    with pytest.raises(OptionError, match=begins(f"ConnectPolicy.{message}")):
        replace(CONNECT, **change)
