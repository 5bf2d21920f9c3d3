"""How a script is played: which behaviour each connection gets, and when a step ends. The tests set the clock."""

from __future__ import annotations

import math

import pytest

from grpc_judge.flaky import AcceptClose, AcceptReset, Refuse, Silent, Step, Working
from grpc_judge.flaky.player import Player
from grpc_judge.flaky.script import steps_of


def playing(script, now=100.0):
    return Player(steps_of(script), now)


def test_one_behaviour_for_each_connection_in_order():
    """IO-3: each step serves as many connections as it says, and the last step serves all the rest."""
    player = playing([Step(Silent(), times=2), Step(AcceptClose(), times=1), Step(AcceptReset(), times=3), Working()])
    taken = [player.take(100.0).name for _ in range(10)]
    assert taken == ["silent"] * 2 + ["accept_close"] + ["accept_reset"] * 3 + ["working"] * 4


def test_until_counts_from_the_script():
    """IO-3: `until` counts seconds from the start of the script, even if the step began late."""
    player = playing([Step(Silent(), times=1), Step(AcceptClose(), until=5), Working()])
    assert math.isinf(player.ends)
    assert player.take(103.0).name == "silent"
    assert player.ends == 105.0
    assert player.take(104.9).name == "accept_close"
    assert player.take(105.0).name == "working"
    assert math.isinf(player.ends)


def test_for_counts_from_the_step():
    """IO-3: `for` counts seconds from the time at which the previous step was due to end."""
    player = playing(
        [Step(Silent(), times=1), Step(AcceptClose(), lasting=2), Step(AcceptReset(), lasting=2), Working()]
    )
    player.take(103.0)
    assert player.ends == 105.0
    assert player.step(106.0).behaviour.name == "accept_reset"
    assert player.ends == 107.0
    assert player.step(107.0).behaviour.name == "working"


def test_the_first_bound_ends_a_step():
    """IO-3: a step with several bounds ends at the first one reached."""
    assert playing([Step(Silent(), until=5, lasting=2), Working()]).ends == 102.0
    assert playing([Step(Silent(), until=2, lasting=5), Working()]).ends == 102.0
    player = playing([Step(Silent(), times=1, lasting=2), Working()])
    player.take(100.5)
    assert player.step(100.5).behaviour.name == "working"
    assert playing([Step(Silent(), times=9, lasting=2), Working()]).step(102.0).behaviour.name == "working"


def test_a_step_whose_time_has_passed_is_left_out():
    """IO-3: a step whose time is over before it begins is skipped."""
    player = playing([Step(Silent(), times=1), Step(AcceptClose(), until=1), Step(Refuse(), until=2), Working()])
    player.take(103.0)
    assert player.take(103.0).name == "working"
    player = playing([Step(Silent(), times=1), Step(AcceptClose(), until=1), Step(AcceptReset(), lasting=2), Working()])
    player.take(103.0)
    assert player.step(103.0).behaviour.name == "accept_reset"
    assert player.ends == 105.0, "and the one behind it begins when it would have begun"


def test_a_late_look_ends_many_steps():
    """IO-3: a player that is asked after a long pause skips the steps that have ended."""
    player = playing(
        [
            Step(Silent(), lasting=1),
            Step(Refuse(), lasting=1),
            Step(Silent(), lasting=1),
            Step(AcceptClose(), lasting=1),
            Working(),
        ]
    )
    assert player.step(103.5).behaviour.name == "accept_close"
    assert (player.place, player.ends) == (3, 104.0)


@pytest.mark.parametrize("now", [100.0, 105.0])
def test_a_step_of_no_time(now):
    """IO-3: a step with `for 0` ends as soon as it begins."""
    assert playing([Step(Silent(), lasting=0), Working()]).step(now).behaviour.name == "working"
