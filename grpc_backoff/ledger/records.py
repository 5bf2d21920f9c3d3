"""What goes into a ledger's transactions and what comes out, as frozen values.

All times are seconds since the epoch on the database's clock (LG-12); all durations are in seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypedDict

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.base.record import NamedTuple
from grpc_backoff.decide.calls.call_machine import FailedAttempt
from grpc_backoff.ledger.operation import LOST, Metadata, Operation, OperationState
from grpc_backoff.policy.checks import STATUS_CODES, choice, pause
from grpc_backoff.policy.retry import Retry, RetryPolicy

_UNSTORABLE = re.compile(r"[\0\ud800-\udfff]")  # matches what PostgreSQL, or UTF-8, cannot contain


class SubmitOptions(TypedDict, total=False):
    """The parts of an operation that `Ledger.submit` and `Ledger.prepared` take as keywords."""

    idempotency_key: str | None
    """A key that is unique for the target and the method. Submitting the same request again with the same key returns
    the id of the first operation. The key is sent to the server with each attempt as `idempotency-key`; by default, the
    operation's id is sent."""
    metadata: Iterable[tuple[str, str | bytes]] | None
    """The metadata to send with each attempt. Because it is stored, its keys are limited to those that the settings
    allow."""
    policy: Retry | None
    """The retry policy; by default, the `policy` of the file's `[ledger]` or, if that table has `methods = true`, the
    one in `[methods]`."""
    order_key: str | None
    """Operations of one target with the same order key are attempted one after the other, in the order in which their
    transactions commit. One that failed or is in conflict holds back those after it until it is replayed, resolved or
    discarded. The key is locked until the transaction ends."""
    not_before: float | None
    """The earliest time of the first attempt, in seconds since the epoch on the database's clock."""
    not_after: float | None
    """The time from which the operation is no longer attempted, in seconds since the epoch on the database's clock. If
    it has not been executed by then, it ends as `expired` (LG-17). Running attempts go on."""
    keep_response: int | None
    """Store the serialized response, if it has at most this many bytes, until the operation is pruned; `wait` returns
    it. By default, no response is stored."""


class Submission(NamedTuple):
    """An operation to be stored, already checked and serialized.

    Times are in seconds since the epoch, on the database's clock (LG-12); `keep_response` is in bytes.
    """

    id: str
    target: str
    method: str
    request: bytes
    metadata: Metadata
    policy: str
    trace_id: str | None
    idempotency_key: str | None
    order_key: str | None = None
    not_before: float | None = None
    not_after: float | None = None
    keep_response: int | None = None

    def __repr__(self) -> str:
        """Return all fields except the request and the metadata (RT-11)."""
        shown = (name for name in self._fields if name not in ("request", "metadata"))
        return f"Submission({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


class Submitted(NamedTuple):
    """The result of a submission.

    Attributes:
        id: the operation's id.
        new: False if the idempotency key already existed, so that `id` is that of the first submission.
    """

    id: str
    new: bool


class Lease(NamedTuple):
    """A claim of an operation, identified by its token."""

    id: str
    token: int

    @classmethod
    def of(cls, operation: Operation) -> Lease:
        """Return the claim under which an operation was read."""
        return cls(operation.id, operation.lease_token)


class AttemptReport(NamedTuple):
    """How an attempt ended.

    Attributes:
        id, token: the lease under which the attempt was made; without a token, it was made without one.
        failure: how the attempt failed; None for success.
        details: the server's status details, truncated.
        draw: a random number from [0, 1), which places the delay within its window (LG-3).
        response: the serialized response to store; None if it is not stored (LG-19).
    """

    id: str
    token: int | None
    policy: RetryPolicy
    failure: FailedAttempt | None = None
    details: str | None = None
    draw: float = 0.0
    response: bytes | None = None

    def __repr__(self) -> str:
        """Return all fields except the response (RT-11)."""
        shown = (name for name in self._fields if name != "response")
        return f"AttemptReport({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


class Recorded(NamedTuple):
    """The result of reporting how an attempt ended.

    Attributes:
        id: the operation's id.
        state: the operation's new state; None if there is no such operation.
        attempts: how many attempts there have been.
        code: the code that was recorded.
        delay: the wait that follows, in seconds; None if there is none.
        source: what determined the wait, as a value of `WaitSource`.
        reason: why there is no further attempt, as a value of `Reason`; None if that does not apply.
        live: False for a report that arrived after its lease had expired, or after the operation had finished.
        order_key: the operation's order key.
    """

    id: str
    state: OperationState | None
    attempts: int = 0
    code: str = ""
    delay: float | None = None
    source: str | None = None
    reason: str | None = None
    live: bool = False
    order_key: str | None = None


class Readiness(NamedTuple):
    """Whether an operation may be attempted (LG-5).

    Attributes:
        id: the operation's id.
        ready: whether it may be attempted now.
        at: when it became or will become ready, in seconds since the epoch on the database's clock; None if there is no
            such time.
        why: the reason in a few words.
    """

    id: str
    ready: bool
    at: float | None
    why: str


def is_storable(value: object) -> bool:
    """Return whether a value is text that every database can store."""
    return isinstance(value, str) and _UNSTORABLE.search(value) is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Selects operations; every part is optional.

    Attributes:
        ids: only operations with these ids.
        states: only operations in one of these states.
        target: only operations for this target.
        method: only operations for the method with this path.
        older_than: only operations submitted at least this many seconds ago, on the database's clock.
        idempotency_key: only operations with this idempotency key.
        order_key: only operations with this order key.
        code: only operations whose last failure had this status code, or `LOST`.
    """

    ids: tuple[str, ...] | None = None
    states: tuple[OperationState, ...] = ()
    target: str | None = None
    method: str | None = None
    older_than: float | None = None
    idempotency_key: str | None = None
    order_key: str | None = None
    code: str | None = None

    def __post_init__(self) -> None:
        """Check the parts; OptionError if a state or a code is unknown, or a part cannot be that of any operation."""
        for name in ("target", "method", "idempotency_key", "order_key"):
            value = getattr(self, name)
            if value is not None and not is_storable(value):
                raise OptionError(f"Filter.{name}", value, "text without NUL and surrogates")
        if self.older_than is not None:
            object.__setattr__(self, "older_than", pause("Filter.older_than", self.older_than))
        for name, parts in (("ids", () if self.ids is None else self.ids), ("states", self.states)):
            several = isinstance(parts, tuple | list | set | frozenset)
            if not several or not all(isinstance(part, str) for part in parts):
                raise OptionError(f"Filter.{name}", parts, f"a tuple of {name}, as text")
        for state in self.states:
            choice("Filter.states", state, [known.value for known in OperationState])
        if self.code is not None:
            choice("Filter.code", self.code, (*STATUS_CODES, LOST))


class Queue(NamedTuple):
    """A ledger's waiting operations.

    Attributes:
        counts: how many operations there are in each state.
        length: how many are unfinished.
        oldest: the longest wait of an unfinished operation in seconds, since its first attempt or, before that, since
            it may be attempted; 0 if none waits.
        held_keys: how many order keys are held by an operation that failed or is in conflict.
        paused: the targets that are paused.
        estimated: whether some of the numbers are estimates, because there are many operations.
    """

    counts: dict[OperationState, int]
    length: int
    oldest: float
    held_keys: int = 0
    paused: tuple[str, ...] = ()
    estimated: bool = False
