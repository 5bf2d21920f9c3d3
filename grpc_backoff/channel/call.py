"""What asyncio and threaded calls have in common besides their machine: its inputs, and the outcomes of calls.

Each API defines how it reads the status of one of grpc's attempts, and which error its calls end with.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from contextvars import copy_context
from sys import modules
from typing import Any, ClassVar

import grpc

from grpc_backoff.calls import machine as m
from grpc_backoff.calls.account import Account
from grpc_backoff.calls.core_words import Link, Report, is_oversized, never_left, was_refused
from grpc_backoff.calls.events import CallEvent, CallRetried
from grpc_backoff.calls.hooks import FailedCall
from grpc_backoff.calls.server_hint import read_hint
from grpc_backoff.channel.calls import ChannelCalls
from grpc_backoff.record import NamedTuple, record
from grpc_backoff.telemetry.identity import CallId
from grpc_backoff.telemetry.spans import CallSpans, spans_of
from grpc_backoff.telemetry.trace import OPENTELEMETRY, current_trace_id

__all__ = ["BETWEEN", "CallShell", "Status"]

BETWEEN = frozenset({m.CallPhase.SLEEPING, m.CallPhase.DECIDING})
"""The phases of a call between two attempts."""
_FEW = range(11)
"""Attempts that need no warning, whatever their policy: a closer check takes time."""


@record
class Status(NamedTuple):
    """The end of a call, as far as it is known at that time: initial metadata may arrive after the status."""

    code: grpc.StatusCode
    details: str
    initial_metadata: Any
    trailing_metadata: Any
    debug_error_string: str | None
    cancelled: bool = False
    response: Any = None


class CallShell:
    """The common base of the calls: the machine, and its inputs."""

    exhausted_error: ClassVar[Any]
    """The `RetriesExhaustedError` of this API."""
    _connection: Any = None
    _error: BaseException | None = None
    _failed: FailedCall | None = None

    def __init__(
        self,
        calls: Any,
        machine: m.CallMachine,
        timeout: float | None,
        limit: float | None,
        call_id: str | None,
        request: Any,
    ) -> None:
        """Get the first effect from the machine, without executing anything yet.

        Args:
            calls: what the channel's calls share.
            machine: the rules for this call.
            timeout: the caller's timeout for the whole call, in seconds (RT-7), or the time left of the call being
                served here.
            limit: the service config's timeout, which bounds the whole call too, but is not part of `time_remaining`.
            call_id: identifies the call in events and log lines; generated if None.
            request: the single request that the attempts send, if there is one: for hooks.
        """
        policy = machine.policy
        self._calls: ChannelCalls = calls
        self._machine = machine
        self._request = request
        self._inputs: deque[m.Input] = deque()
        self._context = copy_context()  # later attempts belong to the caller's trace too
        traced = policy is not None and OPENTELEMETRY in modules
        self._spans: CallSpans | None = spans_of(machine.method) if traced else None
        now = calls.now()
        self._shown_end = machine.shown_end(now, timeout)
        self._state, self._first = machine.begin(
            now,
            timeout,
            limit,
            call_id="" if policy is None else call_id or CallId(),
            trace_id=current_trace_id() if traced else None,
        )
        if policy is not None and policy.max_attempts not in _FEW:
            calls.warn_of(machine.method, policy, bounded=self._state.end is not None)

    @abstractmethod
    def feed(self, given: m.Input) -> None:
        """Step the machine."""

    @abstractmethod
    def _status(self, error: Any) -> Status:
        """Return the status of an attempt that failed with this error."""

    def _moved(self, before: m.CallPhase, now: m.CallPhase) -> None:
        """Notify the channel whether the call is between two attempts, or no longer pending."""
        if before is now:
            return
        if before is m.CallPhase.WAITING:
            self._calls.pending.discard(self)
        if now in BETWEEN:
            self._calls.rests(self)
        elif before in BETWEEN:
            self._calls.goes_on(self)

    # Reporting.

    def _emit(self, event: CallEvent) -> None:
        if self._spans is not None and isinstance(event, CallRetried):
            self._spans.waits(event)
        self._calls.emit(event)

    def _begin_span(self) -> None:
        if self._spans is not None:
            self._spans.begin(self._state.progress.attempt - 1)

    def _end_span(self, code: str) -> None:
        if self._spans is not None:
            self._spans.end(code)

    # The error of an attempt.

    def _failure(self, error: Any) -> m.NonOkStatus:
        """Return the machine's input for a failed attempt."""
        calls, status = self._calls, self._status(error)
        # As pairs: what a dictionary makes of grpc's Metadata differs between versions.
        initial, trailing = tuple(status.initial_metadata or ()), tuple(status.trailing_metadata or ())
        report = Report(
            code=status.code.name,
            details=status.details,
            link=Link.NONE if self._connection is None else self._connection.link(),
            metadata=bool(initial or trailing),
        )
        if self._machine.policy is None:
            return m.NonOkStatus(report.code, unsent=never_left(report))
        return m.NonOkStatus(
            report.code,
            hint=read_hint(trailing, initial, calls.wall_clock),
            unsent=never_left(report),
            refused=calls.stands_in and was_refused(report),
            oversized=is_oversized(report),
            can_refresh=calls.hooks.can_refresh(),
        )

    def _failed_call(self, effect: m.CallHook) -> FailedCall:
        """Return the hook's argument for the failed attempt."""
        status, state, request = self._status(self._error), self._state, self._request
        failed = self._failed = FailedCall(
            target=self._machine.target,
            method=self._machine.method,
            attempt=state.progress.attempt,
            code=grpc.StatusCode[state.failed],
            details=status.details,
            trailing_metadata=tuple((key, value) for key, value in status.trailing_metadata or ()),
            took=effect.took,
            reason=effect.reason,
            call_id=str(state.call_id),
            request=request if isinstance(request, bytes) else None,
        )
        return failed

    def _exhausted(self, effect: m.Finish) -> Any:
        """Return the error of a call that gives up: the last attempt's, with the account of all attempts (RT-6)."""
        status, failed, gave_up = self._status(self._error), self._failed, effect.gave_up
        assert failed is not None, "the hook runs first"
        assert failed.reason is not None, "the hook is given the reason"
        assert gave_up is not None, "and so is the account"
        said = Account(
            attempts=failed.attempt,
            took=failed.took,
            reason=failed.reason,
            wait=gave_up.wait,
            asked_by=gave_up.asked_by,
            left=None if gave_up.wait is None else effect.left,
        )
        exhausted = self.exhausted_error(
            failed.code,
            status.initial_metadata,
            status.trailing_metadata,
            "; ".join(filter(None, (failed.details, str(said)))),
            status.debug_error_string,
            attempts=said.attempts,
            took=said.took,
            reason=said.reason,
            wait=said.wait,
            left=said.left,
        )
        exhausted.__cause__ = self._error
        return exhausted
