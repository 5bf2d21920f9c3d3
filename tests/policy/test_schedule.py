"""A policy as a table of waits."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.jitter import Full, NoJitter
from grpc_backoff.policy.presets import GRPC, RETRY_PRESETS
from grpc_backoff.policy.schedule import Row, schedule, usual_length
from grpc_backoff.policy.strategy import Decorrelated, Exponential, Fixed, Linear, Steps
from tests.policy.values import backoffs, unhurried


def test_rows():
    """BP-1: each row has the wait, its bounds, and the running totals of means and bounds."""
    policy = BackoffPolicy(Linear(2.0), 5.0, Full())

    assert schedule(policy, 3) == [
        Row(number=1, wait=2.0, low=0.0, high=2.0, total=1.0, total_low=0.0, total_high=2.0),
        Row(number=2, wait=4.0, low=0.0, high=4.0, total=3.0, total_low=0.0, total_high=6.0),
        Row(number=3, wait=5.0, low=0.0, high=5.0, total=5.5, total_low=0.0, total_high=11.0),
    ]
    assert schedule(policy, 0) == []


@unhurried
@given(policy=backoffs.filter(lambda policy: not isinstance(policy.strategy, Decorrelated)), n=st.integers(1, 50))
def test_expected(policy, n):
    """BP-1: the expected wait is the mean of the waits that can be drawn, those at the cap included."""
    window = policy.window(n)
    drawn = [window.at((number + 0.5) / 2000) for number in range(2000)]

    assert policy.expected(n) == pytest.approx(math.fsum(drawn) / len(drawn), rel=1e-3, abs=1e-300)


def test_decorrelated():
    """BP-1: a decorrelated wait is shown as its mean; its upper bound assumes the largest possible previous wait."""
    rows = schedule(BackoffPolicy(Decorrelated(1.0), 20.0, NoJitter()), 4)

    assert [(row.wait, row.low, row.high) for row in rows] == [
        (2.0, 1.0, 3.0),
        (3.5, 1.0, 9.0),
        (5.75, 1.0, 20.0),
        (9.125, 1.0, 20.0),
    ]


@pytest.mark.parametrize(("base", "cap"), [(1.0, 30.0), (0.5, 2.0), (5.0, 4.0)])
def test_decorrelated_total(base, cap):
    """BP-1: the expected total of decorrelated waits is the mean of real ones, which the cap keeps short."""
    policy, rng = BackoffPolicy(Decorrelated(base), cap, NoJitter()), random.Random(4)
    drawn = [math.fsum(itertools.islice(policy.delays(rng), 12)) for _ in range(4000)]

    assert schedule(policy, 12)[-1].total == pytest.approx(math.fsum(drawn) / len(drawn), rel=0.02)
    assert policy.expected(10_000) == policy.expected(1000)


@unhurried
@given(policy=backoffs, rows=st.integers(1, 30))
def test_sums(policy, rows):
    """BP-1: the totals in the last row are the sums of all bounds."""
    table = schedule(policy, rows)

    assert [row.number for row in table] == list(range(1, rows + 1))
    assert table[-1].total_low == pytest.approx(sum(row.low for row in table))
    assert table[-1].total_high == pytest.approx(sum(row.high for row in table))


@pytest.mark.parametrize(
    ("policy", "max_attempts", "rows"),
    [
        (GRPC, 5, 5),
        (GRPC, 100, 12),
        (GRPC, 2, 2),
        (GRPC, None, 12),  # up to the first row at the cap
        (GRPC, 1, 12),
        (GRPC, 24, 24),
        (RETRY_PRESETS["steps"], None, 7),
        (BackoffPolicy(Fixed(1.0), 30.0, NoJitter()), None, 1),
        (BackoffPolicy(Steps((1.0, 2.0, 1.0, 2.0), 1.0), 30.0, NoJitter()), None, 4),
        (BackoffPolicy(Steps((1.0, 1.0, 5.0), 1.0), 30.0, NoJitter()), None, 3),
        (BackoffPolicy(Exponential(1.0, 2.0), 30.0, NoJitter()), None, 6),
        (BackoffPolicy(Exponential(1.0, 2.0), 1e9, NoJitter()), None, 24),
        # As many rows as the table in the preset's document.
        *((RETRY_PRESETS[name], 5, 5) for name in ("standard", "aggressive", "conservative")),
        *((RETRY_PRESETS[name], 7, 7) for name in ("contention", "background")),
    ],
)
def test_usual_length(policy, max_attempts, rows):
    """BP-1: a table has a row for each attempt; for unlimited attempts, it ends when the waits stop changing."""
    assert usual_length(policy, max_attempts) == rows
