"""How reporting the end of an attempt changes an operation's row.

These are pure functions that use no clock, randomness or database.

The retry rules are those of calls (`decide.calls.decision`), with the row in place of the call's state. A store locks
the row, calls these functions and writes the change back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from grpc_backoff.base.record import record
from grpc_backoff.decide.calls.decision import FailedAttempt, Progress, Retry, decide, is_conflict
from grpc_backoff.ledger.records import (
    CLAIMABLE,
    AttemptReport,
    Operation,
    OperationAttempt,
    OperationState,
    Recorded,
)
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.jitter import NoJitter
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import Fixed

_REPORTED = frozenset(
    {OperationState.SUCCEEDED, OperationState.FAILED, OperationState.CONFLICT, OperationState.WAITING}
)
"""The states that a report can lead to; claims and manual actions lead to the others."""

_LONGEST = 10 * 365 * 86_400.0
"""The longest wait, in seconds, that a ledger stores, because databases have a latest possible date."""

_LOSS = FailedAttempt("DEADLINE_EXCEEDED", own_timeout=True)
"""The failure recorded for a lost attempt. It is retried whichever codes the policy names, like an attempt that
exceeded its own timeout (LG-6)."""


@record
class Standing(NamedTuple):
    """The part of an operation's row that determines what follows.

    Attributes:
        state: its state.
        attempts: the attempts so far, in this series.
        step: how many waits of the policy's sequence have been used.
        previous: the last of these waits, in seconds.
        refreshed: whether credentials have already been renewed (RT-4).
        lease_token: the token of the last claim.
        age: the seconds since its series of attempts began.
    """

    state: OperationState
    attempts: int = 0
    step: int = 0
    previous: float | None = None
    refreshed: bool = False
    lease_token: int = 0
    age: float = 0.0

    def is_live(self, token: int | None) -> bool:
        """Return whether a report under this token is about the current attempt.

        Without a token, the report is about an attempt that was made without a claim. Such an attempt counts as the
        current one as long as the operation can be claimed.
        """
        if token is None:
            return self.state in CLAIMABLE
        return self.state is OperationState.IN_PROGRESS and self.lease_token == token


@record
class Change(NamedTuple):
    """The change to an operation's row.

    Attributes:
        state: the new state.
        step: as in `Standing`.
        previous: as in `Standing`.
        refreshed: as in `Standing`.
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


class _Draw:
    """A random source that returns one number drawn beforehand (LG-3)."""

    def __init__(self, draw: float) -> None:
        self._draw = draw

    def random(self) -> float:
        return self._draw


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


def after_success(standing: Standing, token: int | None) -> Change:
    """Return the change that follows a success. A late success counts; a discarded operation stays discarded."""
    discarded = standing.state is OperationState.DISCARDED
    return _unchanged(standing)._replace(
        state=OperationState.DISCARDED if discarded else OperationState.SUCCEEDED, live=standing.is_live(token)
    )


def after_failure(
    policy: RetryPolicy,
    standing: Standing,
    token: int | None,
    failure: FailedAttempt,
    *,
    draw: float,
    can_refresh: bool,
) -> Change:
    """Return the change that follows a failure; a late report never changes an operation (LG-6)."""
    if not standing.is_live(token):
        return _unchanged(standing)
    return _decided(policy, standing, failure, draw, can_refresh=can_refresh)


def after_loss(policy: RetryPolicy, standing: Standing) -> Change:
    """Return the change that follows a lost attempt, whose lease has expired and whose owner is gone (LG-3)."""
    wait = fallback(policy, standing.step + 1)
    steady = BackoffPolicy(Fixed(wait), max(wait, policy.backoff.cap), NoJitter())
    return _decided(dataclasses.replace(policy, backoff=steady), standing, _LOSS, 0.0, can_refresh=False)


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
    return Recorded(
        operation.id,
        operation.state,
        operation.attempts,
        code,
        operation.backoff_request_seconds,
        attempts[-1].source,
        operation.reason,
        live=True,
    )


def _unchanged(standing: Standing) -> Change:
    return Change(standing.state, standing.step, standing.previous, standing.refreshed, live=False)


def _decided(
    policy: RetryPolicy, standing: Standing, failure: FailedAttempt, draw: float, *, can_refresh: bool
) -> Change:
    following = decide(
        policy,
        Progress(standing.attempts + 1, standing.step, standing.previous, standing.refreshed),
        failure,
        left=None if policy.deadline is None else policy.deadline - standing.age,
        budget_spent=False,
        can_refresh=can_refresh,
        rng=_Draw(draw),
    )
    kept = _unchanged(standing)._replace(live=True)
    if isinstance(following, Retry):
        progress = following.progress
        return Change(
            OperationState.WAITING,
            progress.step,
            progress.previous,
            progress.refreshed,
            delay=following.delay,
            source=following.source.value,
        )
    if is_conflict(policy, failure):
        return kept._replace(state=OperationState.CONFLICT)
    return kept._replace(state=OperationState.FAILED, reason=following.reason.value if following.reason else None)
