"""The error message for a call that got no connection (CH-4), for both APIs."""

from __future__ import annotations

from grpc_backoff.connection.events import ConnectionStatus


def explain(target: str, status: ConnectionStatus, *, waited: bool = False) -> str:
    """Return why there is no connection. The text changes only with the cause; figures are in the status.

    `waited` means that the call's deadline expired while it waited for a connection.
    """
    cause = "the first attempt has not ended" if status.last_error is None else f"last error: {status.last_error}"
    opening = "Deadline Exceeded while waiting: " if waited else ""
    return f"{opening}no connection to {target}; {cause}"
