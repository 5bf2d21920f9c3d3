"""Which connection takes the next call, and which state several connections have together, as pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from grpc_backoff.base.status import State

T = TypeVar("T")

FULL = 2**62
"""The load of a connection that has just ended, or that no call may use now."""
_ORDER = State.READY, State.CONNECTING, State.TRANSIENT_FAILURE
_SHARE, _SHORTEST, _LONGEST = 0.25, 0.02, 0.05
"""How long an ended call is counted: as a part of how long it took, and within these limits, in seconds."""


def pick(groups: Sequence[Sequence[T]], turn: int, load: Callable[[T], int], most: int | None = None) -> T | None:
    """Return the connection for the next call: endpoints take turns (PO-6), and the least used one serves (PO-8).

    None if every connection is full (PO-14).

    Args:
        groups: the serving connections of each endpoint; no group is empty.
        turn: how many calls have been assigned so far.
        load: returns how many calls a connection has.
        most: how many calls a connection may have; None if any number.
    """
    for later in range(len(groups)):
        group = groups[(turn + later) % len(groups)]
        found = group[0] if len(group) == 1 else min(group, key=load)
        if most is None or load(found) < most:
            return found
    return None


def counts_for(took: float) -> float:
    """Return for how long a call that took this long is counted after its end, in seconds (PO-14).

    grpcio's server counts a call until its Python threads have dropped it, and refuses streams beyond its limit. The
    busier these threads are, the longer that takes, and so do the calls.
    """
    return min(max(_SHARE * took, _SHORTEST), _LONGEST)


def elsewhere(groups: Sequence[Sequence[T]], is_avoided: Callable[[T], bool]) -> Sequence[Sequence[T]]:
    """Return the groups without the connections to avoid (RT-13); unchanged if no other connection serves."""
    kept = [[member for member in group if not is_avoided(member)] for group in groups]
    return [group for group in kept if group] or groups


def aggregate(states: Sequence[State]) -> State:
    """Return the state of a channel whose connections have these states, as gRPC's policies do (PO-4)."""
    for state in _ORDER:
        if state in states:
            return state
    return State.IDLE
