"""Spans for the attempts of a call, where the program traces with OpenTelemetry; the names are gRFC A72's.

Each attempt is a span below the one that is current where the call is made: the call's own, if an instrumentation makes
one, else the caller's. A wait between two attempts is an event of that span. As with trace ids, OpenTelemetry is never
imported from here, and whatever it raises, no call fails for want of a span.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from grpc_backoff.calls.events import CallRetried

__all__ = ["CallSpans", "spans_of"]

_NAME = "grpc_backoff"
_OK = "OK"


def spans_of(method: str) -> CallSpans | None:
    """Return the spans of a call that is about to be made; None where nothing records the caller's."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    with contextlib.suppress(Exception):
        caller = trace.get_current_span()
        if caller.is_recording():
            return CallSpans(trace, caller, method)
    return None


class CallSpans:
    """The spans of one call's attempts, one at a time."""

    def __init__(self, trace: Any, caller: Any, method: str) -> None:
        """Nothing has begun; `caller` is the span that they are children of."""
        self._trace = trace
        self._caller = caller
        self._method = method.removeprefix("/")
        self._attempt: Any = None

    def begin(self, previous: int) -> None:
        """Begin an attempt, or go on with one that has waited for a connection; `previous` attempts came before."""
        with contextlib.suppress(Exception):
            if self._attempt is not None:
                self._attempt.add_event("Delayed LB pick complete")
                return
            self._attempt = self._trace.get_tracer(_NAME).start_span(
                f"Attempt.{self._method}",
                context=self._trace.set_span_in_context(self._caller),
                kind=self._trace.SpanKind.CLIENT,
                attributes={"previous-rpc-attempts": previous, "transparent-retry": False},
            )

    def end(self, code: str) -> None:
        """End the attempt, if one has begun, with the name of a status code."""
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return
        with contextlib.suppress(Exception):
            if code != _OK:
                attempt.set_status(self._trace.Status(self._trace.StatusCode.ERROR, code))
            attempt.end()

    def waits(self, retried: CallRetried) -> None:
        """Note a wait between two attempts."""
        with contextlib.suppress(Exception):
            wait = {"delay": retried.delay, "source": retried.source.value, "code": retried.code}
            self._caller.add_event("Retry backoff", wait)
