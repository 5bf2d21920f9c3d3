"""What a database has to do for a ledger: the protocol that both stores implement.

Each method is one transaction. It has been carried out when it returns; when it raises a `LedgerError`, that says what
became of the data. A store decides nothing about retrying: it applies `transitions`, or their twin in SQL.
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

__all__ = [
    "COLUMNS",
    "PolicyOf",
    "Store",
    "attempt_of",
    "check_process",
    "check_version",
    "operation_of",
    "queue_of",
    "readiness",
]

PolicyOf = Callable[[str], RetryPolicy]
"""Returns the policy that an operation's text stands for."""

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
"""The columns of an operation, in the order in which `operation_of` takes them."""

_UNFINISHED = CLAIMABLE | {OperationState.IN_PROGRESS}
"""The states of what still waits, or runs."""


class Store(Protocol):
    """A database that holds a ledger. Times are its own clock's (LG-12)."""

    async def migrate(self, *, apply: bool) -> tuple[int, int]:
        """Bring the tables to this library's version; return the versions before and after (LG-13).

        With `apply=False` nothing is changed, and older tables are a `LedgerSchemaError` too.
        """
        ...

    async def submit(self, submissions: Sequence[Submission]) -> list[Submitted]:
        """Store operations, all or none; the answers are in the same order (LG-9)."""
        ...

    def statement(self, submission: Submission) -> tuple[str, Any]:
        """Return the SQL that stores an operation and its parameters, for the caller's own driver (LG-9)."""
        ...

    def submit_within(self, connection: Any, submissions: Sequence[Submission]) -> Any:
        """Store operations in the caller's own transaction; the answer may have to be awaited (LG-9)."""
        ...

    async def claim(self, target: str, limit: int, owner: str, lease: float) -> list[Operation]:
        """Take ready operations of a target, the oldest first, each for one owner alone (LG-6)."""
        ...

    async def extend(self, leases: Sequence[Lease], lease: float) -> set[str]:
        """Let leases end later; return the ids of those that still hold (LG-6)."""
        ...

    async def release(self, leases: Sequence[Lease]) -> None:
        """Give operations back as they were, as if they had not been claimed (LG-10)."""
        ...

    async def record(self, reports: Sequence[AttemptReport]) -> list[Recorded | LedgerBusyError]:
        """Record the ends of attempts, each under its row's lock (LG-2)."""
        ...

    async def lost(self, target: str | None, policy_of: PolicyOf, rng: Random, limit: int) -> list[Recorded]:
        """End the leases that have run out, and record their attempts as lost (LG-6)."""
        ...

    async def next_due(self, target: str) -> float | None:
        """Return in how many seconds the next operation of a target may be claimed; None if there is none."""
        ...

    async def set_backoff(self, id: str, seconds: float) -> bool:  # noqa: A002 - the operation's own word
        """Write a backoff and its timestamp at once; return whether there was such an operation, waiting (seed 001)."""
        ...

    async def ready(self, which: Filter, limit: int, policy_of: PolicyOf) -> list[Readiness]:
        """Tell of many operations whether they are ready (LG-5)."""
        ...

    async def find(self, which: Filter, limit: int) -> list[Operation]:
        """Return operations, the oldest first."""
        ...

    async def attempts(self, id: str) -> list[OperationAttempt]:  # noqa: A002
        """Return an operation's attempts in their order."""
        ...

    async def begin_anew(
        self, ids: Sequence[str], states: Sequence[OperationState], request: bytes | None
    ) -> list[str]:
        """Make operations in these states pending again, perhaps with another request; return their ids (LG-7)."""
        ...

    async def discard(self, ids: Sequence[str]) -> list[str]:
        """Give up operations that have not succeeded; return their ids (LG-7)."""
        ...

    async def prune(self, keep: float, states: Sequence[OperationState], limit: int) -> int:
        """Delete what finished more than `keep` seconds ago in one of these states; return how many (LG-11)."""
        ...

    async def queue(self, target: str | None) -> Queue:
        """Return what waits."""
        ...

    async def waiting(self, limit: int) -> int:
        """Return how many operations are not finished; not more than `limit` are counted."""
        ...

    async def notify(self, target: str) -> None:
        """Wake whoever delivers to a target, in other processes too, where the database can (LG-12)."""
        ...

    def listen(self, heard: Callable[[str], None]) -> None:
        """Have `heard` called with each target that others notify of, from now to `close` (LG-12)."""
        ...

    async def close(self) -> None:
        """Let go of the database."""
        ...


def operation_of(row: Sequence[Any]) -> Operation:
    """Return the operation that a row holds; its columns are `COLUMNS`.

    Metadata that cannot be read are a `problem` of this operation alone, not an error for all that were asked for.
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
    """Return the attempt that a row holds: its number, start, end, code, delay, and where the delay came from."""
    number, started, ended, code, delay, source = row
    return OperationAttempt(number=number, started=started, ended=ended, code=code, delay=delay, source=source)


def queue_of(rows: Iterable[tuple[str, int, float]]) -> Queue:
    """Return what waits, of rows that have a state, how many operations are in it, and the oldest one's age."""
    counts, length, oldest = {}, 0, 0.0
    for name, count, age in rows:
        state = OperationState(name)
        counts[state] = count
        if state in _UNFINISHED:
            length, oldest = length + count, max(oldest, age)
    return Queue(counts, length, oldest)


def check_process(where: str, opener: int) -> None:
    """Refuse the child of a fork: the file's thread is not there, and a connection would have two that talk on it."""
    if os.getpid() != opener:
        raise LedgerUnavailableError(f"{where}: the ledger was opened before a fork; open one in each process")


def check_version(where: str, found: int, newest: int, *, apply: bool) -> None:
    """Refuse tables that this library does not know, or may not change (LG-13)."""
    if found > newest:
        raise LedgerSchemaError(
            f"{where}: schema={found}: expected at most {newest}; a newer grpc-backoff has been here"
        )
    if found < newest and not apply:
        raise LedgerSchemaError(f"{where}: schema={found}: expected {newest}; run `grpc-backoff ledger migrate`")


def readiness(row: Sequence[Any], now: float, policy_of: PolicyOf) -> Readiness:
    """Return whether the operation of a row is ready (LG-5).

    The row has its id, state, policy, step, backoff, last and next attempt, and the end of its lease. The time is that
    of seed 001: `last_attempted_at + backoff_request_seconds`; where the owner died before it could record these, the
    end of its lease and min(growth, cap); else there is none.
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
