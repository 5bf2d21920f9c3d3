"""The terms that a client is judged by: the numbers of the protocol and of the official test, written out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpc_judge.conformance import PROTOCOL, Range, Terms
from tests.interop_suite.conformance import made


def test_official_band():
    """IO-2: every gap, even the first, may be from 0.8 E - 100 ms to 1.2 E + 100 ms for a backoff of E."""
    bands = [PROTOCOL.band(n) for n in (1, 2, 11, 12, 10_000)]
    found = [(round(band.low, 3), round(band.high, 3)) for band in bands]
    assert found == [(0.7, 1.3), (1.18, 2.02), (87.861, 132.041), (95.9, 144.1), (95.9, 144.1)]


def test_both_ends_of_a_band_are_allowed():
    """IO-2: both ends of a range are allowed, since the official server compares with less-or-equal."""
    assert 0.7 in Range(0.7, 1.3)
    assert 1.3 in Range(0.7, 1.3)
    assert 0.699 not in Range(0.7, 1.3)
    assert 1.301 not in Range(0.7, 1.3)


def test_growth_ends_at_the_cap():
    """CB-5: gaps grow as 1, 1.6, 2.56 s up to 120 s, which the twelfth gap is the first to reach."""
    assert [round(PROTOCOL.nominal(n), 3) for n in (1, 2, 3, 11, 12, 13)] == [1, 1.6, 2.56, 109.951, 120, 120]
    assert PROTOCOL.first_capped == 12
    assert [PROTOCOL.capped(n) for n in (11, 12)] == [False, True]


def test_a_cap_below_the_initial_backoff_counts_from_the_first_gap():
    """CB-5: a MAX_BACKOFF below INITIAL_BACKOFF caps even the first gap."""
    terms = replace(PROTOCOL, cap=0.5)
    assert (terms.nominal(1), terms.first_capped) == (0.5, 1)


def test_large_numbers():
    """CB-13: the millionth gap can be computed without overflow."""
    assert PROTOCOL.nominal(1_000_000) == 120


def test_fewest_starts_is_about_what_the_official_test_expects():
    """IO-2: in 540 s the slowest client allowed makes 12 retries; the official test expects about 13."""
    assert PROTOCOL.fewest_starts(540) == 13
    assert PROTOCOL.fewest_starts(1.29) == 1
    assert PROTOCOL.fewest_starts(1.3) == 2


def test_most_starts_is_what_the_fastest_client_makes():
    """IO-2: `most_starts` is the number of attempts with the shortest gaps allowed."""
    assert PROTOCOL.most_starts(0.69) == 1
    assert PROTOCOL.most_starts(0.7) == 2
    assert PROTOCOL.most_starts(1.9) == 3
    assert PROTOCOL.most_starts(540) == 15


def test_fewest_starts_of_attempts_that_hang():
    """CB-3: an attempt that lasts longer than its backoff delays the next one."""
    assert PROTOCOL.fewest_starts(40.1, lasting=20.0) == 2
    assert PROTOCOL.fewest_starts(40.2, lasting=20.0) == 3


def test_limit_grows_with_the_backoff():
    """CB-3: an attempt's limit is MIN_CONNECT_TIMEOUT and, from the seventh attempt on, the longest gap."""
    assert PROTOCOL.outlasting(1) == 20
    assert PROTOCOL.outlasting(7) == pytest.approx(1.2 * 1.6**6)
    assert PROTOCOL.outlasting(20) == pytest.approx(144)


def test_longest_gap_after_an_outage():
    """CB-4: the longest gap possible at a given time after a loss comes after gaps that are all as short as allowed."""
    assert PROTOCOL.longest_gap_after(0.0) == PROTOCOL.band(1)
    assert PROTOCOL.longest_gap_after(0.7) == PROTOCOL.band(2)
    assert PROTOCOL.longest_gap_after(1.87) == PROTOCOL.band(2)
    assert PROTOCOL.longest_gap_after(1.89) == PROTOCOL.band(3)
    assert PROTOCOL.longest_gap_after(1e6) == PROTOCOL.band(12)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"tolerance": 0.17}, "Terms.tolerance=0.17: expected less than 0.16, the shortest gap"),
        ({"cap": 0.05}, "Terms.tolerance=0.05: expected less than 0.04, the shortest gap"),
        ({"multiplier": 1.0}, "Terms.multiplier=1: expected a number above 1"),
    ],
)
def test_terms_that_leave_nothing_to_judge(change, complaint):
    """IO-2: terms are rejected if the tolerance is at least as long as the shortest gap, or the backoff never grows."""
    values = {name: getattr(made.TERMS, name) for name in Terms.__dataclass_fields__}
    with pytest.raises(ValueError, match=complaint):
        Terms(**values | change)
