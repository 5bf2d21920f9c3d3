"""SQL statements, and transactions as generators of them.

A transaction decides nothing about retries by itself: it locks rows, applies `transitions` to them, and writes the
result back. It yields the statements that it needs and receives their rows. So the same transaction runs on SQLite's
thread, on an asynchronous connection, and on a connection of the caller's.
"""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.ledger.operation import OperationState

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
BATCH = 1000
"""How many rows one statement gets, or one transaction changes; SQLite limits a statement to 32,766 parameters."""


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
    return [rows[first : first + BATCH] for first in range(0, len(rows), BATCH)]


def texts(states: Iterable[OperationState]) -> str:
    """Return states as SQL's list of strings."""
    return ", ".join(sorted(f"'{state}'" for state in states))
