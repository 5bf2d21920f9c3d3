"""An operation: its states, its row, its attempts and its outcome.

All times are seconds since the epoch on the database's clock (LG-12); all durations are in seconds.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

Metadata = tuple[tuple[str, str | bytes], ...]
IDEMPOTENCY_KEY = "idempotency-key"
"""The metadata key with which an operation's key is sent."""
LONGEST_KEY = 1024
"""The most characters of a key."""
LOST = "LOST"
"""The code of an attempt whose deliverer was gone when the lease expired: its outcome is unknown (LG-6)."""


class OperationState(enum.StrEnum):
    """An operation's state (LG-1)."""

    PENDING = "pending"
    """No attempt has been made yet."""
    IN_PROGRESS = "in_progress"
    """A deliverer has claimed the operation, until the lease expires."""
    WAITING = "waiting_for_retry"
    """An attempt has failed; the next one may start at `next_attempt_at`."""
    SUCCEEDED = "succeeded"
    """The operation was delivered."""
    FAILED = "failed"
    """The policy gave up. The operation stays until it is replayed or discarded (LG-7)."""
    CONFLICT = "conflict"
    """The server answered ABORTED or ALREADY_EXISTS. The operation stays until it is resolved or discarded (LG-8)."""
    DISCARDED = "discarded"
    """The operation was discarded manually."""
    EXPIRED = "expired"
    """The operation was not executed before its `not_after` (LG-17). It may be replayed."""


WELL = frozenset({OperationState.SUCCEEDED, OperationState.DISCARDED, OperationState.EXPIRED})
"""The states of operations that nothing remains to be done for, which hold no order key and are pruned."""
CLAIMABLE = frozenset({OperationState.PENDING, OperationState.WAITING})
FINISHED = frozenset(OperationState) - CLAIMABLE - {OperationState.IN_PROGRESS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A unit of work: by default a gRPC call that is attempted until it succeeds or its policy gives up (LG-1).

    Times are in seconds since the epoch, on the database's clock (LG-12).

    Attributes:
        id: a UUID.
        target: the channel's target.
        method: the method's path, `/package.Service/Method`.
        request: the serialized request; not shown by `repr`.
        metadata: the part of the caller's metadata that the settings allow to be stored; not shown by `repr`.
        policy: its retry policy: a name, or a policy string.
        state: its state.
        attempts: how many attempts there have been since it was submitted or replayed.
        recorded: how many attempts are recorded for it in total.
        backoff_request_seconds: the wait after the last failure, in seconds; None if there was none.
        last_attempted_at: when the last failure or success was recorded, or `set_backoff` was called; None before that.
        next_attempt_at: when it may next be claimed; None while it may not.
        code: the status code of the last failure.
        details: the server's status details, up to 1 KiB.
        reason: why the policy gave up, as a value of `Reason`; None if it did not, or never retries this code.
        trace_id: the id of the trace in which it was submitted.
        lease_owner: names the delivery that has claimed it, and its process; None if it is not claimed.
        lease_until: when the lease expires, unless it is extended; None if it is not claimed.
        lease_token: a number that increases with each claim, by which late reports are recognized.
        idempotency_key: unique for a target and a method; sent to the server as `idempotency-key` unless it is None.
        order_key: operations of one target with the same order key are attempted one after the other.
        created: when it was submitted.
        began: when its current series began: with its first attempt or, before that, when it was submitted, replayed or
            resolved.
        finished: when it reached a final state.
        not_after: the time from which it is no longer attempted; None if it does not expire.
        keep_response: the largest response that is stored, in bytes; None if no response is stored.
        problem: why its row cannot be delivered; None if it can.
    """

    id: str
    target: str
    method: str
    request: bytes = field(repr=False)
    metadata: Metadata = field(repr=False)
    policy: str
    state: OperationState
    attempts: int
    recorded: int
    backoff_request_seconds: float | None
    last_attempted_at: float | None
    next_attempt_at: float | None
    code: str | None
    details: str | None
    reason: str | None
    trace_id: str | None
    lease_owner: str | None
    lease_until: float | None
    lease_token: int
    idempotency_key: str | None
    created: float
    began: float
    finished: float | None
    order_key: str | None = None
    not_after: float | None = None
    keep_response: int | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationAttempt:
    """One attempt of an operation (LG-1). Times are in seconds since the epoch, on the database's clock (LG-12).

    Attributes:
        number: its number among all attempts of the operation, from 1.
        started: when it began; None if only its end was reported.
        ended: when its end was recorded.
        code: its status code, `OK`, or `LOST`.
        delay: the wait that followed, in seconds; None if there was none.
        source: what determined that wait, as a value of `WaitSource`; None if there was none.
    """

    number: int
    started: float | None
    ended: float
    code: str
    delay: float | None
    source: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationOutcome:
    """How an operation ended (LG-19).

    Attributes:
        id: the operation's id.
        state: its state.
        attempts: how many attempts there were in its last series.
        code: the status code of the last failure; None if there was none; `OK` after a success.
        details: the server's status details of the last failure.
        response: the serialized response; None if it was not kept or was too large; not shown by `repr`.
    """

    id: str
    state: OperationState
    attempts: int
    code: str | None
    details: str | None
    response: bytes | None = field(default=None, repr=False)
