"""What a client is held to: numbers of the protocol and of the official test, written out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from interop.conformance import PROTOCOL, Range, Terms
from tests.interop_suite.conformance import made


def test_official_band():
    """IO-2: a gap of backoff E may be [0.8 E - 100 ms, 1.2 E + 100 ms], the first one too."""
    bands = [PROTOCOL.band(n) for n in (1, 2, 11, 12, 10_000)]
    found = [(round(band.low, 3), round(band.high, 3)) for band in bands]
    assert found == [(0.7, 1.3), (1.18, 2.02), (87.861, 132.041), (95.9, 144.1), (95.9, 144.1)]


def test_both_ends_of_a_band_are_allowed():
    """IO-2: the official server compares with less-or-equal."""
    assert 0.7 in Range(0.7, 1.3)
    assert 1.3 in Range(0.7, 1.3)
    assert 0.699 not in Range(0.7, 1.3)
    assert 1.301 not in Range(0.7, 1.3)


def test_growth_ends_at_the_cap():
    """CB-5: 1, 1.6, 2.56 and so on to 120, which the twelfth gap is the first to have."""
    assert [round(PROTOCOL.nominal(n), 3) for n in (1, 2, 3, 11, 12, 13)] == [1, 1.6, 2.56, 109.951, 120, 120]
    assert PROTOCOL.first_capped == 12
    assert [PROTOCOL.capped(n) for n in (11, 12)] == [False, True]


def test_a_cap_below_the_initial_backoff_counts_from_the_first_gap():
    """CB-5: MAX_BACKOFF caps the first gap as well."""
    terms = replace(PROTOCOL, cap=0.5)
    assert (terms.nominal(1), terms.first_capped) == (0.5, 1)


def test_large_numbers():
    """CB-13: the millionth gap is as easy to tell as the first."""
    assert PROTOCOL.nominal(1_000_000) == 120


def test_fewest_starts_is_about_what_the_official_test_expects():
    """IO-2: in 540 s the description of the test expects about 13 retries; the slowest client makes 12."""
    assert PROTOCOL.fewest_starts(540) == 13
    assert PROTOCOL.fewest_starts(1.29) == 1
    assert PROTOCOL.fewest_starts(1.3) == 2


def test_most_starts_is_what_the_fastest_client_makes():
    """IO-2: all gaps as short as they may be."""
    assert PROTOCOL.most_starts(0.69) == 1
    assert PROTOCOL.most_starts(0.7) == 2
    assert PROTOCOL.most_starts(1.9) == 3
    assert PROTOCOL.most_starts(540) == 15


def test_fewest_starts_of_attempts_that_hang():
    """CB-3: an attempt that takes longer than its backoff holds up the next one."""
    assert PROTOCOL.fewest_starts(40.1, lasting=20.0) == 2
    assert PROTOCOL.fewest_starts(40.2, lasting=20.0) == 3


def test_limit_grows_with_the_backoff():
    """CB-3: the limit is MIN_CONNECT_TIMEOUT or the gap, whichever is longer; 1.6^7 s is the first longer one."""
    assert PROTOCOL.outlasting(1) == 20
    assert PROTOCOL.outlasting(7) == pytest.approx(1.2 * 1.6**6)
    assert PROTOCOL.outlasting(20) == pytest.approx(144)


def test_longest_gap_after_an_outage():
    """CB-4: the gap that is under way after so long is the one before whose end all shorter gaps may have passed."""
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
    """IO-2: a tolerance as long as a gap, and a backoff that never grows, are refused."""
    values = {name: getattr(made.TERMS, name) for name in Terms.__dataclass_fields__}
    with pytest.raises(ValueError, match=complaint):
        Terms(**values | change)
