"""The trace and the identifier of a call, and the spans of its attempts, if the program traces with OpenTelemetry.

This module never imports OpenTelemetry, because a program that has not imported it has no traces. An exception from it
never fails a call. The names of spans are those of gRFC A72. Each attempt is a child of the span that is current when
the call is made: the call's own, if an instrumentation creates one, else the caller's. A wait between two attempts is
an event of that span.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from grpc_backoff.decide.calls.events import CallEvent

    class Span(Protocol):
        """What is used of OpenTelemetry's spans."""

        def add_event(self, name: str, attributes: Mapping[str, object] | None = None) -> object:
            """Add an event that happens now."""
            ...

        def set_status(self, status: object) -> object:
            """Set the span's status."""
            ...

        def end(self) -> object:
            """End the span."""
            ...


OPENTELEMETRY = "opentelemetry.trace"
"""The module that provides spans. Only programs that trace have imported it."""
_NAME = "grpc_backoff"
_OK = "OK"


class CallId:
    """The identifier of one call, which `str` returns. It is created on first use, because most calls never need it."""

    _text = ""

    def __str__(self) -> str:
        """Return the identifier: 128 random bits as 32 hexadecimal digits, like a trace id."""
        # Programs cannot seed this source, and forks do not share it, so it is unique across all processes that log it.
        self._text = self._text or os.urandom(16).hex()
        return self._text


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


def spans_of(method: str) -> CallSpans | None:
    """Return the spans of a call that is about to be made; None if the current span is not being recorded."""
    trace = sys.modules.get(OPENTELEMETRY)
    if trace is None:
        return None
    with contextlib.suppress(Exception):
        caller = trace.get_current_span()
        if caller.is_recording():
            return CallSpans(trace, caller, method)
    return None


class CallSpans:
    """The spans of one call's attempts, one at a time."""

    def __init__(self, trace: ModuleType, caller: Span, method: str) -> None:
        """Start without spans; `caller` is the parent of the spans to be created."""
        self._trace = trace
        self._caller = caller
        self._method = method.removeprefix("/")
        self._attempt: Span | None = None

    def begin(self, previous: int) -> None:
        """Start an attempt's span, or note that its wait for a connection is over; `previous` attempts came before."""
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
        """End the attempt's span, if there is one, with the name of a status code."""
        attempt, self._attempt = self._attempt, None
        if attempt is None:
            return
        with contextlib.suppress(Exception):
            if code != _OK:
                attempt.set_status(self._trace.Status(self._trace.StatusCode.ERROR, code))
            attempt.end()

    def hear(self, event: CallEvent) -> None:
        """Record the wait between two attempts, if the event is about one, as an event of the parent span."""
        from grpc_backoff.decide.calls.events import CallRetried  # noqa: PLC0415 - only calls with a policy have events

        if isinstance(event, CallRetried):
            with contextlib.suppress(Exception):
                wait = {"delay": event.delay, "source": event.source.value, "code": event.code}
                self._caller.add_event("Retry backoff", wait)
