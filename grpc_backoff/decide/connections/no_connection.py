"""The error message for a call that got no connection (CH-4), for both APIs."""

from __future__ import annotations

from grpc_backoff.base.status import ConnectionStatus, State


def explain(
    target: str, status: ConnectionStatus, *, waited: bool = False, proxied: bool = False, full: bool = False
) -> str:
    """Return why there is no connection. The text changes only with the cause; figures are in the status.

    Args:
        target: the channel's target.
        status: the channel's status.
        waited: whether the call's deadline expired while it waited for a connection.
        proxied: whether the core connects through an HTTP proxy, whose address the last error then has.
        full: whether there were connections, which had no room for the call (PO-14).
    """
    opening = "Deadline Exceeded while waiting: " if waited else ""
    if full:
        return f"{opening}every connection to {target} had as many calls as it may have"
    through = " through the HTTP proxy" if proxied else ""
    return f"{opening}no connection to {target}{through}; {_cause(status)}"


def _cause(status: ConnectionStatus) -> str:
    if status.last_error is not None:
        return f"last error: {status.last_error}"
    if status.state is State.READY:  # as far as is known yet
        return "the connection ended before the call could use it"
    if status.in_flight:
        return "the first attempt has not ended"
    if status.next_attempt_in is not None:
        return "no attempt has begun, because the target's schedule does not allow one yet"
    return "no attempt has begun"
