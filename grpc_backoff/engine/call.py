"""The base class of asyncio and threaded calls, which makes the machine's inputs and the outcomes of calls.

Each API defines how to read the status of one of grpc's attempts, and which error its calls end with.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextvars import copy_context
from functools import lru_cache
from sys import modules
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import grpc

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.base.status import CANCELLED_BY_SERVER, Link
from grpc_backoff.base.stepping import Stepper
from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.decide.calls.call_texts import (
    EXPIRED,
    Report,
    has_expired,
    is_oversized,
    never_left,
    never_ran,
    says_refused,
    turned_away,
    was_cut,
    was_refused,
)
from grpc_backoff.engine.environment import CallEnvironment
from grpc_backoff.grpcio.private import Status
from grpc_backoff.telemetry.trace import OPENTELEMETRY, CallId, CallSpans, current_trace_id, spans_of

if TYPE_CHECKING:
    from grpc_backoff.config.hooks import FailedCall
    from grpc_backoff.decide.calls import hedging_machine as h  # noqa: F401 - the inputs of `CallShell`
    from grpc_backoff.decide.calls.decision import GiveUp
    from grpc_backoff.decide.calls.events import CallEvent
    from grpc_backoff.engine.gate import GatedConnection
    from grpc_backoff.engine.method import Arguments
    from grpc_backoff.grpcio.call_errors import RetriesExhaustedError

_RUNNING, _WAITING = m.CallPhase.RUNNING, m.CallPhase.WAITING  # up to Python 3.11, access to a member is slow
BETWEEN = frozenset({m.CallPhase.SLEEPING, m.CallPhase.DECIDING})
"""The phases of a call between two attempts."""
_FEW = range(11)
"""The values of `max_attempts` that never cause a warning, so policies with them need no closer check."""
_SHORT = 256
"""How many characters of a text are worth keeping."""

AttemptsT_co = TypeVar("AttemptsT_co", covariant=True)


class CallSetup(NamedTuple, Generic[AttemptsT_co]):
    """The arguments that start a call.

    Attributes:
        calls: the environment that the channel's calls share.
        machine: the rules for this call.
        attempts: makes its attempts.
        timeout: the caller's timeout for the whole call, in seconds (RT-7), or the time remaining on the inbound call
            that is being served (deadline propagation).
        limit: the service config's timeout, in seconds. It also bounds the whole call, but `time_remaining` ignores it.
        call_id: identifies the call in events and log lines; generated if None.
        request: the request, if the call has exactly one; it is passed to hooks. On asyncio, it may also be the
            iterator over the requests; it is None if the caller writes them.
        arguments: the call's other arguments, on asyncio, where `attempts` are those of all calls of a method.
    """

    calls: CallEnvironment
    machine: m.CallMachine
    attempts: AttemptsT_co
    timeout: float | None
    limit: float | None
    call_id: str | None = None
    request: Any = None
    arguments: Arguments | None = None


class CallShell(Stepper["h.Input"]):
    """The base class for calls: it holds the machine and makes the machine's inputs."""

    exhausted_error: ClassVar[type[RetriesExhaustedError]]
    """The `RetriesExhaustedError` of this API."""
    _connection: GatedConnection | None = None
    _error: BaseException | None = None
    _failed: FailedCall | None = None
    _spans: CallSpans | None = None
    _state: Any  # of the kind that its machine has
    _recorded = _RUNNING
    """The phase in which the channel's records have the call."""

    def __init__(self, setup: CallSetup[object]) -> None:
        """Begin the call in the machine; no effects are executed yet."""
        super().__init__()
        machine, timeout, call_id = setup.machine, setup.timeout, setup.call_id
        policy, trace_id = machine.policy, None
        self._calls = calls = setup.calls
        self._machine = machine
        self._timeout = timeout
        self._request = setup.request
        self._context = copy_context()  # later attempts belong to the caller's trace too
        if policy is not None and OPENTELEMETRY in modules:
            self._spans, trace_id = spans_of(machine.method), current_trace_id()
        own_id = call_id or CallId() if machine.reports else ""
        self._state, self._first = machine.begin(calls.now(), timeout, setup.limit, call_id=own_id, trace_id=trace_id)
        if policy is not None and policy.max_attempts not in _FEW:
            calls.warn_of(machine.method, policy, bounded=self._state.end is not None)

    def _shown_end(self) -> float | None:
        """Return the deadline that `time_remaining` uses; None if there is none."""
        return self._machine.shown_end(self._state.began, self._timeout)

    @property
    def _avoided(self) -> tuple[object, ...] | None:
        """The connections that the next attempt avoids if another one serves: the last attempt's.

        None if the call has just been made, and so lets those go first that wait for room (PO-14).
        """
        if self._connection is None:
            return () if self._state.waited else None
        return (self._connection,)

    def _hook_done(self, metadata: m.Metadata | None) -> None:
        self.feed(m.HookDone(metadata))

    @abstractmethod
    def _has_outcome(self) -> bool:
        """Return whether it is already known how the call ends."""

    @abstractmethod
    def _break_off(self, error: Exception) -> None:
        """End the call with an error that is not an attempt's and cancel the attempt in flight."""

    def _interrupted(self, error: Exception) -> None:
        """End the call with the error of a step that was interrupted; otherwise, the call would never end."""
        if self._has_outcome():
            raise error
        self._state = self._machine.ended(self._state)
        self._record()
        self._break_off(error)

    @abstractmethod
    def _status(self, error: object) -> Status:
        """Return the status of an attempt that failed with this error."""

    def _record(self) -> None:
        """Update the channel's records of pending calls, and of calls between two attempts."""
        before, now = self._recorded, self._state.phase
        if before is now:
            return
        self._recorded = now
        if before is _WAITING:
            self._calls.pending.discard(self)
        if now in BETWEEN:
            self._calls.rests(self)
        elif before in BETWEEN:
            self._calls.goes_on(self)

    # Reporting.

    def _emit(self, event: CallEvent) -> None:
        if self._spans is not None:
            self._spans.hear(event)
        self._calls.emit(event)

    def _begin_span(self) -> None:
        if self._spans is not None:
            self._spans.begin(self._state.progress.attempt - 1)

    def _end_span(self, code: str) -> None:
        if self._spans is not None:
            self._spans.end(code)

    # The error of an attempt.

    def _failure(self, error: object) -> m.FailedAttempt:
        """Return the machine's input for a failed attempt."""
        calls, status = self._calls, self._status(error)
        # Keep pairs: converting grpc's Metadata to a dictionary gives different results in different versions.
        initial, trailing = tuple(status.initial_metadata or ()), tuple(status.trailing_metadata or ())
        code, details, metadata = status.code.name, status.details, (*initial, *trailing)
        link = Link.NONE if self._connection is None else self._connection.link()
        if self._machine.policy is None and not self._machine.reports:
            return m.FailedAttempt(code, unsent=never_left(Report(code, details, link, metadata=bool(metadata))))
        read = _read if metadata or len(details) > _SHORT else _read_again
        signs = read(code, details, link, metadata)
        refused, can_refresh = calls.stands_in and signs.refused, calls.can_refresh(self._context)
        if not metadata and refused is signs.refused and not can_refresh:
            return signs
        hint = None
        if metadata:
            from grpc_backoff.decide.calls.server_hint import read_hint  # noqa: PLC0415 - it is loaded: there is a policy

            hint = read_hint(trailing, initial, calls.wall_clock)
        return signs._replace(hint=hint, refused=refused, can_refresh=can_refresh)

    def _timed_out(self) -> Status:
        """Return the status of an attempt that ran out of time, in whatever way that was reported (RT-7)."""
        return self._status(self._error)._replace(code=grpc.StatusCode.DEADLINE_EXCEEDED, details=EXPIRED)

    def _last_status(self) -> Status:
        """Return the status of the last attempt as the machine reads it."""
        status = self._status(self._error)
        expired = has_expired(Report(status.code.name, status.details, Link.NONE, metadata=False))
        return self._timed_out() if expired or status.code.name != self._state.failed else status

    def _failed_call(self, effect: m.CallHook) -> FailedCall:
        """Return the hook's argument for the failed attempt."""
        from grpc_backoff.config.hooks import FailedCall  # noqa: PLC0415 - few calls have a policy

        status, state, request = self._last_status(), self._state, self._request
        failed = self._failed = FailedCall(
            target=self._machine.target,
            method=self._machine.method,
            attempt=state.progress.attempt,
            code=status.code,
            details=status.details,
            trailing_metadata=tuple((key, value) for key, value in status.trailing_metadata or ()),
            took=effect.took,
            reason=effect.reason,
            call_id=str(state.call_id),
            request=request if isinstance(request, bytes) else None,
        )
        return failed

    def _exhausted(self, effect: m.Finish) -> RetriesExhaustedError:
        """Return the error of a call that gives up: the last attempt's, with an account of all attempts (RT-6)."""
        status, failed = self._last_status(), self._failed
        assert failed is not None, "the hook must run before the call ends"
        by_server = CANCELLED_BY_SERVER if failed.code is grpc.StatusCode.CANCELLED else ""
        error = exhausted(self.exhausted_error, status, failed, effect.gave_up, by_server)
        error.__cause__ = self._error
        return error


def _read(code: str, details: str, link: Link, metadata: tuple[tuple[str, str | bytes], ...]) -> m.FailedAttempt:
    """Return what the text of a failed attempt says."""
    report = Report(code, details, link, metadata=bool(metadata))
    return m.FailedAttempt(
        report.code,
        unsent=never_left(report),
        refused=was_refused(report),
        says_refused=says_refused(report),
        oversized=is_oversized(report),
        cut=was_cut(report) or has_expired(report),
        never_ran=never_ran(report, metadata),
        turned_away=turned_away(report),
    )


_read_again: Callable[..., m.FailedAttempt] = lru_cache(maxsize=32)(_read)
"""`_read` for texts that are likely to come again. Calls that fail together fail alike, and reading costs more than all
else that follows a failure."""


def exhausted(
    kind: type[RetriesExhaustedError], status: Status, failed: FailedCall, gave_up: GiveUp | None, by_server: str = ""
) -> RetriesExhaustedError:
    """Return the error of a call that ends with this status, with an account of all attempts (RT-6)."""
    assert gave_up is not None, "a call that gives up must have an account"
    assert gave_up.reason is not None, "the hook must have been given the reason"
    from grpc_backoff.decide.calls.server_hint import STATUS_DETAILS  # noqa: PLC0415 - it is loaded: there was a policy

    account = gave_up.account(failed.attempt, failed.took)
    details, debug = status.details, status.debug_error_string
    # `grpc_status.rpc_status.from_call`, and so google-api-core, refuse a rich status that differs from the details.
    if any(key == STATUS_DETAILS for key, _ in status.trailing_metadata or ()):
        debug = "; ".join(filter(None, (debug, by_server, account)))
    else:
        details = "; ".join(filter(None, (details, by_server, account)))
    metadata = status.initial_metadata, status.trailing_metadata
    return kind(
        status.code, *metadata, details, debug, failed.attempt, failed.took, gave_up.reason, gave_up.wait, gave_up.left
    )
