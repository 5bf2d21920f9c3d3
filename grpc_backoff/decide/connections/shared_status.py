"""The state and the status of a channel that shares its connection manager with others (SH-7), as pure functions."""

from __future__ import annotations

from dataclasses import replace

from grpc_backoff.base.status import ConnectionStatus, State


def state_shown(state: State, *, asked: bool, closed: bool) -> State:
    """Return a channel's state.

    Args:
        state: the manager's state.
        asked: whether the channel has asked for a connection; until then the channel is IDLE, even if the manager is
            not.
        closed: whether the channel itself is closed.
    """
    if closed:
        return State.SHUTDOWN
    return state if asked else State.IDLE


def status_shown(status: ConnectionStatus, *, asked: bool, closed: bool) -> ConnectionStatus:
    """Return a channel's status, given the manager's; see `state_shown`. A closed channel keeps its last error."""
    if asked and not closed:
        return status
    shown = replace(
        status,
        state=state_shown(status.state, asked=asked, closed=closed),
        in_flight=False,
        next_attempt_in=None,
        ready_since=None,
    )
    return shown if asked else replace(shown, attempt=0, last_error=None, made=0)
