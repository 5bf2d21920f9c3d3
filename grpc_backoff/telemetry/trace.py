"""Which trace a call belongs to, where the program traces with OpenTelemetry.

This library does not need OpenTelemetry for that and never imports it: a program that nobody has imported it into has
no traces.
"""

from __future__ import annotations

import contextlib
import sys

__all__ = ["OPENTELEMETRY", "current_trace_id"]

OPENTELEMETRY = "opentelemetry.trace"
"""The module without which there are no spans; only programs that trace have imported it."""


def current_trace_id() -> str | None:
    """Return the trace id of OpenTelemetry's current span as 32 hexadecimal digits; None if there is none."""
    trace = sys.modules.get(OPENTELEMETRY)
    if trace is None:
        return None
    found: str | None = None
    # A span may be anybody's, and the import half done: whatever that raises, no call fails for want of a trace id.
    with contextlib.suppress(Exception):
        context = trace.get_current_span().get_span_context()
        found = f"{context.trace_id:032x}" if context.is_valid else None
    return found
