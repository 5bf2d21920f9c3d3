"""How reporting the end of an attempt changes an operation's row.

These are pure functions that use no clock, randomness or database.

The retry rules are those of calls (`decide.calls.decision`), with the row in place of the call's state. `recording`
locks the row, calls these functions and has the store write the change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.decide.calls.call_machine import FailedAttempt, Progress
from grpc_backoff.decide.calls.decision import Retry, decide, is_conflict
from grpc_backoff.ledger.operation import CLAIMABLE, Operation, OperationAttempt, OperationState
from grpc_backoff.ledger.records import AttemptReport, Recorded
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.jitter import NoJitter
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import Fixed

PolicyOf = Callable[[str], RetryPolicy]
"""A function that returns the policy described by an operation's text, as a ledger applies it."""
_REPORTED = (OperationState.SUCCEEDED, OperationState.FAILED, OperationState.CONFLICT, OperationState.WAITING)
"""The states that a report can lead to; claims and manual actions lead to the others."""

_LONGEST = 10 * 365 * 86_400.0
"""The longest wait, in seconds, that a ledger stores, because databases have a latest possible date."""

_LOSS = FailedAttempt("DEADLINE_EXCEEDED", own_timeout=True)
"""The failure recorded for a lost attempt. It is retried whichever codes the policy names, like an attempt that
exceeded its own timeout (LG-6)."""


class LockedRow(NamedTuple):
    """The part of an operation's row that is read when the row is locked, and the time after that.

    Attributes:
        attempts: the attempts so far, in this series.
        recorded: those in all series.
        step: how many waits of the policy's sequence have been used.
        previous: the last of these waits, in seconds.
        refreshed: whether credentials have already been renewed (RT-4).
        lease_token: the token of the last claim.
        began: when this series, or the waiting for its first attempt, began.
    """

    id: str
    policy: str
    state: str
    attempts: int
    recorded: int
    step: int
    previous: float | None
    refreshed: int
    lease_token: int
    began: float
    lease_began: float | None
    lease_until: float | None
    order_key: str | None
    now: float

    def is_live(self, token: int | None) -> bool:
        """Return whether a report under this token is about the current attempt.

        Without a token, the report is about an attempt that was made without a claim. Such an attempt counts as the
        current one as long as the operation can be claimed.
        """
        if token is None:
            return self.state in CLAIMABLE
        return self.state == OperationState.IN_PROGRESS and self.lease_token == token


class Change(NamedTuple):
    """The change to an operation's row.

    Attributes:
        step, previous, refreshed: as in `LockedRow`.
        delay: the wait that follows, in seconds; None if there is none.
        source: what determined the wait.
        reason: why the policy gave up; None if it did not.
        live: whether the report was about the current attempt.
    """

    state: OperationState
    step: int = 0
    previous: float | None = None
    refreshed: bool = False
    delay: float | None = None
    source: str | None = None
    reason: str | None = None
    live: bool = True


class _Draw(NamedTuple):
    """A random source that returns one number drawn beforehand (LG-3)."""

    draw: float

    def random(self) -> float:
        return self.draw


def ledger_policy(policy: RetryPolicy) -> RetryPolicy:
    """Return a policy as a ledger applies it.

    Waits that a server asks for are limited, by default by the policy's cap (LG-4). No wait is longer than a database
    can represent.
    """
    backoff = policy.backoff
    if backoff.cap > _LONGEST:
        backoff = dataclasses.replace(backoff, cap=_LONGEST)
    most = backoff.cap if policy.max_server_delay is None else min(policy.max_server_delay, _LONGEST)
    spread = min(policy.server_delay_jitter, _LONGEST)
    if backoff is policy.backoff and (most, spread) == (policy.max_server_delay, policy.server_delay_jitter):
        return policy
    return dataclasses.replace(policy, backoff=backoff, max_server_delay=most, server_delay_jitter=spread)


def after_report(row: LockedRow, report: AttemptReport) -> Change:
    """Return the change that follows the reported end of an attempt (LG-6).

    A late success counts, but a discarded operation stays discarded. A late failure changes nothing.
    """
    live, kept = row.is_live(report.token), _unchanged(row)
    if report.failure is not None:
        return _decided(report.policy, row, report.failure, row.now, report.draw) if live else kept
    state = kept.state if kept.state is OperationState.DISCARDED else OperationState.SUCCEEDED
    return kept._replace(state=state, live=live)


def after_loss(policy: RetryPolicy, row: LockedRow, ended: float) -> Change:
    """Return the change that follows a lost attempt, whose lease ended then and whose owner is gone (LG-3)."""
    wait = fallback(policy, row.step + 1)
    steady = BackoffPolicy(Fixed(wait), max(wait, policy.backoff.cap), NoJitter())
    return _decided(dataclasses.replace(policy, backoff=steady), row, _LOSS, ended, 0.0)


def fallback(policy: RetryPolicy, n: int) -> float:
    """Return the wait, in seconds, after the n-th failure if the owner died before it recorded one (LG-3).

    It is min(growth, cap), and at least the smallest wait that the policy could have drawn.
    """
    return max(policy.nominal(n), policy.bounds(n)[0])


def recalled(operation: Operation, attempts: Sequence[OperationAttempt], report: AttemptReport) -> Recorded | None:
    """Return the result of a report whose first answer was lost; None if another change has happened since.

    The operation and its attempts are those found after the report was recorded a second time.
    """
    code = "OK" if report.failure is None else report.failure.code
    if operation.lease_token != report.token or operation.code != code or operation.state not in _REPORTED:
        return None
    number, delay, source = operation.attempts, operation.backoff_request_seconds, attempts[-1].source
    return Recorded(operation.id, operation.state, number, code, delay, source, operation.reason, live=True)


def _unchanged(row: LockedRow) -> Change:
    return Change(OperationState(row.state), row.step, row.previous, bool(row.refreshed), live=False)


def _decided(policy: RetryPolicy, row: LockedRow, failure: FailedAttempt, ended: float, draw: float) -> Change:
    """Decide what follows a failure at this time.

    The age counts from the first attempt of the series, so that an outage before it costs nothing (LG-7).
    """
    began = row.began if row.attempts else row.lease_began or ended
    kept = _unchanged(row)._replace(live=True)
    following = decide(
        policy,
        Progress(row.attempts + 1, kept.step, kept.previous, kept.refreshed),
        failure,
        left=None if policy.deadline is None else policy.deadline - (ended - began),
        budget_spent=False,
        rng=_Draw(draw),
    )
    if isinstance(following, Retry):
        _, step, previous, refreshed, _ = following.progress
        return Change(OperationState.WAITING, step, previous, refreshed, following.delay, following.source.value)
    if is_conflict(policy, failure):
        return kept._replace(state=OperationState.CONFLICT)
    return kept._replace(state=OperationState.FAILED, reason=following.reason.value if following.reason else None)
