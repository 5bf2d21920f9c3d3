"""Timelines that the library's own algorithm makes, with any luck and with any delay that the tolerance covers."""

from __future__ import annotations

import random

from hypothesis import assume, given
from hypothesis import strategies as st

from grpc_backoff import BackoffPolicy, Exponential, Proportional
from interop.conformance import CLAUSES, PROTOCOL, Outcome, Scenario, judge
from tests.interop_suite.conformance import made

SEEDS = st.integers(0, 2**32)
TERMS = st.sampled_from([made.TERMS, PROTOCOL])


def gaps(terms, seed, count, *, jitter_first):
    """Return what the library waits, and what the way to the server makes of it."""
    rng = random.Random(seed)
    policy = BackoffPolicy(Exponential(terms.initial, terms.multiplier), terms.cap, Proportional(terms.jitter))
    delays = [policy.delay(n, rng) for n in range(1, count + 1)]
    if not jitter_first:
        delays[0] = policy.nominal(1)
    late = [rng.uniform(0, terms.tolerance) for _ in range(count + 1)]
    return [delay + after - before for delay, before, after in zip(delays, late, late[1:], strict=False)]


def failed(evidence):
    return [verdict.clause for verdict in judge(evidence, CLAUSES) if verdict.outcome is Outcome.FAIL]


@given(seed=SEEDS, terms=TERMS, jitter_first=st.booleans())
def test_any_series_of_the_library_passes(seed, terms, jitter_first):
    """CB-2, CB-5, IO-2: whatever jitter and the way to the server do, the algorithm is recognised."""
    found = gaps(terms, seed, terms.first_capped + 3, jitter_first=jitter_first)
    nominal = [terms.nominal(n) for n in range(1, len(found) + 1)]
    # A run of luck that keeps every gap where it would be without jitter cannot be told from having none.
    assume(any(abs(gap - length) > terms.tolerance for gap, length in zip(found[1:], nominal[1:], strict=True)))
    visits = [made.failing(at) for at in made.starts(found)]
    evidence = made.evidence(visits, seconds=visits[-1].accepted, terms=terms)
    assert failed(dict.fromkeys((Scenario.HANG_UP, Scenario.HANDSHAKE, Scenario.SLOW_FAILURE), evidence)) == []


@given(seed=SEEDS)
def test_two_clients_of_the_library_disperse(seed):
    """CB-11: two clients are told from one another by their jitter, all but always."""
    first, second = (gaps(made.TERMS, seed + number, 9, jitter_first=False) for number in (1, 2))
    apart = [abs(one - other) for one, other in zip(first[1:], second[1:], strict=True)]
    assume(max(apart) > made.TERMS.tolerance)
    assert failed({Scenario.HERD: made.herd(first=first, second=second)}) == []


@given(seed=SEEDS, factor=st.sampled_from([0.3, 0.5, 2.0, 3.0]), place=st.integers(1, 8))
def test_any_gap_that_is_far_off_is_caught(seed, factor, place):
    """CB-2, CB-5: in any series, a gap of half or twice its length fails a clause, whichever it is."""
    found = gaps(made.TERMS, seed, 8, jitter_first=False)
    found[place - 1] = factor * made.TERMS.nominal(place)
    assume(abs(found[place - 1] - made.TERMS.nominal(place)) > 0.2 * made.TERMS.nominal(place) + made.TERMS.tolerance)
    missed = failed({Scenario.HANG_UP: made.series(found, seconds=20.0)})
    assert set(missed) - {"keeps-trying"}
