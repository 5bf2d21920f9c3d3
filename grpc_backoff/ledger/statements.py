"""SQL statements, and transactions as generators of them.

A transaction decides nothing about retries by itself: it locks rows, applies `transitions` to them, and writes the
result back. It yields the statements that it needs and receives their rows. So the same transaction runs on SQLite's
thread, on an asynchronous connection, and on a connection of the caller's.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from grpc_backoff.base.record import record
from grpc_backoff.ledger.records import OperationState

AnswerT = TypeVar("AnswerT")
ResultT = TypeVar("ResultT")
StepT = TypeVar("StepT")
RowT = TypeVar("RowT")
Row = Sequence[Any]
ParameterStyle = Literal["format", "qmark", "numeric_dollar"]
"""How a driver writes the parameters of a statement."""
PARAMETER = r"(?<!:):(\w+)"
"""Matches a parameter of a `Statement`, but not a cast in PostgreSQL."""
NO_LEASE = "lease_owner = NULL, lease_began = NULL, lease_until = NULL, claimed_from = NULL"
_MANY = 1000
"""How many rows are passed to one statement; SQLite limits the number of its parameters to 32,766."""


@record
class Statement(NamedTuple):
    """One SQL statement, with parameters written `:name`; `answers` says whether it returns rows."""

    text: str
    params: Mapping[str, object]
    answers: bool = True


Plan = Generator[list[Statement], list[list[Row]], ResultT]
"""A transaction: it yields statements to be executed together and receives the rows of each."""


class Access(enum.Enum):
    """What a plan does to the database."""

    READ = "it only reads"
    STATEMENT = "it is one statement, which writes"
    LIMITED = "it is one statement, which writes and gives up as a transaction does if it must wait for a lock"
    TRANSACTION = "it locks rows and then writes"


@record
class Dialect(NamedTuple):
    """How a database writes what SQL leaves open. Times are seconds since the epoch outside of the database.

    Attributes:
        operations, attempts, paused: the tables; the last one is of targets.
        now: the time at which the statement began.
        clock: the time at which the expression is evaluated, thus after a lock was acquired.
        lock: locks the rows of the table `o` and waits for those that are locked.
        skip: the same, but skips those that are locked.
        at: the stored form of a time `{}` in seconds.
        later: the time `{0}` plus `{1}` seconds.
        style: how the usual driver writes parameters.
        expired: whether the lease of the row `o` has expired; it may look at the first `:head` rows of `:target` from
            the time `:floor` on only.
        sizes: a query for the numbers of operations that are open and that are not, which may be estimates.
        refuse: the change of a row `o` that the database rejects, because another request has its idempotency key.
        key_lock: locks the order key `{1}` of a target `{0}` until the transaction ends, unless that is locked anyway.
        versions: the table that contains the version of the tables.
        oldest: the oldest version of the tables that can be used without an upgrade: that of 0.2.0 (LG-18).
        waiting: how many seconds pass at most until a waiter looks again for an outcome.
        disturbed: SQL that extends a query: whether stored times must be corrected.
        leased: what else is written when a lease begins or is extended.
        corrections: the statements that correct stored times after the clock was set back, with the parameter `:now`.
    """

    operations: str
    attempts: str
    paused: str
    now: str
    clock: str
    lock: str
    skip: str
    at: str
    later: str
    style: ParameterStyle
    expired: str
    sizes: str
    refuse: str
    versions: str
    oldest: int
    waiting: float
    key_lock: str = ""
    disturbed: str = ""
    leased: str = ""
    corrections: tuple[str, ...] = ()


def follow(plan: Generator[StepT, AnswerT, ResultT], execute: Callable[[StepT], AnswerT]) -> ResultT:
    """Run a plan, with this function to execute its steps."""
    try:
        step = next(plan)
        while True:
            step = plan.send(execute(step))
    except StopIteration as end:
        result: ResultT = end.value
        return result


async def follow_async(
    plan: Generator[StepT, AnswerT, ResultT], execute: Callable[[StepT], Awaitable[AnswerT]]
) -> ResultT:
    """Run a plan, with this coroutine function to execute its steps."""
    try:
        step = next(plan)
        while True:
            step = plan.send(await execute(step))
    except StopIteration as end:
        result: ResultT = end.value
        return result


def one(statement: Statement) -> Plan[list[Row]]:
    """Return a plan of one statement, whose result is its rows."""
    [rows] = yield [statement]
    return rows


def batches(rows: Sequence[RowT]) -> list[Sequence[RowT]]:
    """Return the rows in parts that one statement can take."""
    return [rows[first : first + _MANY] for first in range(0, len(rows), _MANY)]


def texts(states: Iterable[OperationState]) -> str:
    """Return states as SQL's list of strings."""
    return ", ".join(sorted(f"'{state}'" for state in states))
