"""What a channel shows of its connections, as pure functions, for both APIs.

These are its state and its status if it shares its pool with others (SH-7), and the error message for a
call that got no connection (CH-4).
"""

from __future__ import annotations

from dataclasses import replace

from grpc_backoff.base.status import ConnectionStatus, State


def state_shown(state: State, *, asked: bool, closed: bool) -> State:
    """Return a channel's state.

    Args:
        state: the pool's state.
        asked: whether the channel has asked for a connection; until then the channel is IDLE, even if the pool is
            not.
        closed: whether the channel itself is closed.
    """
    if closed:
        return State.SHUTDOWN
    return state if asked else State.IDLE


def status_shown(status: ConnectionStatus, *, asked: bool, closed: bool) -> ConnectionStatus:
    """Return a channel's status, given the pool's; see `state_shown`. A closed channel keeps its last error."""
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


def explain(
    target: str,
    status: ConnectionStatus,
    *,
    waited: bool = False,
    proxied: bool = False,
    asked: bool = False,
    full: bool = False,
) -> str:
    """Return why there is no connection. The text changes only with the cause; figures are in the status.

    Args:
        target: the channel's target.
        status: the channel's status.
        waited: whether the call's deadline expired while it waited for a connection.
        proxied: whether the core connects through an HTTP proxy, whose address the last error then has.
        asked: whether there were connections, but their peers had not answered whether they are alive (LV-1).
        full: whether there were connections, which had no room for the call (PO-14).
    """
    opening = "Deadline Exceeded while waiting: " if waited else ""
    if asked:
        return f"{opening}{target} was asked whether it is alive and has not answered yet"
    if full:
        return f"{opening}every connection to {target} had as many calls as it may have"
    through = " through the HTTP proxy" if proxied else ""
    return f"{opening}no connection to {target}{through}; {_cause(status, waited=waited)}"


def _cause(status: ConnectionStatus, *, waited: bool) -> str:
    if status.last_error is not None:
        return f"last error: {status.last_error}"
    if waited and status.state is State.READY:  # it came just now, or its loss is not known yet
        return "the call could not use the connection in time"
    # Until a loss is reported, there is no error, and the state is IDLE, or READY if the loss is not known yet.
    if status.state is State.READY or (status.state is State.IDLE and status.attempt):
        return "the connection ended before the call could use it"
    if status.in_flight:
        return "the first attempt has not ended"
    if status.next_attempt_in is not None:
        return "no attempt has begun, because the target's schedule does not allow one yet"
    return "no attempt has begun"
