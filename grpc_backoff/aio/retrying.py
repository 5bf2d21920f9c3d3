"""Retried calls: one call object for the caller, over as many tries as the policy allows (RT-1 to RT-10).

The first try is made as any call is, and where it succeeds nothing else happens: no task, no timer. Only a failure
starts a task, which asks `retry.decision` what follows, waits, and makes the next try. The call is an object of its own
and no interceptor of grpc's, for the reasons that waiting calls are (`gate.py`); so a user's interceptors stand in
front of it and see a call once and whole.

What the caller has seen of a try binds the call to it: the initial metadata, or a response. From then on the call is
committed, and ends as that try ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from contextvars import copy_context
from typing import Any, TypeVar

import grpc
import grpc.aio

from grpc_backoff.aio.outcome import CANCELLED, Cancelled, Ending, Outcome, notify
from grpc_backoff.aio.retries import Pairs, Retries
from grpc_backoff.errors import GrpcBackoffError
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.retry.account import Account
from grpc_backoff.retry.core_words import Link, Report, is_oversized, never_left, was_refused
from grpc_backoff.retry.decision import Failure, GiveUp, Progress, Retry, costs_token, decide, is_conflict
from grpc_backoff.retry.events import CallExhausted, CallRetried, CallSucceeded, Reason
from grpc_backoff.retry.hooks import FailedCall
from grpc_backoff.retry.server_word import hear
from grpc_backoff.telemetry.trace import current_trace_id

__all__ = ["MakeAttempt", "Pairs", "RetriedCall", "RetriesExhaustedError", "answer_of"]

MakeAttempt = Callable[[float | None, Pairs], grpc.aio.Call]
"""Makes one try, with this many seconds, and with metadata in place of the caller's own under the same keys."""

AnswerT = TypeVar("AnswerT")

_ATTEMPTS_BEFORE = "grpc-previous-rpc-attempts"
_CLOSE_BEHIND = 0.02
"""How long who asks for initial metadata waits where they are empty, as those of a try that has just failed are."""


class RetriesExhaustedError(GrpcBackoffError, grpc.aio.AioRpcError):
    """The outcome of a call that failed in a way that its policy retries, and that got no further try (RT-6).

    Code and metadata are those of the last try; the details say what the last try's do, and why it was the last.

    Attributes:
        attempts: how many tries there were.
        took: how many seconds they and the waits between them took.
        reason: why there was no other.
        wait: the wait, in seconds, for which there was no time; None if that was not the reason.
        left: how many seconds were left then.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        initial_metadata: grpc.aio.Metadata,
        trailing_metadata: grpc.aio.Metadata,
        details: str | None = None,
        debug_error_string: str | None = None,
        attempts: int = 1,
        took: float = 0.0,
        reason: Reason = Reason.ATTEMPTS,
        wait: float | None = None,
        left: float | None = None,
    ) -> None:
        """Take what grpc's own error takes, and the account of the tries."""
        grpc.aio.AioRpcError.__init__(self, code, initial_metadata, trailing_metadata, details, debug_error_string)
        self.attempts = attempts
        self.took = took
        self.reason = reason
        self.wait = wait
        self.left = left

    def __reduce__(self) -> tuple[Any, ...]:
        """Survive pickling, as grpc's own error does."""
        said = self.code(), self.initial_metadata(), self.trailing_metadata(), self.details(), self.debug_error_string()
        return type(self), (*said, self.attempts, self.took, self.reason, self.wait, self.left)


_FIRST = Progress()
_FEW = range(11)
"""Attempts that are no cause for a warning, whatever their policy: to look closer costs time."""


class RetriedCall(Ending):
    """What the four arities share: the tries, the outcome, and everything that is only passed on."""

    # grpcio up to 1.7x, closing any channel, looks at the calls of all tasks and wants to know whose they are.
    _channel = None

    def __init__(
        self,
        retries: Retries,
        policy: RetryPolicy | None,
        method: str,
        make: MakeAttempt,
        timeout: float | None,
        limit: float | None = None,
        *,
        link: Callable[[], Link],
        patient: bool = False,
    ) -> None:
        """Make the first try.

        Args:
            retries: what the channel's calls share.
            policy: how this one is retried; None for not at all, unless it never left the client.
            method: its path.
            make: makes a try.
            timeout: the caller's, for the call as a whole (RT-7).
            limit: the service config's, which bounds the whole as well.
            link: returns how the latest try's connection is, asked at the moment when that try ends.
            patient: whether the call waits for a connection, and so waits on if a try never left this process.
        """
        self._retries = retries
        self._policy = policy
        self._link: Callable[[], Link] | None = link
        self._patient = patient
        self._method = method
        self._make: MakeAttempt | None = make
        self._context = copy_context()  # later tries belong to the caller's trace as well
        self._began = now = retries.clock.now()
        self._shown_end: float | None = None  # as on a plain call, what the service config says is not shown
        self._end: float | None = None
        own = None if policy is None else policy.deadline
        if timeout is not None or limit is not None or own is not None:
            self._shown_end = _earliest(now, timeout, own)
            self._end = _earliest(now, timeout, own, limit)
        if policy is not None and policy.max_attempts not in _FEW:
            retries.warn_of(method, policy, bounded=self._end is not None)
        self._progress = _FIRST
        self._instead: Pairs = ()
        self._committed = False
        self._outcome: Outcome | None = None
        self._changed: asyncio.Future[None] | None = None
        self._callbacks: list[Callable[[Any], None]] = []
        self._work: asyncio.Task[None] | None = None
        self._attempt = self._try(now)

    # The tries. Everything from here to `_settle` happens behind the caller's back.

    def _try(self, now: float) -> grpc.aio.Call:
        """Make a try, and listen for its end."""
        assert self._make is not None, "a call that has ended is not tried again"
        self._tried_at = now
        left = None if self._end is None else self._end - now  # negative or NaN is for grpc to refuse (CH-1)
        own = None if self._policy is None else self._policy.timeout
        self._own_timeout = own is not None and (left is None or own < left)
        self._attempt = attempt = self._make(own if self._own_timeout else left, self._instead)
        attempt.add_done_callback(self._ended)
        return attempt

    def _left(self) -> float | None:
        return self._until(self._end)

    def _until(self, when: float | None) -> float | None:
        return None if when is None else max(0.0, when - self._retries.clock.now())

    def _ended(self, attempt: grpc.aio.Call) -> None:
        """Take note of a try's end, in the moment of it."""
        if self._outcome is not None or attempt is not self._attempt:
            return
        try:
            code = answer_of(attempt.code())
        except Exception as error:  # noqa: BLE001 - a request that cannot be serialized, say: it is the caller's
            self._settle(error)
            return
        retries = self._retries
        if code is grpc.StatusCode.OK:
            self._succeeded(attempt)
        elif retries.closed or _cancelled_here(attempt):
            self._settle(attempt)
        else:
            assert self._link is not None, "kept until the outcome"
            self._work = retries.between_tries(self._after(attempt, code, self._link()), self._context)
            self._work.add_done_callback(self._closed)

    def _succeeded(self, attempt: grpc.aio.Call) -> None:
        retries = self._retries
        if self._policy is None:
            self._settle(attempt)
            return
        if retries.tokens is not None:
            retries.tokens.succeeded()
        self._settle(attempt)
        if self._progress.attempt > 1 or len(retries.listeners) > 1:
            retries.emit(CallSucceeded(**self._at(), took=retries.clock.now() - self._began))

    def _closed(self, work: asyncio.Task[None]) -> None:
        """End the call if the channel was closed between two tries, perhaps before the work took its first step."""
        if work.cancelled():
            self._settle(CANCELLED)

    async def _after(self, attempt: grpc.aio.Call, code: grpc.StatusCode, link: Link) -> None:
        """Do what follows from a failed try."""
        try:
            trailing, initial = _pairs(await attempt.trailing_metadata()), _pairs(await attempt.initial_metadata())
            report = Report(
                code=code.name,
                details=await attempt.details() or "",
                link=link,
                metadata=bool(trailing or initial),
            )
            if self._patient and not self._committed and never_left(report):  # CH-3: it waits on
                self._next()
            elif self._policy is None or not await self._again(self._policy, attempt, code, report):
                self._settle(attempt)
        except Exception as error:  # noqa: BLE001 - whatever it is, the caller must not wait for ever
            self._attempt.cancel()
            self._settle(error)

    def _next(self) -> None:
        self._try(self._retries.clock.now())
        self._wake()

    async def _again(self, policy: RetryPolicy, attempt: grpc.aio.Call, code: grpc.StatusCode, report: Report) -> bool:
        """Make another try; return False if the call ends with the one that failed."""
        retries = self._retries
        if self._timed_out(policy, code):
            code = grpc.StatusCode.DEADLINE_EXCEEDED
        trailing = _pairs(await attempt.trailing_metadata())
        failure = await self._failure(attempt, code, trailing, report)
        decision = self._decide(policy, failure)
        if isinstance(decision, GiveUp):
            await self._give_up(policy, attempt, code, trailing, failure, decision)
            return False
        at_once = decision.refresh and not decision.delay
        if at_once and not await self._refresh(attempt, code, trailing):
            return False
        retries.emit(
            CallRetried(
                **self._at(),
                code=code.name,
                delay=decision.delay,
                source=decision.source,
                server_delay=decision.asked,
                trace_id=current_trace_id(),
            )
        )
        if decision.delay:
            await retries.sleep(decision.delay)
        # RT-4: behind the wait, so that the credentials are as new as the try.
        if decision.refresh and not at_once and not await self._refresh(attempt, code, trailing):
            return False
        if self._committed or self._outcome is not None:  # in the meantime
            return False
        if self._left() == 0.0:  # RT-7: woken too late, or the hook took all the time
            await self._give_up(policy, attempt, code, trailing, failure, GiveUp(Reason.DEADLINE))
            return False
        self._progress = decision.progress
        if self._progress.attempt > 1:
            self._replace(((_ATTEMPTS_BEFORE, str(self._progress.attempt - 1)),))
        self._next()
        return True

    def _timed_out(self, policy: RetryPolicy, code: grpc.StatusCode) -> bool:
        """Return whether a try that was cancelled from outside was so because its time was up (RT-7).

        Servers in Go and Java reset a call then, and the core hears that before its own timer.
        """
        if code is not grpc.StatusCode.CANCELLED:
            return False
        own = policy.timeout if self._own_timeout else None
        return self._left() == 0.0 or (own is not None and self._retries.clock.now() - self._tried_at >= own)

    async def _failure(self, attempt: grpc.aio.Call, code: grpc.StatusCode, trailing: Pairs, report: Report) -> Failure:
        retries = self._retries
        return Failure(
            code=code.name,
            word=hear(trailing, _pairs(await attempt.initial_metadata()), retries.wall_clock),
            own_timeout=self._own_timeout,
            refused=retries.stands_in and not self._progress.refused and was_refused(report),
            committed=self._committed,
            oversized=is_oversized(report),
        )

    def _decide(self, policy: RetryPolicy, failure: Failure) -> Retry | GiveUp:
        retries = self._retries
        tokens = retries.tokens
        if tokens is not None and not failure.refused and costs_token(policy, failure):  # RT-9
            tokens.failed()
        return decide(
            policy,
            self._progress,
            failure,
            left=self._left(),
            budget_spent=tokens is not None and tokens.spent,
            can_refresh=retries.can_refresh(),
            rng=retries.rng,
        )

    async def _refresh(self, attempt: grpc.aio.Call, code: grpc.StatusCode, trailing: Pairs) -> bool:
        failed = await self._failed(attempt, code, trailing)
        metadata = await self._retries.refresh(failed, self._tried_at, self._left())
        if metadata is None:
            return False
        self._replace(metadata)
        return True

    def _replace(self, metadata: Pairs) -> None:
        """Have the next tries made with these pairs, in place of others under the same keys."""
        keys = {key for key, _ in metadata}
        self._instead = (*(pair for pair in self._instead if pair[0] not in keys), *metadata)

    async def _give_up(
        self,
        policy: RetryPolicy,
        attempt: grpc.aio.Call,
        code: grpc.StatusCode,
        trailing: Pairs,
        failure: Failure,
        decision: GiveUp,
    ) -> None:
        retries, reason = self._retries, decision.reason
        if reason is None:
            if is_conflict(policy, failure) and not failure.committed:  # RT-5
                failed = await self._failed(attempt, code, trailing)
                await retries.tell(retries.hooks.on_conflict, failed, self._left())
            return
        failed = await self._failed(attempt, code, trailing, reason)  # RT-6
        retries.emit(
            CallExhausted(**self._at(), code=code.name, reason=reason, took=failed.took, trace_id=current_trace_id())
        )
        account = Account(
            attempts=failed.attempt,
            took=failed.took,
            reason=reason,
            wait=decision.wait,
            asked_by=None if failure.word is None else failure.word.source,
            left=None if decision.wait is None else self._left(),
        )
        error = RetriesExhaustedError(
            code,
            await attempt.initial_metadata(),
            await attempt.trailing_metadata(),
            "; ".join(filter(None, (failed.details, str(account)))),
            await attempt.debug_error_string(),  # type: ignore[attr-defined] # all of grpc's calls have it
            attempts=account.attempts,
            took=account.took,
            reason=reason,
            wait=account.wait,
            left=account.left,
        )
        error.__cause__ = await _error_of(attempt)
        await retries.tell(retries.hooks.on_exhausted, failed, self._left())
        self._settle(error)

    async def _failed(
        self, attempt: grpc.aio.Call, code: grpc.StatusCode, trailing: Pairs, reason: Reason | None = None
    ) -> FailedCall:
        return FailedCall(
            target=self._retries.target,
            method=self._method,
            attempt=self._progress.attempt,
            code=code,
            details=await attempt.details() or "",
            trailing_metadata=trailing,
            took=self._retries.clock.now() - self._began,
            reason=reason,
        )

    def _at(self) -> dict[str, Any]:
        """Return what every event of this call has."""
        retries = self._retries
        return {
            "target": retries.target,
            "method": self._method,
            "at": retries.clock.now(),
            "attempt": self._progress.attempt,
        }

    def _settle(self, outcome: Outcome) -> None:
        if self._outcome is not None:
            return
        self._outcome = outcome
        self._make = self._link = None  # with them go the request, the connection and the channel
        self._wake()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            notify(self, callback, self._retries.loop)

    def _wake(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)

    # The caller's side.

    async def _following(self, attempt: grpc.aio.Call) -> bool:
        """Return whether another try follows on one that failed, once that is known and it has begun.

        Raises what the caller of a failed call gets, unless the outcome is what the failed try itself says.
        """
        await self._known(attempt)
        if self._attempt is not attempt:
            return True
        if isinstance(self._outcome, Cancelled):
            raise asyncio.CancelledError
        if isinstance(self._outcome, BaseException):
            raise self._outcome.with_traceback(None)
        return False

    async def _goes_on(self, attempt: grpc.aio.Call) -> bool:
        """Like `_following`, for methods whose cancellation cancels the RPC."""
        try:
            return await self._following(attempt)
        except asyncio.CancelledError:
            self.cancel()
            raise

    async def _known(self, attempt: grpc.aio.Call) -> None:
        """Return once it is known what follows on a try that has ended."""
        while self._attempt is attempt and self._outcome is None:
            await self._change()

    async def _change(self) -> None:
        """Return with the next try, or with the outcome."""
        if self._changed is None:
            self._changed = self._retries.loop.create_future()
        await asyncio.shield(self._changed)

    def commit(self) -> None:
        """Hold the call to the try that runs."""
        self._committed = True

    # grpc.aio.RpcContext

    def cancelled(self) -> bool:
        """Return whether the call was cancelled."""
        outcome = self._outcome
        return outcome.cancelled() if isinstance(outcome, grpc.aio.Call) else outcome is CANCELLED

    def done(self) -> bool:
        """Return whether the call has ended."""
        outcome = self._outcome
        return outcome.done() if isinstance(outcome, grpc.aio.Call) else outcome is not None

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline of the call as a whole, None without one.

        As on a plain call, what the service config says is not shown.
        """
        return self._until(self._shown_end)

    def cancel(self) -> bool:
        """Cancel the call; return whether it was still running."""
        if self._outcome is not None:
            return False
        running = self._attempt.cancel()
        if self._work is not None:
            self._work.cancel()
        self._settle(self._attempt if running else CANCELLED)
        return True

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Have `callback` called with this call when it ends, at once if it has."""
        if self._outcome is None:
            self._callbacks.append(callback)
        else:
            callback(self)

    # grpc.aio.Call

    async def initial_metadata(self) -> grpc.aio.Metadata:
        """Return the server's initial metadata; who has seen any of a try is bound to it."""
        while True:
            attempt = self._attempt
            metadata: grpc.aio.Metadata = await attempt.initial_metadata()
            if not metadata and not attempt.done() and self._policy is not None:
                await self._end_close_behind(attempt)
            if not attempt.done():
                if metadata:
                    self.commit()
                return metadata
            await self._known(attempt)
            if self._attempt is attempt:
                return metadata

    async def _end_close_behind(self, attempt: grpc.aio.Call) -> None:
        """Give a try a moment to end: a status without headers begins with empty ones, which may be there before it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_BEHIND):
                await self._known(attempt)

    async def _known_outcome(self) -> Outcome:
        while self._outcome is None:
            await self._change()
        return self._outcome

    async def wait_for_connection(self) -> None:
        """Return once the call is on its way; raise its error if it failed before."""
        while True:
            attempt = self._attempt
            try:
                await attempt.wait_for_connection()
            except grpc.aio.AioRpcError:
                if not await self._following(attempt):
                    raise
            else:
                return

    def __repr__(self) -> str:
        """Show the last try."""
        return f"<{type(self).__name__}, attempt {self._progress.attempt}: {self._attempt!r}>"


def _earliest(now: float, *bounds: float | None) -> float | None:
    """Return the first end of some spans that begin now; None if none of them ends."""
    return min((now + bound for bound in bounds if bound is not None), default=None)


def answer_of(question: Coroutine[Any, Any, AnswerT]) -> AnswerT:
    """Return what a call that has ended answers, for which nobody has to wait."""
    try:
        question.send(None)
    except StopIteration as answered:
        answer: AnswerT = answered.value
        return answer
    question.close()
    raise RuntimeError("a call that has ended does not say how")


def _cancelled_here(attempt: grpc.aio.Call) -> bool:
    """Return whether this program has cancelled a try that has ended.

    A server may say CANCELLED too, and use grpc's own words for it; but only what came from the core has a debug text.
    """
    return attempt.cancelled() and not answer_of(attempt.debug_error_string())  # type: ignore[attr-defined] # all have it


async def _error_of(attempt: grpc.aio.Call) -> grpc.aio.AioRpcError | None:
    """Return the error of a try that has failed, which may be a `NoConnectionError` and know more."""
    try:
        await attempt.wait_for_connection()
    except grpc.aio.AioRpcError as error:
        return error
    return None


def _pairs(metadata: Iterable[Any] | None) -> Pairs:
    return tuple((key, value) for key, value in metadata or ())
