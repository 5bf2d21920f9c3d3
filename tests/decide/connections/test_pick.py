"""Which connection takes the next call, and the state that several connections have together."""

from __future__ import annotations

from collections import Counter

import pytest

from grpc_backoff import State
from grpc_backoff.decide.connections.pick import aggregate, counts_for, elsewhere, pick

IDLE, CONNECTING, READY, FAILING = State.IDLE, State.CONNECTING, State.READY, State.TRANSIENT_FAILURE


def test_endpoints_take_turns():
    """PO-6: calls go around over the endpoints, however many connections each of them has."""
    groups = (("a",), ("b1", "b2"), ("c",))
    picked = Counter(pick(groups, turn, lambda _: 0) for turn in range(300))
    assert picked == {"a": 100, "b1": 100, "c": 100}


def test_the_least_used():
    """PO-8: of the connections to one endpoint, the one with the fewest calls takes the next call."""
    calls = {"one": 3, "two": 2, "three": 2}
    assert pick((tuple(calls),), 7, calls.__getitem__) == "two"


@pytest.mark.parametrize(
    ("calls", "picked"),
    [
        ({"a": 1, "b1": 2, "b2": 1}, "b2"),
        ({"a": 1, "b1": 2, "b2": 2}, "a"),
        ({"a": 2, "b1": 2, "b2": 2}, None),
    ],
)
def test_full_connections(calls, picked):
    """PO-14: a full connection takes no call; another endpoint's does, if it has room."""
    assert pick((("a",), ("b1", "b2")), 1, calls.__getitem__, 2) == picked


@pytest.mark.parametrize(("took", "counts"), [(0.0, 0.02), (0.08, 0.02), (0.1, 0.025), (9.0, 0.05)])
def test_how_long_an_ended_call_counts(took, counts):
    """PO-14: a quarter of the time that it took, between 20 and 50 ms."""
    assert counts_for(took) == pytest.approx(counts)


@pytest.mark.parametrize(
    ("avoid", "left"),
    [
        ("", [["a1", "a2"], ["b"]]),
        (["a1"], [["a2"], ["b"]]),
        (["b"], [["a1", "a2"]]),
        (["a1", "a2", "b"], [["a1", "a2"], ["b"]]),
    ],
)
def test_elsewhere(avoid, left):
    """RT-13: a connection to avoid takes a call only if no other connection serves."""
    assert elsewhere([["a1", "a2"], ["b"]], avoid.__contains__) == left


@pytest.mark.parametrize(
    ("states", "shown"),
    [
        ((), IDLE),
        ((IDLE,), IDLE),
        ((FAILING, IDLE), FAILING),
        ((FAILING, CONNECTING, IDLE), CONNECTING),
        ((FAILING, CONNECTING, READY), READY),
    ],
)
def test_the_state_of_several(states, shown):
    """PO-4: READY if any is; else CONNECTING if any is; else TRANSIENT_FAILURE if any is; else IDLE."""
    assert aggregate(states) is shown
