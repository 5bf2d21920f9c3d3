"""The way through a script: which behaviour is whose, and when time ends a step. No clock but the test's."""

from __future__ import annotations

import math

import pytest

from interop.flaky import Script
from interop.flaky.player import Player


def playing(text, now=100.0):
    return Player(Script.parse(text), now)


def test_one_behaviour_for_each_connection_in_order():
    """IO-3: as many connections as each step says, and the last step for ever."""
    player = playing("silent x2; accept_close x1; accept_reset x3; working")
    taken = [player.take(100.0).name for _ in range(10)]
    assert taken == ["silent"] * 2 + ["accept_close"] + ["accept_reset"] * 3 + ["working"] * 4


def test_until_counts_from_the_script():
    """IO-3: `until` ends a step so many seconds after the script began, however late the step began."""
    player = playing("silent x1; accept_close until 5; working")
    assert math.isinf(player.ends)
    assert player.take(103.0).name == "silent"
    assert player.ends == 105.0
    assert player.take(104.9).name == "accept_close"
    assert player.take(105.0).name == "working"
    assert math.isinf(player.ends)


def test_for_counts_from_the_step():
    """IO-3: `for` ends a step so many seconds after it began, which is when the one before it was due to end."""
    player = playing("silent x1; accept_close for 2; accept_reset for 2; working")
    player.take(103.0)
    assert player.ends == 105.0
    assert player.step(106.0).behaviour.name == "accept_reset"
    assert player.ends == 107.0
    assert player.step(107.0).behaviour.name == "working"


def test_the_first_bound_ends_a_step():
    """IO-3: of several bounds the first to be reached counts."""
    assert playing("silent until 5 for 2; working").ends == 102.0
    assert playing("silent until 2 for 5; working").ends == 102.0
    player = playing("silent x1 for 2; working")
    player.take(100.5)
    assert player.step(100.5).behaviour.name == "working"
    assert playing("silent x9 for 2; working").step(102.0).behaviour.name == "working"


def test_a_step_whose_time_has_passed_is_left_out():
    """IO-3: a step that would end before it begins sees no connection."""
    player = playing("silent x1; accept_close until 1; refuse until 2; working")
    player.take(103.0)
    assert player.take(103.0).name == "working"
    player = playing("silent x1; accept_close until 1; accept_reset for 2; working")
    player.take(103.0)
    assert player.step(103.0).behaviour.name == "accept_reset"
    assert player.ends == 105.0, "and the one behind it begins when it would have begun"


def test_a_late_look_ends_many_steps():
    """IO-3: one look after a long time is where the script should be then."""
    player = playing("silent for 1; refuse for 1; silent for 1; accept_close for 1; working")
    assert player.step(103.5).behaviour.name == "accept_close"
    assert (player.place, player.ends) == (3, 104.0)


@pytest.mark.parametrize("now", [100.0, 105.0])
def test_a_step_of_no_time(now):
    """IO-3: `for 0` is over as it begins."""
    assert playing("silent for 0; working").step(now).behaviour.name == "working"
