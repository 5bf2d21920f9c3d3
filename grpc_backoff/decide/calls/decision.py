"""Decides whether a failed attempt is followed by another, and when. Pure functions, used by the machine.

The order of the checks is gRPC's (gRFC A6): whether the code is retryable and the call uncommitted, whether there is
budget, whether attempts are left, and only then the server's hint. The deadline is checked last, because a wait must
leave time for an attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.base.status import Reason, WaitSource
from grpc_backoff.decide.calls.call_machine import TIMED_OUT, FailedAttempt, Progress
from grpc_backoff.decide.calls.server_hint import ServerHint, hint_window
from grpc_backoff.policy.backoff import Random

if TYPE_CHECKING:
    from grpc_backoff.policy.retry import RetryPolicy

_UNAVAILABLE = "UNAVAILABLE"
_UNAUTHENTICATED = "UNAUTHENTICATED"
_CONFLICTS = frozenset({"ABORTED", "ALREADY_EXISTS"})
_LONGEST = 24 * 60 * 60.0
"""The longest wait, in seconds, that a server can ask for if nothing else limits it (RT-3)."""


class Retry(NamedTuple):
    """Make another attempt.

    Attributes:
        delay: the wait before the attempt, in seconds.
        source: what determined the wait.
        progress: the progress at the start of the new attempt.
        asked: how many seconds the server asked for, before jitter and cap; None if it did not ask.
        refresh: whether to renew the credentials before the new attempt (RT-4).
    """

    delay: float
    source: WaitSource
    progress: Progress
    asked: float | None = None
    refresh: bool = False


class GiveUp(NamedTuple):
    """End the call with this failure.

    Attributes:
        reason: why a retryable failure is not retried; None for any other failure.
        wait: the wait, in seconds, that does not fit before the deadline; None if that is not the reason.
        asked_by: how the server asked for that wait; None if it came from the policy's schedule.
        left: the time until the deadline, in seconds, at the moment of this decision; None if `wait` is None.
    """

    reason: Reason | None = None
    wait: float | None = None
    asked_by: WaitSource | None = None
    left: float | None = None

    def account(self, attempts: int, took: float) -> str:
        """Return why a call gave up after these attempts and seconds (RT-6).

        The reason comes in fixed words, so that errors can be grouped by it, with the figures at the end.
        """
        assert self.reason is not None, "a call that gives up must have a reason"
        figures = f"{'1 attempt' if attempts == 1 else f'{attempts} attempts'} in {took:.3g} s"
        if self.wait is not None and self.left is not None:
            who = "the schedule calls for" if self.asked_by is None else f"the server's {self.asked_by.value} asks for"
            figures += f"; {who} a wait of {self.wait:.3g} s, but only {self.left:.3g} s are left"
        return f"gave up: {self.reason.value} ({figures})"


def is_retryable(policy: RetryPolicy, failure: FailedAttempt) -> bool:
    """Return whether the policy retries this failure: for its code, or because the attempt's timeout expired (RT-7)."""
    if failure.oversized or (policy.never_ran_only and not failure.never_ran):
        return False
    own_timeout = failure.own_timeout and failure.code == TIMED_OUT
    return own_timeout or failure.transient or failure.code in policy.codes


def is_conflict(policy: RetryPolicy, failure: FailedAttempt) -> bool:
    """Return whether the failure is a conflict that is not retried, so that `on_conflict` is called (RT-5)."""
    return failure.code in _CONFLICTS and not is_retryable(policy, failure)


def costs_token(policy: RetryPolicy, failure: FailedAttempt) -> bool:
    """Return whether the failure costs a token of the target's budget (RT-9)."""
    if policy.max_attempts == 1:
        return False
    stopped = failure.hint is not None and failure.hint.delay is None
    return stopped or is_retryable(policy, failure)


def decide(
    policy: RetryPolicy,
    progress: Progress,
    failure: FailedAttempt,
    *,
    left: float | None,
    budget_spent: bool,
    rng: Random,
) -> Retry | GiveUp:
    """Decide whether a call is retried after a failure.

    Args:
        policy: the call's retry policy.
        progress: the call's progress.
        failure: how its last attempt failed.
        left: the seconds until the call's deadline; None without one.
        budget_spent: whether the target's budget allows no retries after paying for this failure (RT-9).
        rng: the source of jitter.
    """
    if failure.refused and not (progress.refused or failure.committed):
        # gRFC A6: the server has not processed the call, so no policy applies and the attempt does not count.
        again = Retry(0.0, WaitSource.REFUSED, progress._replace(refused=True))
        return GiveUp(Reason.DEADLINE) if left is not None and left <= 0 else again
    renews = failure.can_refresh and failure.code == _UNAUTHENTICATED
    at_once = renews and not progress.refreshed
    if failure.committed or policy.max_attempts == 1 or not (renews or is_retryable(policy, failure)):
        ended = failure.code == TIMED_OUT and progress.attempt > 1 and left is not None and left <= 0
        return GiveUp(Reason.DEADLINE if ended else None)
    following = progress._replace(attempt=progress.attempt + 1)
    if reason := _obstacle(policy, progress, failure.hint, budget_spent=budget_spent and not at_once):
        return GiveUp(reason)
    if at_once:  # RT-4: the renewal takes the place of the first wait
        renewed = following._replace(refreshed=True, step=following.step + 1)
        retry = Retry(0.0, WaitSource.REFRESH, renewed, refresh=True)
    elif failure.says_refused and failure.code == _UNAVAILABLE and not progress.refused:  # RT-13
        retry = Retry(0.0, WaitSource.REFUSED, following._replace(refused=True))
    else:
        retry = _wait(policy, following, failure.hint, left, rng)
        retry = retry._replace(refresh=True) if renews else retry
    if left is not None and retry.delay >= left:  # RT-3: a wait would only delay the failure
        asked_by = None if retry.asked is None else retry.source
        return GiveUp(Reason.DEADLINE, retry.delay or None, asked_by, left if retry.delay else None)
    return retry


def _obstacle(policy: RetryPolicy, progress: Progress, hint: ServerHint | None, *, budget_spent: bool) -> Reason | None:
    if budget_spent:
        return Reason.BUDGET
    if not policy.should_retry(progress.attempt):
        return Reason.ATTEMPTS
    return Reason.STOPPED if hint is not None and hint.delay is None else None


def _wait(policy: RetryPolicy, following: Progress, hint: ServerHint | None, left: float | None, rng: Random) -> Retry:
    unlimited = left is None and policy.max_server_delay is None
    if hint is None or hint.delay is None or (unlimited and hint.delay > _LONGEST):
        step = following.step + 1
        delay = policy.delay(step, rng, following.previous)
        return Retry(delay, WaitSource.SCHEDULE, following._replace(step=step, previous=delay))
    window = hint_window(policy, hint, left)
    if hint.source is WaitSource.PUSHBACK:  # honoured exactly, and the sequence restarts
        return Retry(window.low, hint.source, following._replace(step=0, previous=None), asked=hint.delay)
    following = following._replace(step=following.step + 1)
    return Retry(window.at(rng.random()), hint.source, following, asked=hint.delay)
