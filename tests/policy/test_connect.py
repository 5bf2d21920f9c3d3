"""The connect policy: gaps between the starts of attempts."""

from __future__ import annotations

import math
import random
from dataclasses import FrozenInstanceError, replace

import pytest

from grpc_backoff.errors import OptionError
from grpc_backoff.policy.connect import Reconnect
from grpc_backoff.policy.presets import CONNECT

JITTERED = replace(CONNECT, jitter_first=True)


class NoChance:
    """A generator that nobody may ask."""

    def uniform(self, a, b):
        raise AssertionError("a number was drawn")


def test_first_gap():
    """CB-2: the first gap is INITIAL_BACKOFF exactly; nothing is drawn for it."""
    assert CONNECT.gap(1, NoChance()) == 1.0


def test_first_gap_jittered():
    """CB-2: with `jitter_first` the first gap is jittered as all others are."""
    gaps = [JITTERED.gap(1, random.Random(seed)) for seed in range(200)]

    assert len(set(gaps)) > 150
    assert all(0.8 <= gap <= 1.2 for gap in gaps)


@pytest.mark.parametrize("policy", [CONNECT, JITTERED])
@pytest.mark.parametrize("attempt", [2, 3, 50])
def test_later_gaps(policy, attempt):
    """CB-5: every later gap is the backoff's delay of that number, jitter included."""
    assert policy.gap(attempt, random.Random(7)) == policy.backoff.delay(attempt, random.Random(7))


def test_initial_backoff():
    """CB-2: INITIAL_BACKOFF is the first wait before jitter, under the cap."""
    assert CONNECT.initial_backoff == 1.0
    assert replace(CONNECT, backoff=replace(CONNECT.backoff, cap=0.25)).initial_backoff == 0.25


def test_frozen():
    """BP: a policy is a value: frozen, hashable, equal to its like."""
    with pytest.raises(FrozenInstanceError):
        CONNECT.stable_after = 1.0

    assert replace(CONNECT) == CONNECT
    assert len({CONNECT, replace(CONNECT), JITTERED}) == 2


def test_reconnect_words():
    """CB-7: the two ways to replace a lost connection, in the words of the option."""
    assert [when.value for when in Reconnect] == ["lazy", "eager"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"min_connect_timeout": math.inf},
            "ConnectPolicy.min_connect_timeout = inf is not allowed; a finite number of seconds above 0 is",
        ),
        (
            {"stable_after": math.nan},
            "ConnectPolicy.stable_after = nan is not allowed; a finite number of seconds of at least 0 is",
        ),
        (
            {"idle_timeout": -1},
            "ConnectPolicy.idle_timeout = -1 is not allowed; a number of seconds from 0 to inf (never) is",
        ),
    ],
)
def test_impossible(change, message):
    """CH-10: a policy made by hand is held to what options are held to."""
    with pytest.raises(OptionError) as caught:
        replace(CONNECT, **change)

    assert str(caught.value) == message
