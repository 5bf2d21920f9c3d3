"""The distributions of waits with jitter, and the text form of jitters."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from benchmarks.dispersal.simulation import draw_gaps
from grpc_backoff.errors import OptionError
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.jitter import (
    JITTERS,
    Additive,
    Equal,
    Full,
    NoJitter,
    Proportional,
    Scaled,
    Window,
    parse_jitter,
)
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.policy.strategy import Decorrelated, Fixed
from tests.policy.values import jitters, times, unhurried
from tests.texts import exactly

SAMPLES = 20_000
LIKELY = 0.01
"""The significance level: with one seed in a hundred, a correct sample has a lower p-value."""
IMPOSSIBLE = 1e-12

# With a cap of 10 s: the jitter, the wait without jitter, the interval of the uniform distribution, and the fraction of
# draws that equal the cap instead.
STATED = [
    (Proportional(0.25), 4.0, (3.0, 5.0), 0.0),
    (Proportional(0.25), 10.0, (7.5, 12.5), 0.0),
    (Proportional(0.25), 64.0, (7.5, 12.5), 0.0),
    (Proportional(0.25, then_cap=True), 4.0, (3.0, 5.0), 0.0),
    (Proportional(0.25, then_cap=True), 8.8, (6.6, 10.0), 0.22727272727272727),
    (Proportional(0.25, then_cap=True), 64.0, (7.5, 10.0), 0.5),
    (Scaled(0.5, 1.5), 4.0, (2.0, 6.0), 0.0),
    (Scaled(0.5, 1.5), 8.0, (4.0, 10.0), 0.25),
    (Scaled(0.5, 1.5), 16.0, (8.0, 10.0), 0.875),
    (Additive(0.5), 4.0, (4.0, 6.0), 0.0),
    (Additive(0.5), 8.0, (8.0, 10.0), 0.5),
    (Full(), 4.0, (0.0, 4.0), 0.0),
    (Full(), 64.0, (0.0, 10.0), 0.0),
    (Equal(), 4.0, (2.0, 4.0), 0.0),
    (Equal(), 64.0, (5.0, 10.0), 0.0),
]
ALONE = [
    # Here all draws are equal.
    (NoJitter(), 4.0, 4.0),
    (NoJitter(), 64.0, 10.0),
    (Proportional(0.0), 4.0, 4.0),
    (Scaled(0.5, 1.5), 64.0, 10.0),
    (Scaled(2.0, 2.0), 4.0, 8.0),
    (Additive(0.5), 16.0, 10.0),
    (Additive(0.0), 4.0, 4.0),
]


def one_by_one(jitter, wait):
    """Return waits drawn one at a time, as in a channel."""
    policy, rng = BackoffPolicy(Fixed(wait), 10.0, jitter), random.Random(1)
    return np.array([policy.delay(1, rng) for _ in range(SAMPLES)])


def at_once(jitter, wait):
    """Return waits drawn all at once, as in a simulation."""
    policy = replace(CONNECT, backoff=BackoffPolicy(Fixed(wait), 10.0, jitter), jitter_first=True)
    return draw_gaps(policy, 1, np.random.default_rng(1).random(SAMPLES))


def agreement(samples, low, high):
    """Return the p-value for the hypothesis that samples below the cap are uniform from low to high."""
    return stats.kstest(samples[samples != 10.0], stats.uniform(low, high - low).cdf).pvalue


@pytest.mark.parametrize("draw", [one_by_one, at_once])
@pytest.mark.parametrize(("jitter", "wait", "interval", "cut"), STATED)
def test_distribution(draw, jitter, wait, interval, cut):
    """BP: waits have the stated distribution by a Kolmogorov-Smirnov test, with the right fraction at the cap."""
    samples = draw(jitter, wait)

    assert agreement(samples, *interval) > LIKELY
    assert stats.binomtest(int(np.sum(samples == 10.0)), SAMPLES, cut).pvalue > LIKELY


@pytest.mark.parametrize(("jitter", "wait", "only"), ALONE)
def test_no_distribution(jitter, wait, only):
    """BP: all waits are equal if there is no jitter, or if they far exceed a cap that is applied after the jitter."""
    assert Counter(one_by_one(jitter, wait)) == {only: SAMPLES}


UNCUT = [(jitter, interval) for jitter, wait, interval, _ in STATED if wait == 4.0]


@pytest.mark.parametrize(("jitter", "interval"), UNCUT)
def test_the_test_can_fail(jitter, interval):
    """BP: the Kolmogorov-Smirnov test rejects the intervals of other jitters, and uneven draws from the right one."""
    samples = one_by_one(jitter, 4.0)
    others = {other for _, other in UNCUT if other != interval}

    assert len(others) >= 4
    assert all(agreement(samples, *other) < IMPOSSIBLE for other in others)
    middle = np.random.default_rng(1).triangular(interval[0], sum(interval) / 2, interval[1], SAMPLES)
    assert agreement(middle, *interval) < IMPOSSIBLE


def after_two(wait):
    """Return the distribution function of the second decorrelated wait, for a base of 1 without a cap.

    The first wait w is uniform from 1 to 3. Given w, the second wait is at most x with probability (x - 1) / (3w - 1),
    or 1 if that is smaller. The result is the mean over w.
    """
    if wait <= 3:
        return (wait - 1) / 6 * math.log(4)
    return (wait / 3 - 1) / 2 + (wait - 1) / 6 * math.log(8 / (wait - 1))


def test_decorrelated_distribution():
    """BP: the first decorrelated wait is uniform from D to 3D, the second from D to three times the first."""
    policy, rng = BackoffPolicy(Decorrelated(1.0), 1e9, NoJitter()), random.Random(1)
    series = [policy.delays(rng) for _ in range(SAMPLES)]
    first, second, third = (np.array([next(one) for one in series]) for _ in range(3))

    assert stats.kstest(first, stats.uniform(1.0, 2.0).cdf).pvalue > LIKELY
    assert stats.kstest(second, np.vectorize(after_two)).pvalue > LIKELY
    assert stats.kstest((third - 1.0) / (3.0 * second - 1.0), stats.uniform.cdf).pvalue > LIKELY
    assert stats.kstest(second, stats.uniform(1.0, 8.0).cdf).pvalue < IMPOSSIBLE
    assert stats.kstest((third - 1.0) / (3.0 * first - 1.0), stats.uniform.cdf).pvalue < IMPOSSIBLE


def test_decorrelated_distribution_under_a_cap():
    """BP: after a wait of 6 s with a base of 2 s and a cap of 10 s, half of the draws equal the cap."""
    policy, rng = BackoffPolicy(Decorrelated(2.0), 10.0, NoJitter()), random.Random(1)
    samples = np.array([policy.delay(2, rng, 6.0) for _ in range(SAMPLES)])

    assert stats.kstest(samples[samples < 10.0], stats.uniform(2.0, 8.0).cdf).pvalue > LIKELY
    assert stats.binomtest(int(np.sum(samples == 10.0)), SAMPLES, 0.5).pvalue > LIKELY


def test_window():
    """BP: a window is a uniform distribution whose draws are cut off at a limit."""
    window = Window(2.0, 4.0, 5.0)

    assert [window.at(part) for part in (0.0, 0.25, 0.5, 0.75, 1.0)] == [2.0, 3.0, 4.0, 5.0, 5.0]


@unhurried
@given(jitter=jitters, value=times | st.just(0.0), cap=times)
def test_window_is_finite(jitter, value, cap):
    """BP: the bounds and the width of a window are finite and not negative."""
    window = jitter.window(min(value, 1e300), min(cap, 1e300))

    assert 0 <= window.low < math.inf
    assert 0 <= window.width < math.inf
    assert window.limit > 0


@unhurried
@given(jitter=jitters)
def test_round_trip(jitter):
    """BP-3: a jitter's text parses to an equal jitter."""
    assert parse_jitter("key", str(jitter)) == jitter


@pytest.mark.parametrize(
    ("text", "jitter"),
    [
        ("none", NoJitter()),
        (" none ", NoJitter()),
        ("proportional(0.2)", Proportional(0.2)),
        ("proportional(0.1, then_cap)", Proportional(0.1, then_cap=True)),
        ("scaled(0.5, 1.5)", Scaled(0.5, 1.5)),
        ("scaled (.5,1.5)", Scaled(0.5, 1.5)),
        ("additive(0.5)", Additive(0.5)),
        ("additive( 5e-1 )", Additive(0.5)),
        ("full", Full()),
        ("full()", Full()),
        ("equal", Equal()),
        (0.2, Proportional(0.2)),
        (0, Proportional(0)),
    ],
)
def test_text(text, jitter):
    """BP-3: every jitter can be parsed from text, and a number means gRPC's own form."""
    assert parse_jitter("key", text) == jitter


@pytest.mark.parametrize(
    ("jitter", "text"),
    [
        (NoJitter(), "none"),
        (Proportional(0.2), "proportional(0.2)"),
        (Proportional(0.1, then_cap=True), "proportional(0.1, then_cap)"),
        (Proportional(0.1, 1), "proportional(0.1, then_cap)"),
        (Proportional(0.123456789), "proportional(0.123456789)"),
        (Scaled(0.0, 1.0), "scaled(0, 1)"),
        (Additive(1e-07), "additive(1e-07)"),
        (Full(), "full"),
        (Equal(), "equal"),
    ],
)
def test_written(jitter, text):
    """BP-3: a jitter's text has no more digits than necessary."""
    assert str(jitter) == text


FORMS = (
    "a number between 0 (inclusive) and 1 (exclusive), or one of: none, proportional(PART[, then_cap]), "
    "scaled(LOW, HIGH), additive(PART), full, equal"
)
PROPORTIONAL = "proportional(PART[, then_cap])"
SCALED = "scaled(LOW, HIGH)"
PART = "a number between 0 (inclusive) and 1 (exclusive)"
FACTOR = "a number from 0 to 1000"


@pytest.mark.parametrize(
    ("value", "allowed"),
    [
        *((value, FORMS) for value in (1, -0.1, math.nan, True, None, [])),
        *((text, FORMS) for text in ("", "ful", "Full", "0.2", "decorrelated", "full(", "full) ", "full equal")),
        ("scaled(0.5, (1.5))", FORMS),
        ("full(1)", "full"),
        ("none(0)", "none"),
        ("equal(a)", "equal"),
        ("proportional", PROPORTIONAL),
        ("proportional()", PROPORTIONAL),
        ("proportional(0.2,)", f"{PROPORTIONAL}, where then_cap is a boolean (or 1 or 0)"),
        ("proportional(1)", f"{PROPORTIONAL}, where PART is {PART}"),
        ("proportional(-0.5)", f"{PROPORTIONAL}, where PART is {PART}"),
        ("proportional(nan)", f"{PROPORTIONAL}, where PART is {PART}"),
        ("proportional(then_cap)", f"{PROPORTIONAL}, where PART is {PART}"),
        ("proportional(0.2, cap)", f"{PROPORTIONAL}, where then_cap is a boolean (or 1 or 0)"),
        ("scaled(0.5)", SCALED),
        ("scaled(0.5, 1, 2)", SCALED),
        ("scaled(0.5,,1.5)", SCALED),
        ("scaled(1.5, 0.5)", f"{SCALED}, where HIGH is a number above 0 and at least LOW (1.5)"),
        ("scaled(0.5, inf)", f"{SCALED}, where HIGH is {FACTOR}"),
        ("scaled(-1, 1)", f"{SCALED}, where LOW is {FACTOR}"),
        ("scaled(x, 1)", f"{SCALED}, where LOW is {FACTOR}"),
        ("additive(1001)", f"additive(PART), where PART is {FACTOR}"),
        ("additive(-0.1)", f"additive(PART), where PART is {FACTOR}"),
    ],
)
def test_bad_text(value, allowed):
    """BP-4: the error for a bad jitter has its key and all valid forms, or one form if a known jitter is named."""
    with pytest.raises(OptionError, match=exactly(f"a.jitter={value!r}: expected {allowed}")) as caught:
        parse_jitter("a.jitter", value)

    assert (caught.value.key, caught.value.value is value) == ("a.jitter", True)


def test_names():
    """BP: the names that jitters have in text are fixed."""
    assert [jitter.name for jitter in JITTERS] == ["none", "proportional", "scaled", "additive", "full", "equal"]
