"""Finds the trace that a call belongs to, if the program traces with OpenTelemetry.

This library does not import OpenTelemetry for this, because a program that has not imported it has no traces.
"""

from __future__ import annotations

import contextlib
import sys

OPENTELEMETRY = "opentelemetry.trace"
"""The module that provides spans. Only programs that trace have imported it."""


def current_trace_id() -> str | None:
    """Return the trace id of OpenTelemetry's current span as 32 hexadecimal digits; None if there is none."""
    trace = sys.modules.get(OPENTELEMETRY)
    if trace is None:
        return None
    found: str | None = None
    # The span may come from any library, and OpenTelemetry may not be fully imported yet. An exception here must not
    # fail the call.
    with contextlib.suppress(Exception):
        context = trace.get_current_span().get_span_context()
        found = f"{context.trace_id:032x}" if context.is_valid else None
    return found
