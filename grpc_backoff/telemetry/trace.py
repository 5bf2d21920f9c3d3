"""The id of the trace that a call belongs to, for the logs (RT-11)."""

from __future__ import annotations

__all__ = ["current_trace_id"]


def current_trace_id() -> str | None:
    """Return the id."""
    return None
