"""The library's own schedules, with any random numbers and any delay within the tolerance, judged by the clauses."""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from grpc_backoff import BackoffPolicy, Exponential, Proportional
from grpc_judge.conformance import CLAUSES, PROTOCOL, Outcome, Scenario, judge
from tests.interop_suite.conformance import made

SEEDS = st.integers(0, 2**32)


def gaps(terms, seed, count, *, jitter_first):
    """Return the library's gaps as a server sees them, each changed by network delays."""
    rng = random.Random(seed)
    policy = BackoffPolicy(Exponential(terms.initial, terms.multiplier), terms.cap, Proportional(terms.jitter))
    delays = [policy.delay(n, rng) for n in range(1, count + 1)]
    if not jitter_first:
        delays[0] = policy.nominal(1)
    late = [rng.expovariate(10 / terms.tolerance) for _ in range(count + 1)]
    return [delay + after - before for delay, before, after in zip(delays, late, late[1:], strict=False)]


def failed(evidence):
    return [verdict.clause for verdict in judge(evidence, CLAUSES) if verdict.outcome is Outcome.FAIL]


@pytest.mark.parametrize("terms", [made.TERMS, PROTOCOL], ids=["compressed", "protocol"])
def test_a_series_of_the_library_passes(terms):
    """CB-2, CB-5, IO-2: the library's schedule passes every clause, with or without jitter on the first gap.

    Tries forty seeds, all of which must pass.
    """
    for seed in range(40):
        found = gaps(terms, seed, terms.first_capped + 3, jitter_first=seed % 2 == 0)
        visits = [made.failing(at) for at in made.starts(found)]
        evidence = made.evidence(visits, seconds=visits[-1].accepted, terms=terms)
        assert failed(dict.fromkeys((Scenario.HANG_UP, Scenario.HANDSHAKE, Scenario.SLOW_FAILURE), evidence)) == []


@given(seed=SEEDS)
def test_two_clients_of_the_library_disperse(seed):
    """CB-11: the clauses see two clients of the library disperse, unless all their gaps happen to agree."""
    # Seven gaps, because longer series may outlast the trial, and the clauses see only what happens in it.
    first, second = (gaps(made.TERMS, seed + number, 7, jitter_first=False) for number in (1, 2))
    apart = [abs(one - other) for one, other in zip(first[1:], second[1:], strict=True)]
    assume(max(apart) > made.TERMS.tolerance)
    assert failed({Scenario.HERD: made.herd(first=first, second=second)}) == []


# In the series of this example, a higher cap explains the last gap, but then not the gap before it.
@example(seed=3175, factor=3.0, place=8)
@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=SEEDS, factor=st.sampled_from([0.3, 3.0]), place=st.integers(1, 8))
def test_any_gap_that_is_far_off_is_caught(seed, factor, place):
    """CB-2, CB-5: a gap of 0.3 or 3 times its nominal length fails a clause, wherever it is in the series.

    Tries thirty-one fixed examples, all of which must pass.
    """
    found = gaps(made.TERMS, seed, 8, jitter_first=False)
    found[place - 1] = factor * made.TERMS.nominal(place)
    missed = failed({Scenario.HANG_UP: made.series(found, seconds=20.0)})
    assert missed
