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


@pytest.mark.parametrize(
    ("method", "given", "expected"),
    [
        # CB-5: gaps grow as 1, 1.6, 2.56 s up to 120 s, which the twelfth gap is the first to reach.
        ("nominal", [1, 2, 3, 11, 12, 13], [1, 1.6, 2.56, 109.9511627776, 120, 120]),
        # CB-13: the millionth gap can be computed without overflow.
        ("nominal", [1_000_000], [120]),
        # IO-2: in 540 s the slowest client allowed makes 12 retries; the official test expects about 13.
        ("fewest_starts", [1.29, 1.3, 540], [1, 2, 13]),
        ("most_starts", [0.69, 0.7, 1.9, 540], [1, 2, 3, 15]),
        # CB-3: an attempt's limit is MIN_CONNECT_TIMEOUT and, from the seventh attempt on, the longest gap.
        ("outlasting", [1, 7, 20], [20, 1.2 * 1.6**6, 144]),
    ],
)
def test_the_numbers_of_the_protocol(method, given, expected):
    """CB-3, CB-5, CB-13, IO-2: the terms give the protocol's gaps, limits and numbers of attempts."""
    assert [getattr(PROTOCOL, method)(each) for each in given] == pytest.approx(expected)


@pytest.mark.parametrize(("cap", "first_gap", "first_capped"), [(120.0, 1.0, 12), (0.5, 0.5, 1)])
def test_the_cap(cap, first_gap, first_capped):
    """CB-5: gaps end at MAX_BACKOFF; one below INITIAL_BACKOFF caps even the first gap."""
    terms = replace(PROTOCOL, cap=cap)
    assert (terms.nominal(1), terms.first_capped) == (first_gap, first_capped)


def test_longest_gap_after_an_outage():
    """CB-4: the longest gap possible at a given time after a loss comes after gaps that are all as short as allowed."""
    for seconds, n in ((0.0, 1), (0.7, 2), (1.87, 2), (1.89, 3), (1e6, 12)):
        assert PROTOCOL.longest_gap_after(seconds) == PROTOCOL.band(n)


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
