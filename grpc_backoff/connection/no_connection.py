"""What a call that got no connection says (CH-4): the same text on both faces."""

from __future__ import annotations

from grpc_backoff.connection.events import ConnectionStatus

__all__ = ["explain"]


def explain(target: str, status: ConnectionStatus, *, waited: bool = False) -> str:
    """Say why there is no connection; the text stays the same while the cause does, and figures are in the status.

    `waited` says that the call met its deadline while it waited for one.
    """
    cause = "the first attempt has not ended" if status.last_error is None else f"last error: {status.last_error}"
    opening = "Deadline Exceeded while waiting: " if waited else ""
    return f"{opening}no connection to {target}; {cause}"
