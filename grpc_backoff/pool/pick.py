"""Which connection takes the next call, and which state several connections have together, as pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from grpc_backoff.connection.events import State

T = TypeVar("T")

_ORDER = State.READY, State.CONNECTING, State.TRANSIENT_FAILURE


def pick(groups: Sequence[Sequence[T]], turn: int, load: Callable[[T], int]) -> T:
    """Return the connection for the next call: endpoints take turns (PO-6), and the least used one serves (PO-8).

    Args:
        groups: the serving connections of each endpoint; no group is empty.
        turn: how many calls have been assigned so far.
        load: returns how many calls a connection has.
    """
    group = groups[turn % len(groups)]
    return group[0] if len(group) == 1 else min(group, key=load)


def elsewhere(groups: Sequence[Sequence[T]], is_avoided: Callable[[T], bool]) -> Sequence[Sequence[T]]:
    """Return the groups without the connections to avoid (RT-13); unchanged if no other connection serves."""
    kept = [[each for each in group if not is_avoided(each)] for group in groups]
    return [group for group in kept if group] or groups


def aggregate(states: Sequence[State]) -> State:
    """Return the state of a channel whose connections have these states, as gRPC's policies do (PO-4)."""
    for state in _ORDER:
        if state in states:
            return state
    return State.IDLE
