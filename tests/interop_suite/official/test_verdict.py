"""The verdict on hand-made gaps: those of a correct client, and those of clients with one fault each."""

from __future__ import annotations

import math
import random

import pytest

from grpc_judge.official.verdict import judge, terms_for

OFFICIAL = [1.0, 1.6, 2.56, 4.096, 6.5536, 10.48576, 16.777216, 26.8435456, 42.94967296, 68.719476736, 109.9511627776]
"""Eleven growing gaps, written out. All the rest within the 540 s are 120 s long."""


def verdict_on(gaps, *, seconds=None, attempts=None, **told):
    return judge(
        gaps,
        attempts=len(gaps) + 1 if attempts is None else attempts,
        seconds=sum(gaps) if seconds is None else seconds,
        terms=terms_for(**told),
    )


def test_the_official_540_seconds():
    """IO-1: a client without jitter passes, with the 14 attempts that fit into 540 s."""
    verdict = verdict_on([*OFFICIAL, 120, 120], seconds=540)
    assert verdict.passed
    assert verdict.attempts.seen == 14
    assert verdict.faults == ()


@pytest.mark.parametrize("seed", range(20))
def test_any_jitter_that_is_allowed(seed):
    """IO-1, CB-5: gaps with any jitter that the protocol allows, and with network delays, pass."""
    rng = random.Random(seed)
    gaps = []
    while sum(gaps) < 540:
        nominal = min(120, 1.6 ** len(gaps))
        gaps.append(nominal * rng.uniform(0.8, 1.2) + rng.uniform(-0.1, 0.1))
    assert verdict_on(gaps[:-1], seconds=540).passed


@pytest.mark.parametrize("number", range(13))
@pytest.mark.parametrize(("factor", "beyond"), [(0.8, -1), (1.2, 1)])
def test_both_edges_of_every_gap(number, factor, beyond):
    """IO-2: a gap of exactly 0.8 E - 100 ms or 1.2 E + 100 ms passes; one that is 10 µs beyond does not."""
    gaps = [*OFFICIAL, 120.0, 120.0]
    gaps[number] = factor * gaps[number] + beyond * 0.1
    assert verdict_on(gaps, seconds=540).passed
    gaps[number] += beyond * 1e-5
    verdict = verdict_on(gaps, seconds=540)
    [fault] = verdict.faults
    assert not verdict.passed
    assert fault.what == f"gap {number + 1}"
    assert fault.missed_by == pytest.approx(1e-5, rel=0.01)


@pytest.mark.parametrize(
    ("seconds", "fewest"),
    [
        (0.1, 2),
        (2.2, 2),
        (2.4, 2),  # 1 s to begin, and at most 1.3 s for the first gap
        (4.3, 2),
        (4.4, 3),  # plus 2.02 s for the second
        (7.4, 3),
        (7.5, 4),  # plus 3.172 s for the third
        (540, 13),
        (900, 15),
    ],
)
def test_the_fewest_attempts(seconds, fewest):
    """IO-2: a client must make at least two attempts, and as many as the slowest client allowed."""
    longest = [1.2 * gap + 0.1 for gap in [*OFFICIAL, 120, 120, 120, 120, 120]]
    enough, few = longest[: fewest - 1], longest[: fewest - 2]
    assert verdict_on(enough, seconds=seconds).passed
    [fault] = verdict_on(few, seconds=seconds).faults
    assert fault.what == "attempts"
    assert (fault.seen, fault.allowed.low, fault.allowed.high) == (fewest - 1, fewest, math.inf)


@pytest.mark.parametrize("attempts", [0, 1])
def test_a_client_that_does_not_dial(attempts):
    """IO-2: a client with fewer than two attempts fails, although the official server passes it."""
    assert not verdict_on([], seconds=540, attempts=attempts).passed


@pytest.mark.parametrize(
    ("gaps", "told", "wrong"),
    [
        pytest.param([1.0] * 8, {}, 2, id="does not grow"),
        pytest.param([1.0, 2.0, 4.0, 8.0], {}, 3, id="doubles"),
        pytest.param([1.6, 2.56, 4.096], {}, 1, id="first gap grown already"),
        pytest.param([0.01] * 300, {}, 1, id="does not wait"),
        pytest.param([*OFFICIAL[:9], 60.0, 60.0], {}, 11, id="cap too low"),
        pytest.param([*OFFICIAL, 175.9], {}, 12, id="no cap"),
        pytest.param([1.0, 1.6, 2.56, 4.0, 6.4], {"maximum": 4.0}, 5, id="does not heed the cap that it told"),
        pytest.param([1.0, 1.6, 2.56, 2.56, 2.56], {"maximum": 4.0}, 4, id="cap lower than it told"),
        pytest.param([1.0, 0.5, 0.5, 0.5], {"maximum": 0.5}, 1, id="first gap not capped"),
        pytest.param([1.0, 1.9, 3.65, 7.0], {}, 3, id="jitter that compounds"),
    ],
)
def test_wrong_gaps(gaps, told, wrong):
    """IO-2: the verdict names the first wrong gap, its length and the lengths that are allowed."""
    verdict = verdict_on(gaps, **told)
    assert not verdict.passed
    assert verdict.faults[0].what == f"gap {wrong}"
    assert str(verdict.faults[0]).startswith(f"gap {wrong}: {gaps[wrong - 1]:.3f} s, allowed ")


@pytest.mark.parametrize(
    ("gaps", "told", "passed"),
    [
        ([0.5] * 6, {"maximum": 0.5}, True),  # E is capped before the first gap; the official server caps it afterwards
        ([0.25, 0.4, 0.64, 1.0, 1.0], {"initial": 0.25, "maximum": 1.0}, True),
        ([0.25, 0.7, 0.64, 1.0, 1.0], {"initial": 0.25, "maximum": 1.0}, False),
    ],
)
def test_other_backoffs(gaps, told, passed):
    """IO-1, IO-2: another INITIAL_BACKOFF or MAX_BACKOFF changes the expected gaps, but not the network's 100 ms."""
    assert verdict_on(gaps, **told).passed is passed


@pytest.mark.parametrize("told", [{"maximum": 0.125}, {"initial": 0.1}, {"maximum": -1.0}])
def test_nothing_to_judge(told):
    """IO-2: a backoff is rejected if it is so short that the network's 100 ms could hide it."""
    with pytest.raises(ValueError, match=r"cannot be judged; allowed is more than 0\.125 s"):
        terms_for(**told)
