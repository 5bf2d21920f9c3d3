"""The interface (a typing protocol) for a ledger's database; the stores for SQLite and PostgreSQL implement it.

Each method is one transaction, which is complete when the method returns. If the method raises a `LedgerError`, the
error says what happened to the data. A store makes no decisions about retries: it applies `transitions`, or their
equivalent in SQL.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from grpc_backoff.ledger.errors import LedgerBusyError, LedgerSchemaError, LedgerUnavailableError
from grpc_backoff.ledger.metadata import decode_metadata
from grpc_backoff.ledger.records import (
    CLAIMABLE,
    AttemptReport,
    Filter,
    Lease,
    Operation,
    OperationAttempt,
    OperationState,
    Queue,
    Readiness,
    Recorded,
    Submission,
    Submitted,
)
from grpc_backoff.ledger.transitions import fallback, ledger_policy
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.retry import RetryPolicy

PolicyOf = Callable[[str], RetryPolicy]
"""A function that returns the policy described by an operation's text."""

COLUMNS = [
    "id",
    "target",
    "method",
    "request",
    "metadata",
    "policy",
    "state",
    "attempts",
    "recorded",
    "backoff_request_seconds",
    "last_attempted_at",
    "next_attempt_at",
    "code",
    "details",
    "trace_id",
    "lease_owner",
    "lease_until",
    "lease_token",
    "idempotency_key",
    "created",
    "began",
    "finished",
]
"""An operation's columns, in the order that `operation_of` expects."""

_UNFINISHED = CLAIMABLE | {OperationState.IN_PROGRESS}
"""The states of operations that are waiting or in progress."""


class Store(Protocol):
    """A database that contains a ledger. Times are on the database's own clock (LG-12)."""

    async def migrate(self, *, apply: bool) -> tuple[int, int]:
        """Bring the tables to this library's version; return the versions before and after (LG-13).

        With `apply=False` nothing is changed, and older tables raise LedgerSchemaError as well.
        """
        ...

    async def submit(self, submissions: Sequence[Submission]) -> list[Submitted]:
        """Store operations, all or none; return the results in the same order (LG-9)."""
        ...

    def statement(self, submission: Submission) -> tuple[str, Any]:
        """Return the SQL that stores an operation and its parameters, for the caller's own driver (LG-9)."""
        ...

    def submit_within(self, connection: Any, submissions: Sequence[Submission]) -> Any:
        """Store operations in the caller's own transaction; the result may be awaitable (LG-9)."""
        ...

    async def claim(self, target: str, limit: int, owner: str, lease: float) -> list[Operation]:
        """Claim ready operations for a target, oldest first, each for a single owner; `lease` is in seconds (LG-6)."""
        ...

    async def extend(self, leases: Sequence[Lease], lease: float) -> set[str]:
        """Extend leases to `lease` seconds from now; return the ids of those still held (LG-6)."""
        ...

    async def release(self, leases: Sequence[Lease]) -> None:
        """Return claimed operations to the state before their claim (LG-10)."""
        ...

    async def record(self, reports: Sequence[AttemptReport]) -> list[Recorded | LedgerBusyError]:
        """Record the ends of attempts, each under the lock of its row (LG-2)."""
        ...

    async def lost(self, target: str | None, policy_of: PolicyOf, rng: Random, limit: int) -> list[Recorded]:
        """End the leases that have expired, and record their attempts as lost (LG-6)."""
        ...

    async def next_due(self, target: str) -> float | None:
        """Return the seconds until the next operation for a target may be claimed; None if there is none."""
        ...

    async def set_backoff(self, id: str, seconds: float) -> bool:  # noqa: A002 - the term used for operations
        """Write a backoff in seconds, and its timestamp, atomically; return whether a waiting operation had this id."""
        ...

    async def ready(self, which: Filter, limit: int, policy_of: PolicyOf) -> list[Readiness]:
        """For each operation, return whether it is ready, when it became or will become ready, and why (LG-5)."""
        ...

    async def find(self, which: Filter, limit: int) -> list[Operation]:
        """Return the operations that match a filter, oldest first."""
        ...

    async def attempts(self, id: str) -> list[OperationAttempt]:  # noqa: A002
        """Return an operation's attempts in order."""
        ...

    async def begin_anew(
        self, ids: Sequence[str], states: Sequence[OperationState], request: bytes | None
    ) -> list[str]:
        """Make operations in these states pending again, with a new request if given; return their ids (LG-7)."""
        ...

    async def discard(self, ids: Sequence[str]) -> list[str]:
        """Discard operations that have not succeeded; return their ids (LG-7)."""
        ...

    async def prune(self, keep: float, states: Sequence[OperationState], limit: int) -> int:
        """Delete operations in these states that finished more than `keep` seconds ago; return how many (LG-11)."""
        ...

    async def queue(self, target: str | None) -> Queue:
        """Return how many operations there are in each state, and the age of the oldest unfinished one."""
        ...

    async def waiting(self, limit: int) -> int:
        """Return how many operations are unfinished, counting at most `limit`."""
        ...

    async def notify(self, target: str) -> None:
        """Wake the deliverers of a target, including those of other processes if the database supports that (LG-12)."""
        ...

    def listen(self, heard: Callable[[str], None]) -> None:
        """Call `heard` with the target of each notification, from now until `close` (LG-12)."""
        ...

    async def close(self) -> None:
        """Release the database."""
        ...


def operation_of(row: Sequence[Any]) -> Operation:
    """Return the operation in a row with the columns `COLUMNS`.

    Unreadable metadata is a `problem` of this operation alone, not an error for the whole query.
    """
    values = dict(zip(COLUMNS, row, strict=True))
    values["id"] = str(values["id"])
    values["request"] = bytes(values["request"])
    values["state"] = OperationState(values["state"])
    try:
        values["metadata"] = decode_metadata(values["metadata"])
    except ValueError as error:
        values |= {"metadata": (), "problem": str(error)}
    return Operation(**values)


def attempt_of(row: Sequence[Any]) -> OperationAttempt:
    """Return the attempt in a row: its number, start, end, code, delay, and the source of the delay."""
    number, started, ended, code, delay, source = row
    return OperationAttempt(number=number, started=started, ended=ended, code=code, delay=delay, source=source)


def queue_of(rows: Iterable[tuple[str, int, float]]) -> Queue:
    """Return the queue from rows that each have a state, its number of operations, and the age of the oldest."""
    counts, length, oldest = {}, 0, 0.0
    for name, count, age in rows:
        state = OperationState(name)
        counts[state] = count
        if state in _UNFINISHED:
            length, oldest = length + count, max(oldest, age)
    return Queue(counts, length, oldest)


def check_process(where: str, opener: int) -> None:
    """Reject the child of a fork: SQLite's thread does not exist there, and the parent also uses any connection."""
    if os.getpid() != opener:
        raise LedgerUnavailableError(f"{where}: the ledger was opened before a fork; open one in each process")


def check_version(where: str, found: int, newest: int, *, apply: bool) -> None:
    """Reject tables that are newer than this library, or older ones that must not be changed (LG-13)."""
    if found > newest:
        raise LedgerSchemaError(
            f"{where}: schema={found}: expected at most {newest}; a newer grpc-backoff has upgraded it"
        )
    if found < newest and not apply:
        raise LedgerSchemaError(f"{where}: schema={found}: expected {newest}; run `grpc-backoff ledger migrate`")


def readiness(row: Sequence[Any], now: float, policy_of: PolicyOf) -> Readiness:
    """Return whether a row's operation is ready (LG-5).

    The row contains the operation's id, state, policy, step, backoff, last and next attempt, and the end of its lease.
    After a failure, the operation is ready at `last_attempted_at + backoff_request_seconds`. If the owner died before
    it could record these, the operation is ready min(growth, cap) after the end of the lease.
    """
    operation, name, policy, step, backoff, last, due, lease_until = row
    state = OperationState(name)
    if state is OperationState.IN_PROGRESS:
        if lease_until > now:
            return Readiness(operation, ready=False, at=lease_until, why="in progress")
        at = lease_until + fallback(ledger_policy(policy_of(policy)), step + 1)
        return Readiness(operation, at <= now, at, "its owner is gone")
    if state not in CLAIMABLE:
        return Readiness(operation, ready=False, at=None, why=name)
    if state is OperationState.WAITING and backoff is not None and last is not None:
        due = last + backoff
    why = "due" if due <= now else "backoff"
    return Readiness(operation, due <= now, due, why)
