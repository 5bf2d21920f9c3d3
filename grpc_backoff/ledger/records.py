"""What a ledger holds and what its stores take and give, as frozen values.

All times are seconds since the epoch on the database's clock (LG-12), and all lengths of time are seconds.
"""

from __future__ import annotations

import enum

from grpc_backoff.calls.decision import FailedAttempt
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.record import NamedTuple, field, record, value

__all__ = [
    "CLAIMABLE",
    "FINISHED",
    "LOST",
    "AttemptReport",
    "Filter",
    "Lease",
    "Metadata",
    "Operation",
    "OperationAttempt",
    "OperationState",
    "Queue",
    "Readiness",
    "Recorded",
    "Submission",
    "Submitted",
]

Metadata = tuple[tuple[str, str | bytes], ...]

LOST = "LOST"
"""The code of an attempt whose deliverer was gone when its lease ended: nobody knows what became of it (LG-6)."""


class OperationState(enum.StrEnum):
    """Where an operation is (LG-1)."""

    PENDING = "pending"
    """No attempt has been made of it yet."""
    IN_PROGRESS = "in_progress"
    """A deliverer has it, until its lease ends."""
    WAITING = "waiting_for_retry"
    """An attempt has failed; the next one may be made at `next_attempt_at`."""
    SUCCEEDED = "succeeded"
    """Delivered."""
    FAILED = "failed"
    """Its policy gave up. It stays until somebody replays or discards it (LG-7)."""
    CONFLICT = "conflict"
    """The server answered ABORTED or ALREADY_EXISTS. It stays until somebody resolves or discards it (LG-8)."""
    DISCARDED = "discarded"
    """Somebody gave it up."""


CLAIMABLE = frozenset({OperationState.PENDING, OperationState.WAITING})
FINISHED = frozenset(
    {OperationState.SUCCEEDED, OperationState.FAILED, OperationState.CONFLICT, OperationState.DISCARDED}
)


@value(frozen=True, slots=True, kw_only=True)
class Operation:
    """One piece of work: by default a gRPC call that is made until it succeeds or its policy gives up (LG-1).

    Attributes:
        id: a UUID.
        target: the channel's target.
        method: the method's path, `/package.Service/Method`.
        request: the request's bytes; not shown by `repr`.
        metadata: what of the caller's metadata the settings allow to be stored; not shown by `repr`.
        policy: how it is retried: a policy's name, or a policy string.
        state: where it is.
        attempts: how many attempts there have been since it was submitted, or replayed.
        recorded: how many rows of attempts it has in all.
        backoff_request_seconds: the wait after the last failure; None where there was none.
        last_attempted_at: when that failure was recorded.
        next_attempt_at: from when it may be claimed; None while it may not.
        code: the status code of the last failure.
        details: the server's words for it, at most 1 KiB.
        trace_id: the trace in which it was submitted.
        lease_owner: who has it.
        lease_until: until when, unless the lease is extended.
        lease_token: a number that grows with each claim, so that a late report is known as such.
        idempotency_key: unique for a method; what the server is sent as `idempotency-key` where it is not None.
        created: when it was submitted.
        began: when its present series of attempts began: when it was submitted, replayed or resolved.
        finished: when it reached a final state.
        problem: why its row cannot be delivered as it stands; None where it can be.
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
    trace_id: str | None
    lease_owner: str | None
    lease_until: float | None
    lease_token: int
    idempotency_key: str | None
    created: float
    began: float
    finished: float | None
    problem: str | None = None


@value(frozen=True, slots=True, kw_only=True)
class OperationAttempt:
    """One attempt of an operation (LG-1).

    Attributes:
        number: counted from 1 over all that were ever made.
        started: when it began; None where only its end was reported.
        ended: when its end was recorded.
        code: its status code, `OK`, or `LOST`.
        delay: the wait that followed; None where none did.
        source: who asked for that wait, in the words of `WaitSource`; None where none followed.
    """

    number: int
    started: float | None
    ended: float
    code: str
    delay: float | None
    source: str | None


@record
class Submission(NamedTuple):
    """What is to be stored; already checked and serialized."""

    id: str
    target: str
    method: str
    request: bytes
    metadata: Metadata
    policy: str
    trace_id: str | None
    idempotency_key: str | None

    def __repr__(self) -> str:
        """Show neither the request nor metadata (RT-11)."""
        shown = (name for name in self._fields if name not in ("request", "metadata"))
        return f"Submission({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


@record
class Submitted(NamedTuple):
    """What became of a submission.

    Attributes:
        id: the operation's.
        new: False where its idempotency key was known, so that `id` is that of the first submission.
    """

    id: str
    new: bool


@record
class Lease(NamedTuple):
    """One claim of one operation."""

    id: str
    token: int


@record
class AttemptReport(NamedTuple):
    """How an attempt ended.

    Attributes:
        id: the operation's.
        token: that of the lease under which it was made; None for an attempt that was made without one.
        policy: how the operation is retried.
        failure: how it failed; None for success.
        details: the server's words, cut.
        can_refresh: whether there is a way to new credentials (RT-4).
        draw: a number from [0, 1), which places the delay in its window (LG-3).
    """

    id: str
    token: int | None
    policy: RetryPolicy
    failure: FailedAttempt | None = None
    details: str | None = None
    can_refresh: bool = False
    draw: float = 0.0


@record
class Recorded(NamedTuple):
    """What a report came to.

    Attributes:
        id: the operation's.
        state: its state from now on; None where there is no such operation.
        attempts: how many attempts there have been.
        code: the code that was recorded.
        delay: the wait that follows; None for none.
        source: who asked for it, in the words of `WaitSource`.
        reason: why there is no further attempt, in the words of `Reason`; None where that is not the matter.
        live: False for a report that came after its lease had ended, or after the operation's end.
    """

    id: str
    state: OperationState | None
    attempts: int = 0
    code: str = ""
    delay: float | None = None
    source: str | None = None
    reason: str | None = None
    live: bool = False


@record
class Readiness(NamedTuple):
    """Whether an operation may be attempted (LG-5).

    Attributes:
        id: the operation's.
        ready: whether it may be, now.
        at: since when, or from when on; None where that is not known.
        why: the reason in a word or a few.
    """

    id: str
    ready: bool
    at: float | None
    why: str


@value(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which operations are meant; each part may be left out.

    Attributes:
        ids: these alone.
        states: in one of these states.
        target: of this target.
        method: of this method's path.
        older_than: submitted at least so many seconds ago.
    """

    ids: tuple[str, ...] | None = None
    states: tuple[OperationState, ...] = ()
    target: str | None = None
    method: str | None = None
    older_than: float | None = None


@record
class Queue(NamedTuple):
    """What waits in a ledger.

    Attributes:
        counts: how many operations there are, by state.
        length: how many are not finished.
        oldest: the age in seconds of the oldest of those; 0 where there is none.
    """

    counts: dict[OperationState, int]
    length: int
    oldest: float
