"""What all of a ledger's databases have in common: the transactions, as generators of SQL statements.

A transaction decides nothing about retries by itself: it locks the rows, applies `transitions` to them, and writes the
result back. It yields the statements that it needs and receives their rows. So the same transaction runs on SQLite's
thread, on an asynchronous connection, and on a connection of the caller's. A store for a database runs transactions,
and says in its `Dialect` how the database writes times and locks; see `sqlite` and `postgres`.
"""

from __future__ import annotations

import abc
import contextlib
import enum
import functools
import math
import os
import re
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from grpc_backoff.base_errors import OptionError
from grpc_backoff.config.target import bare_target
from grpc_backoff.ledger.errors import (
    LedgerBusyError,
    LedgerError,
    LedgerSchemaError,
    LedgerStateError,
    LedgerUnavailableError,
)
from grpc_backoff.ledger.metadata import decode_metadata, encode_metadata
from grpc_backoff.ledger.records import (
    CLAIMABLE,
    LOST,
    WELL,
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
from grpc_backoff.ledger.transitions import (
    Change,
    Standing,
    after_failure,
    after_loss,
    after_success,
    fallback,
    ledger_policy,
)
from grpc_backoff.policy.ledger import LedgerSettings
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.record import record

ResultT = TypeVar("ResultT")
RowT = TypeVar("RowT")
Row = Sequence[Any]
ParameterStyle = Literal["format", "qmark", "numeric_dollar"]
"""How a driver writes the parameters of a statement."""
_MARKS: Mapping[str, str] = {"format": "%s", "qmark": "?", "numeric_dollar": "${}"}
PARAMETER = r"(?<!:):(\w+)"
"""Matches a parameter of a `Statement`, but not a cast in PostgreSQL."""
PolicyOf = Callable[[str], RetryPolicy]
"""A function that returns the policy described by an operation's text."""

_COLUMNS = (
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
    "reason",
    "trace_id",
    "lease_owner",
    "lease_until",
    "lease_token",
    "idempotency_key",
    "created",
    "began",
    "finished",
    "order_key",
)
_OPERATION = ", ".join(_COLUMNS)
_READY = (
    "id",
    "state",
    "policy",
    "step",
    "backoff_request_seconds",
    "last_attempted_at",
    "next_attempt_at",
    "lease_until",
)
"""What determines whether an operation is ready."""
_KINDS: Mapping[str, tuple[type, Any]] = {
    "request": (bytes, b""),
    **dict.fromkeys(("attempts", "recorded", "step", "lease_token"), (int, 0)),
    **dict.fromkeys(("created", "began", "finished", "last_attempted_at", "next_attempt_at"), (float, 0.0)),
    **dict.fromkeys(("backoff_request_seconds", "lease_began", "lease_until", "previous", "now"), (float, 0.0)),
}
"""The kinds of the columns, and what stands for a value of another kind; those of all others are text."""
_NULLABLE = frozenset(
    {
        "backoff_request_seconds",
        "last_attempted_at",
        "next_attempt_at",
        "code",
        "details",
        "reason",
        "trace_id",
        "lease_owner",
        "lease_began",
        "lease_until",
        "idempotency_key",
        "order_key",
        "finished",
        "previous",
    }
)
_STATES: Mapping[object, OperationState] = {state.value: state for state in OperationState}
_GIVEN = ", ".join(name for name in Submission._fields if name != "not_before")
_INITIAL = "state, attempts, recorded, step, refreshed, lease_token, next_attempt_at, created, began"
_NEW = "'pending', 0, 0, 0, false, 0, CASE WHEN {at} > {now} THEN {at} ELSE {now} END, {now}, {now}"
_NO_LEASE = "lease_owner = NULL, lease_began = NULL, lease_until = NULL, claimed_from = NULL"
_UNFINISHED = CLAIMABLE | {OperationState.IN_PROGRESS}
"""The states of operations that are waiting or in progress."""
_MANY = 1000
"""How many rows are passed to one statement; SQLite limits the number of its parameters to 32,766."""
_SAMPLE = 20_000
"""How many rows are counted exactly; beyond that, numbers of operations are estimates."""
_HEAD = 1000
"""How many of the first operations of a target are examined for expired leases; see `Store.lost`."""
_SOON = 0.5
"""The share of the setting `timeout` that is allowed for requests that deliverers repeat anyway."""


@record
class Statement(NamedTuple):
    """One SQL statement, with parameters written `:name`; `answers` says whether it returns rows."""

    text: str
    given: Mapping[str, Any]
    answers: bool = True


Plan = Generator[list[Statement], list[list[Row]], ResultT]
"""A transaction: it yields statements to be executed together, and receives the rows of each."""


class Access(enum.Enum):
    """What a plan does to the database."""

    READ = "it only reads"
    STATEMENT = "it is one statement, which writes"
    TRANSACTION = "it locks rows and then writes"


@record
class Dialect(NamedTuple):
    """How a database writes what SQL leaves open. Times are seconds since the epoch outside of the database.

    Attributes:
        operations: the table of operations.
        attempts: the table of their attempts.
        paused: the table of paused targets.
        now: the time at which the statement began.
        clock: the time at which the expression is evaluated, thus after a lock was acquired.
        lock: locks the rows of the table `o` and waits for those that are locked.
        skip: the same, but skips those that are locked.
        at: the stored form of a time `{}` in seconds.
        later: the time `{0}` plus `{1}` seconds.
        style: how the usual driver writes parameters.
        expired: whether the lease of the row `o` has expired; it may look at the first `:head` rows of `:target` only.
        sizes: a query for the numbers of operations that are open and that are not, which may be estimates.
        key_lock: locks the order key `{1}` of a target `{0}` until the transaction ends, unless that is locked anyway.
        disturbed: also whether stored times must be corrected.
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
    key_lock: str = ""
    disturbed: str = ""
    leased: str = ""
    corrections: tuple[str, ...] = ()


@record
class _Locked(NamedTuple):
    """The part of an operation that is read when its row is locked, and the time after that."""

    id: str
    policy: str
    state: str
    attempts: int
    recorded: int
    step: int
    previous: float | None
    refreshed: bool
    lease_token: int
    began: float
    lease_began: float | None
    lease_until: float | None
    order_key: str | None
    now: float

    @classmethod
    def read(cls, rows: Sequence[Row]) -> list[_Locked]:
        """Return the rows that can be read. The others are left alone."""
        pairs = ((zip(cls._fields, row, strict=True), row) for row in rows)
        return [
            cls(*row)
            for named, row in pairs
            if all(name == "refreshed" or _is_readable(name, value) for name, value in named) and row[2] in _STATES
        ]

    def standing(self, ended: float) -> Standing:
        """Return what determines the change that follows an attempt which ended at this time.

        The age counts from the first attempt of the series, so that an outage before it costs nothing (LG-7).
        """
        began = self.began if self.attempts else self.lease_began or ended
        return Standing(
            OperationState(self.state),
            self.attempts,
            self.step,
            self.previous,
            bool(self.refreshed),
            self.lease_token,
            ended - began,
        )


@record
class _End(NamedTuple):
    """The end of an attempt: the operation's row as it was, and the change that follows.

    `added` is False if the attempt's row exists already, because the attempt was recorded as lost.
    """

    row: _Locked
    token: int | None
    ended: float
    code: str
    details: str | None
    change: Change
    added: bool = True

    @property
    def moves(self) -> bool:
        """Whether more than the number of attempts changes."""
        return self.change.live or self.change.state.value != self.row.state

    @property
    def started(self) -> float | None:
        return self.row.lease_began if self.change.live and self.token is not None else None

    @property
    def began(self) -> float:
        """When the first attempt of the series began; before the first, when the operation was submitted."""
        return self.row.began if self.row.attempts or not self.moves else self.started or self.ended

    @property
    def attempts(self) -> int:
        return self.row.attempts + self.added

    @property
    def recorded(self) -> int:
        return self.row.recorded + self.added

    def told(self) -> Recorded:
        state, _, _, _, delay, source, reason, live = self.change
        return Recorded(self.row.id, state, self.attempts, self.code, delay, source, reason, live, self.row.order_key)


class Store(abc.ABC):
    """A database that contains a ledger. Times are on the database's own clock (LG-12).

    Each method is one transaction, which is complete when the method returns. If the method raises a `LedgerError`, the
    error says what happened to the data.
    """

    dialect: ClassVar[Dialect]

    def __init__(self, name: str, settings: LedgerSettings) -> None:
        """Store the arguments and this process's id; `name` is the database's name in errors."""
        self._name = name
        self._settings = settings
        self._closed = False
        self._process = os.getpid()

    # What a database does in its own way.

    @abc.abstractmethod
    async def _run(self, plan: Callable[[], Plan[ResultT]], access: Access, share: float = 1.0) -> ResultT:
        """Run a plan in one transaction; `share` is the part of the setting `timeout` that it may take."""

    @abc.abstractmethod
    def _table(self, columns: Sequence[str], rows: Sequence[Row]) -> tuple[str, dict[str, Any]]:
        """Return a query that returns these rows, and its parameters."""

    @abc.abstractmethod
    async def migrate(self, *, apply: bool) -> tuple[int, int]:
        """Bring the tables to this library's version; return the versions before and after (LG-13).

        With `apply=False` nothing is changed, and older tables raise LedgerSchemaError as well.
        """

    @abc.abstractmethod
    def submit_within(self, connection: Any, submissions: Sequence[Submission]) -> Any:
        """Store operations in the caller's own transaction; the result may be awaitable (LG-9)."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Release the database."""

    @abc.abstractmethod
    async def notify(self, target: str) -> None:
        """Wake the deliverers of a target in other processes, if the database supports that (LG-12)."""

    @abc.abstractmethod
    def listen(self, heard: Callable[[str], None]) -> None:
        """Call `heard` with the target of each notification, from now until `close`, if there are any (LG-12)."""

    async def sweep(self) -> bool:
        """Remove what updates leave behind, if that is much and the database does not do so at once.

        Return whether much remains, because a transaction of someone else may still see it.
        """
        return False

    def _check_usable(self) -> None:
        """Reject a closed store, and the child of a fork."""
        if self._closed:
            raise LedgerUnavailableError(f"{self._name}: the ledger is closed")
        check_process(self._name, self._process)

    # Submitting.

    async def submit(self, submissions: Sequence[Submission]) -> list[Submitted]:
        """Store operations, all or none; return the results in the same order (LG-9)."""
        return await self._run(lambda: self._submitting(submissions), Access.TRANSACTION)

    def _submitting(self, submissions: Sequence[Submission]) -> Plan[list[Submitted]]:
        new: set[str] = set()
        stored: dict[Any, str] = {}
        yield self._key_locks(submissions)
        left = list(submissions)
        while left:  # once, unless what was there is pruned before it is looked up
            inserted = yield [self._insert(some) for some in _batches(left)]
            new |= {id_ for rows in inserted for (id_,) in rows}
            known: list[list[Row]] = []
            if any(each.id not in new for each in left):
                known = yield [self._known(some) for some in _batches(left)]
            for id_, *key, same in (row for rows in known for row in rows):
                if not same:
                    raise LedgerStateError(
                        f"operation {id_} already has the idempotency key {key[-1]!r}, with another request"
                    )
                stored |= {id_: id_, tuple(key): id_}
            left = [each for each in left if each.id not in new and not _found(each, stored)]
        answers = []
        for each in submissions:
            answers.append(Submitted(_found(each, stored) or each.id, new=each.id in new))
            new.discard(each.id)  # a duplicate within a batch is stored once
        return answers

    def _insert(self, submissions: Sequence[Submission]) -> Statement:
        rows, given = self._table(Submission._fields, [*map(_stored, submissions)])
        new = f"SELECT {_GIVEN}, {self._new('not_before')} FROM r WHERE true"
        return Statement(
            f"WITH r ({', '.join(Submission._fields)}) AS ({rows}) {self._inserting(new)} RETURNING id", given
        )

    def _new(self, not_before: str) -> str:
        return _NEW.format(now=self.dialect.now, at=self.dialect.at.format(not_before))

    def _key_locks(self, submissions: Sequence[Submission]) -> list[Statement]:
        """Return the statement that locks the order keys, so that operations of a key are numbered as they commit."""
        keys = sorted({(each.target, each.order_key) for each in submissions if each.order_key is not None})
        if not keys or not self.dialect.key_lock:
            return []
        rows, given = self._table(("target", "order_key"), keys)
        lock = self.dialect.key_lock.format("r.target", "r.order_key")
        return [Statement(f"WITH r (target, order_key) AS ({rows}) SELECT {lock} FROM r", given, answers=False)]

    def statement(self, submission: Submission, style: ParameterStyle | None = None) -> tuple[str, tuple[Any, ...]]:
        """Return the SQL that stores an operation and its parameters, for the caller's own driver (LG-9)."""
        mark = _MARKS.get(style or self.dialect.style)
        if mark is None:
            raise OptionError("style", style, f"one of: {', '.join(_MARKS)}")
        new = f":{_GIVEN.replace(', ', ', :')}, {self._new(':not_before')}"
        insert = self._inserting(f"VALUES ({new})")
        if submission.order_key is not None and self.dialect.key_lock:
            lock = self.dialect.key_lock.format(":target", ":order_key")
            insert = self._inserting(f"SELECT {self._typed(new)} FROM (SELECT {lock}) locked")
        given = {**_stored(submission)._asdict(), **self._times()}
        names = re.findall(PARAMETER, insert)
        numbers = iter(range(1, len(names) + 1))
        return re.sub(PARAMETER, lambda _: mark.format(next(numbers)), insert), tuple(given[name] for name in names)

    def _typed(self, new: str) -> str:
        """Return a list of parameters with their types, which some databases need in a SELECT."""
        return new

    def _times(self) -> dict[str, float]:
        """Return the parameters of statements that stand for the time, if the database has no clock of its own."""
        return {}

    def _inserting(self, new: str) -> str:
        """Return the INSERT of new rows; on a known id or key, the existing row is left unchanged."""
        return f"INSERT INTO {self.dialect.operations} ({_GIVEN}, {_INITIAL}) {new} ON CONFLICT DO NOTHING"

    def _known(self, submissions: Sequence[Submission]) -> Statement:
        columns = ("id", "target", "method", "request", "idempotency_key")
        rows, given = self._table(columns, [tuple(getattr(each, name) for name in columns) for each in submissions])
        found = (
            "SELECT o.id, o.target, o.method, o.idempotency_key, o.request = r.request "
            f"FROM {self.dialect.operations} o JOIN r ON"
        )
        return Statement(
            f"WITH r (id, target, method, request, key) AS ({rows}) {found} o.id = r.id UNION ALL "
            f"{found} o.target = r.target AND o.method = r.method AND o.idempotency_key = r.key AND o.id <> r.id",
            given,
        )

    # Delivering.

    async def claim(
        self,
        target: str,
        limit: int,
        owner: str,
        lease: float,
        without: Collection[str] = (),
        *,
        method: str | None = None,
        methods_without: Collection[str] = (),
    ) -> list[Operation]:
        """Claim ready operations for a target, oldest first, each for a single owner; `lease` is in seconds (LG-6).

        Operations `without` are left to others: those whose policy has one of these texts. If `method` is given, only
        its operations are claimed; none of `methods_without` are.
        """
        d = self.dialect
        others, given = self._without(without, methods_without)
        if method is not None:
            others, given = f"{others} AND o.method = :method", given | {"method": method}
        due = (
            f"SELECT o.seq AS key FROM {d.operations} o "
            f"WHERE o.open AND o.target = :target AND o.due <= {d.now} AND o.next_attempt_at <= {d.now}{others} "
            f"AND {self._unheld()} ORDER BY o.due, o.seq LIMIT :limit{d.skip}"
        )
        claim = Statement(
            f"UPDATE {d.operations} AS o SET state = 'in_progress', lease_owner = :owner, lease_began = {d.clock}, "
            f"lease_until = {d.later.format(d.clock, ':lease')}{d.leased}, lease_token = o.lease_token + 1, "
            f"claimed_from = o.next_attempt_at, next_attempt_at = NULL FROM ({due}) due WHERE o.seq = due.key "
            f"RETURNING seq, {_OPERATION}",
            {"owner": owner, "lease": lease, "target": target, "limit": limit, **given},
        )
        rows = await self._run(lambda: one(claim), Access.STATEMENT, _SOON)
        return [operation_of(row[1:]) for row in sorted(rows, key=lambda row: row[0])]

    def _without(self, policies: Collection[str], methods: Collection[str]) -> tuple[str, dict[str, Any]]:
        """Return a condition that excludes operations `o` with these policies and methods, and its parameters."""
        text, given = "", dict[str, Any]()
        for column, values in (("policy", policies), ("method", methods)):
            if values:
                rows, its = self._table((column,), [(value,) for value in values])
                text, given = f"{text} AND o.{column} NOT IN ({rows})", given | its
        return text, given

    def _unheld(self) -> str:
        """Return whether an operation `o` of `:target` is neither paused nor behind another of its order key."""
        return (
            f"NOT EXISTS (SELECT 1 FROM {self.dialect.paused} WHERE target = :target) "
            f"AND (o.order_key IS NULL OR NOT {self._behind()})"
        )

    def _behind(self) -> str:
        """Return whether an operation `o` is behind another one of its order key that has not ended well."""
        return (
            f"EXISTS (SELECT 1 FROM {self.dialect.operations} p "
            "WHERE p.target = o.target AND p.order_key = o.order_key AND p.seq < o.seq AND p.open)"
        )

    async def set_aside(self, target: str, limit: int) -> None:
        """Set operations aside that are behind others of their order keys, so that claims need not pass over them.

        This is not what keeps the order: claims do. So at worst an operation that is wrongly set aside waits for
        `take_up`, and nothing needs to be locked.
        """
        d = self.dialect
        behind = (
            f"SELECT o.seq AS key FROM {d.operations} o WHERE o.open AND o.target = :target AND o.order_key >= '' "
            f"AND o.next_attempt_at <= {d.now} AND {self._behind()} LIMIT :limit{d.skip}"
        )
        text = (
            f"UPDATE {d.operations} AS o SET claimed_from = o.next_attempt_at, next_attempt_at = NULL "
            f"FROM ({behind}) behind WHERE o.seq = behind.key RETURNING id"
        )
        statement = Statement(text, {"target": target, "limit": limit})
        aside = await self._run(lambda: one(statement), Access.STATEMENT, _SOON)
        if aside:  # what was ahead of them may have ended meanwhile
            await self.take_up([id_ for (id_,) in aside])

    async def take_up(self, ids: Sequence[str] | None = None) -> None:
        """Take up the first operation of each order key, if it was set aside; with `ids`, for their keys only."""
        d = self.dialect
        rows, given = ("", {}) if ids is None else self._table(("id",), [(id_,) for id_ in ids])
        keys = f"JOIN {d.operations} k ON k.target = p.target AND k.order_key = p.order_key WHERE k.id IN ({rows})"
        heads = (
            f"SELECT min(p.seq) AS key FROM {d.operations} p {keys if rows else 'WHERE true'} "
            "AND p.open AND p.order_key >= '' GROUP BY p.target, p.order_key"
        )
        text = (
            f"UPDATE {d.operations} AS o SET next_attempt_at = o.claimed_from, claimed_from = NULL FROM ({heads}) head "
            "WHERE o.seq = head.key AND o.next_attempt_at IS NULL AND o.lease_owner IS NULL AND o.finished IS NULL "
            "RETURNING seq"
        )
        await self._run(lambda: one(Statement(text, given)), Access.STATEMENT, _SOON)

    async def pause(self, target: str) -> None:
        """Let no operations of a target be claimed until `resume`."""
        text = f"INSERT INTO {self.dialect.paused} VALUES (:target) ON CONFLICT DO NOTHING RETURNING target"
        await self._run(lambda: one(Statement(text, {"target": bare_target(target)})), Access.STATEMENT)

    async def resume(self, target: str) -> bool:
        """End a pause; return whether the target was paused."""
        text = f"DELETE FROM {self.dialect.paused} WHERE target = :target RETURNING target"
        return bool(await self._run(lambda: one(Statement(text, {"target": bare_target(target)})), Access.STATEMENT))

    async def extend(self, leases: Sequence[Lease], lease: float) -> set[str]:
        """Extend leases to `lease` seconds from now; return the ids of those still held (LG-6)."""
        d = self.dialect
        held, given = self._held(leases, d.skip)  # the result of a locked row is being recorded
        until = f"lease_until = {d.later.format(d.clock, ':lease')}{d.leased}"
        text = f"{held} UPDATE {d.operations} AS o SET {until} FROM held WHERE o.seq = held.key RETURNING id"
        rows = await self._run(lambda: one(Statement(text, {**given, "lease": lease})), Access.STATEMENT, _SOON)
        return {id_ for (id_,) in rows}

    async def release(self, leases: Sequence[Lease]) -> None:
        """Return claimed operations to the state before their claim (LG-10)."""
        held, given = self._held(leases, self.dialect.lock)
        text = (
            f"{held} UPDATE {self.dialect.operations} AS o "
            "SET state = CASE o.attempts WHEN 0 THEN 'pending' ELSE 'waiting_for_retry' END, "
            f"next_attempt_at = o.claimed_from, {_NO_LEASE} FROM held WHERE o.seq = held.key RETURNING id"
        )
        await self._run(lambda: one(Statement(text, given)), Access.STATEMENT, _SOON)

    def _held(self, leases: Sequence[Lease], lock: str) -> tuple[str, dict[str, Any]]:
        """Return a query for the operations that are held, in an order in which two of them never deadlock."""
        rows, given = self._table(("id", "token"), leases)
        text = (
            f"WITH r (id, token) AS ({rows}), held AS (SELECT o.seq AS key FROM {self.dialect.operations} o "
            f"JOIN r ON o.id = r.id AND o.lease_token = r.token WHERE o.state = 'in_progress' ORDER BY o.id{lock})"
        )
        return text, given

    async def record(self, reports: Sequence[AttemptReport]) -> list[Recorded | LedgerBusyError]:
        """Record the ends of attempts, each under the lock of its row (LG-2)."""
        told = await self._run(lambda: self._record(reports), Access.TRANSACTION)
        ended = [each.id for each in told if each.order_key is not None and each.state in WELL]
        if ended:
            with contextlib.suppress(LedgerError):  # it is recorded; the next operations are taken up somewhat later
                await self.take_up(ended)
        return [*told]

    def _record(self, reports: Sequence[AttemptReport]) -> Plan[list[Recorded]]:
        told: dict[int, Recorded] = {}
        left = list(enumerate(reports))
        while left:  # once, unless there are several reports on one operation
            some = {report.id: (index, report) for index, report in reversed(left)}
            left = [(index, report) for index, report in left if some[report.id][0] != index]
            recorded = yield from self._record_each({id_: report for id_, (_, report) in some.items()})
            told |= {some[each.id][0]: each for each in recorded}
        return [told.get(index) or Recorded(report.id, None) for index, report in enumerate(reports)]

    def _record_each(self, reports: Mapping[str, AttemptReport]) -> Plan[list[Recorded]]:
        rows, given = self._table(("id",), [(id_,) for id_ in reports])
        which = f"JOIN r ON o.id = r.id ORDER BY o.id{self.dialect.lock}"  # ordered, as in `_held`
        [found] = yield [Statement(f"WITH r (id) AS ({rows}), {self._locked(which)}", given)]
        return (yield from self._write([_end(row, reports[row.id]) for row in _Locked.read(found)]))

    def _locked(self, which: str) -> str:
        """Return a query that locks some operations and returns their `_Locked`."""
        *names, _ = _Locked._fields
        selected = ", ".join(f"o.{name}" for name in names)
        return (
            f"locked AS (SELECT {selected} FROM {self.dialect.operations} o {which}) "
            f"SELECT {', '.join(names)}, {self.dialect.clock} FROM locked"
        )

    async def lost(self, target: str | None, policy_of: PolicyOf, limit: int, *, first: bool = False) -> list[Recorded]:
        """End the leases that have expired and record their attempts as lost (LG-6).

        With `first`, only the first operations of the target are examined where there is no index of leases. Since
        operations are claimed in this order, that finds all but those that were claimed in spite of others before them.
        """
        d = self.dialect
        expired = d.expired if first else f"o.open AND o.lease_until <= {d.now}"
        its = {"target": target, "head": _HEAD}
        look = Statement(
            f"SELECT 1 WHERE EXISTS (SELECT 1 FROM {d.operations} o WHERE {expired}){d.disturbed}",
            {name: value for name, value in its.items() if f":{name}" in expired},
        )
        if not await self._run(lambda: one(look), Access.READ):
            return []
        return await self._run(lambda: self._lose(target, policy_of, limit, expired), Access.TRANSACTION)

    def _lose(self, target: str | None, policy_of: PolicyOf, limit: int, expired: str) -> Plan[list[Recorded]]:
        d = self.dialect
        yield [Statement(text, {}, answers=False) for text in d.corrections]
        its = "" if target is None else "AND o.target = :target "
        which = f"WHERE {expired} {its}ORDER BY o.lease_until LIMIT :limit{d.skip}"
        given = {"target": target, "limit": limit, "head": _HEAD}
        [found] = yield [Statement(f"WITH {self._locked(which)}", given)]
        ends = []
        for row in _Locked.read(found):
            ended = row.now if row.lease_until is None else row.lease_until  # from when `ready` counts as well
            change = after_loss(ledger_policy(policy_of(row.policy)), row.standing(ended))
            ends.append(_End(row, row.lease_token, ended, LOST, None, change))
        return (yield from self._write(ends))

    def _write(self, ends: Sequence[_End]) -> Plan[list[Recorded]]:
        """Write the rows of attempts and the new states of their operations together (LG-2)."""
        d = self.dialect
        known = yield from self._late(ends)
        ends = [end._replace(added=(end.row.id, end.token) not in known) for end in ends]
        added = [end for end in ends if end.added]
        late = [end for end in ends if not end.added]
        moved = [end for end in ends if end.moves]
        counted = [end for end in added if not end.moves]
        yield [
            *self._each(
                f"INSERT INTO {d.attempts} (operation_id, number, token, started, ended, code, delay, source) "
                f"SELECT r.id, r.number, r.token, {d.at.format('r.started')}, {d.at.format('r.ended')}, r.code, "
                "r.delay, r.source FROM r",
                [
                    {"id": end.row.id, "number": end.recorded, "token": end.token, "started": end.started}
                    | {"ended": end.ended, "code": end.code}
                    | {"delay": end.change.delay, "source": end.change.source}
                    for end in added
                ],
            ),
            *self._each(
                f"UPDATE {d.attempts} AS a SET code = r.code, ended = {d.at.format('r.ended')} FROM r "
                "WHERE a.operation_id = r.id AND a.token = r.token",
                [{"id": end.row.id, "token": end.token, "code": end.code, "ended": end.ended} for end in late],
            ),
            *self._each(
                f"UPDATE {d.operations} AS o SET attempts = r.attempts, recorded = r.recorded FROM r WHERE o.id = r.id",
                [{"id": end.row.id, "attempts": end.attempts, "recorded": end.recorded} for end in counted],
            ),
            *self._each(
                f"UPDATE {d.operations} AS o SET state = r.state, attempts = r.attempts, recorded = r.recorded, "
                "step = r.step, previous = r.previous, refreshed = r.refreshed, backoff_request_seconds = r.delay, "
                f"last_attempted_at = {d.at.format('r.ended')}, "
                f"next_attempt_at = {d.later.format(d.at.format('r.ended'), 'r.delay')}, code = r.code, "
                f"details = r.details, reason = r.reason, "
                f"began = {d.at.format('r.began')}, finished = {d.at.format('r.finished')}, {_NO_LEASE} "
                "FROM r WHERE o.id = r.id",
                [_moved(end) for end in moved],
            ),
        ]
        return [end.told() for end in ends]

    def _late(self, ends: Sequence[_End]) -> Plan[set[tuple[str, int | None]]]:
        """Return the operations and tokens of late reports whose attempt was recorded as lost."""
        late = [(end.row.id, end.token) for end in ends if not end.change.live and end.token is not None]
        if not late:
            return set()
        rows, given = self._table(("id", "token"), late)
        text = (
            f"WITH r (id, token) AS ({rows}) SELECT a.operation_id, a.token FROM {self.dialect.attempts} a "
            "JOIN r ON a.operation_id = r.id AND a.token = r.token"
        )
        [found] = yield [Statement(text, given)]
        return {(id_, token) for id_, token in found}

    def _each(self, text: str, rows: Sequence[Mapping[str, Any]]) -> list[Statement]:
        """Return the statement that writes these rows, which it calls `r`; none if there are no rows."""
        if not rows:
            return []
        table, given = self._table(tuple(rows[0]), [tuple(row.values()) for row in rows])
        return [Statement(f"WITH r ({', '.join(rows[0])}) AS ({table}) {text}", given, answers=False)]

    async def next_due(
        self, target: str, without: Collection[str] = (), methods_without: Collection[str] = ()
    ) -> float | None:
        """Return the seconds until the next operation for a target may be claimed; None if there is none."""
        others, given = self._without(without, methods_without)
        text = (
            f"SELECT o.next_attempt_at, {self.dialect.now} FROM {self.dialect.operations} o WHERE o.open "
            f"AND o.target = :target AND o.due IS NOT NULL AND o.next_attempt_at IS NOT NULL{others} "
            f"AND {self._unheld()} ORDER BY o.due, o.seq LIMIT 1"
        )
        plan = functools.partial(one, Statement(text, {"target": target, **given}))
        rows = await self._run(plan, Access.READ, _SOON)
        return max(0.0, rows[0][0] - rows[0][1]) if rows and _is_readable("began", rows[0][0]) else None

    async def set_backoff(self, id: str, seconds: float, policy_of: PolicyOf) -> bool:  # noqa: A002 - an operation's
        """Write a backoff in seconds, and its timestamp, atomically; return whether a waiting operation had this id.

        Its maximum is that of a wait that a server asks for (LG-4).
        """
        return await self._run(lambda: self._set_backoff(id, seconds, policy_of), Access.TRANSACTION)

    def _set_backoff(self, operation: str, seconds: float, policy_of: PolicyOf) -> Plan[bool]:
        d = self.dialect
        which = f"WHERE o.id = :id{d.lock}"
        [found] = yield [Statement(f"WITH {self._locked(which)}", {"id": operation})]
        waiting = [row for row in _Locked.read(found) if OperationState(row.state) in CLAIMABLE]
        yield self._each(
            f"UPDATE {d.operations} AS o SET state = 'waiting_for_retry', backoff_request_seconds = r.delay, "
            f"last_attempted_at = {d.at.format('r.ended')}, "
            f"next_attempt_at = {d.later.format(d.at.format('r.ended'), 'r.delay')} FROM r WHERE o.id = r.id",
            [{"id": row.id, "delay": _capped(seconds, policy_of(row.policy)), "ended": row.now} for row in waiting],
        )
        return bool(waiting)

    # Queries.

    async def ready(self, which: Filter, limit: int, policy_of: PolicyOf) -> list[Readiness]:
        """For each operation, return whether it is ready, when it became or will become ready, and why (LG-5)."""
        held = (
            f"CASE WHEN o.state NOT IN ({_texts(CLAIMABLE)}) THEN NULL "
            f"WHEN EXISTS (SELECT 1 FROM {self.dialect.paused} p WHERE p.target = o.target) THEN 'paused' "
            f"WHEN {self._behind()} THEN 'blocked' END"
        )
        columns = f"{', '.join(f'o.{name}' for name in _READY)}, {held}, {self.dialect.now}"
        rows = await self._run(lambda: one(self._select(columns, which, limit)), Access.READ)
        return [readiness(row, policy_of) for row in rows]

    async def find(
        self, which: Filter, limit: int, *, after: str | None = None, newest_first: bool = False
    ) -> list[Operation]:
        """Return the operations that match a filter, oldest or newest first, from the one that follows `after`."""
        select = self._select(_OPERATION, which, limit, after_id=after, newest_first=newest_first)
        return [operation_of(row) for row in await self._run(lambda: one(select), Access.READ)]

    def _select(
        self,
        columns: str,
        which: Filter,
        limit: int,
        after: int | None = None,
        after_id: str | None = None,
        *,
        newest_first: bool = False,
    ) -> Statement:
        d = self.dialect
        given: dict[str, Any] = {"limit": limit}
        begins, terms = "", ["true"]
        if which.ids is not None:
            rows, ids = self._table(("id",), [(id_,) for id_ in which.ids])
            begins, given = f"WITH r (key) AS ({rows}) ", given | ids
            terms.append("o.id IN (SELECT key FROM r)")
        if which.states:
            terms.append(f"o.state IN ({_texts(which.states)})")
            terms += ["o.open"] if WELL.isdisjoint(which.states) else []  # which an index knows
        if which.target is not None:
            rows, its = self._spelled(which.target)
            terms.append(f"o.target IN ({rows})")
            given |= its
        for name in ("method", "idempotency_key", "order_key", "code"):
            if getattr(which, name) is not None:
                terms.append(f"o.{name} = :{name}")
                given[name] = getattr(which, name)
        beyond = "<" if newest_first else ">"
        if after is not None:
            terms.append(f"o.seq {beyond} :after")
            given["after"] = after
        if after_id is not None:
            terms.append(f"o.seq {beyond} (SELECT a.seq FROM {d.operations} a WHERE a.id = :after_id)")
            given["after_id"] = after_id
        if which.older_than is not None:
            terms.append(f"o.created <= {d.later.format(d.now, '-:older_than')}")
            given["older_than"] = which.older_than
        return Statement(
            f"{begins}SELECT {columns} FROM {d.operations} o WHERE {' AND '.join(terms)} "
            f"ORDER BY o.seq {'DESC' if newest_first else 'ASC'} LIMIT :limit",
            given,
        )

    def _spelled(self, target: str) -> tuple[str, dict[str, Any]]:
        """Return a query for the spellings of a target."""
        return self._table(("target",), [(each,) for each in _spellings(target)])

    async def ids(self, which: Filter, limit: int, after: int | None = None) -> tuple[list[str], int | None]:
        """Return the ids of operations that match a filter, oldest first, and what to pass as `after` for the next."""
        rows = await self._run(lambda: one(self._select("o.id, o.seq", which, limit, after)), Access.READ)
        return [id_ for id_, _ in rows], rows[-1][1] if rows else None

    async def attempts(self, id: str) -> list[OperationAttempt]:  # noqa: A002
        """Return an operation's attempts in order."""
        names = "number, started, ended, code, delay, source"
        text = f"SELECT {names} FROM {self.dialect.attempts} WHERE operation_id = :id ORDER BY number"
        rows = await self._run(lambda: one(Statement(text, {"id": id})), Access.READ)
        return [OperationAttempt(**dict(zip(names.split(", "), row, strict=True))) for row in rows]

    async def queue(self, target: str | None) -> Queue:
        """Return how many operations there are in each state, and the age of the oldest unfinished one."""
        queues = await self.queues()
        if target is None:
            return combined(queues.values())
        return queues.get(bare_target(target), Queue({}, 0, 0.0))

    async def queues(self) -> dict[str, Queue]:
        """Return the same for each target.

        Beyond 20,000 rows, the numbers are estimates: from those rows, and the database's own estimate of all.
        """
        return await self._run(self._queues, Access.READ)

    def _queues(self) -> Plan[dict[str, Queue]]:
        d = self.dialect
        some = f"SELECT o.target, o.state, o.created, o.finished FROM {d.operations} o WHERE"
        counted = f"SELECT target, state, count(*), min(created), {d.now} FROM"
        rows_open, rows_done, held, paused = yield [
            Statement(f"{counted} ({some} o.open LIMIT :most) s GROUP BY target, state", {"most": _SAMPLE}),
            Statement(
                f"{counted} ({some} NOT o.open ORDER BY o.finished DESC LIMIT :most) s GROUP BY target, state",
                {"most": _SAMPLE},
            ),
            Statement(
                f"SELECT o.target, count(DISTINCT o.order_key) FROM {d.operations} o WHERE o.open "
                "AND o.order_key >= '' AND o.finished IS NOT NULL GROUP BY o.target",
                {},
            ),
            Statement(f"SELECT target FROM {d.paused}", {}),
        ]
        groups = {True: rows_open, False: rows_done}
        full = {is_open: sum(row[2] for row in rows) >= _SAMPLE for is_open, rows in groups.items()}
        if any(full.values()):
            [estimates] = yield [Statement(d.sizes, {})]
            sizes = {bool(is_open): size for is_open, size in estimates}
            if any(full[is_open] and size < _SAMPLE for is_open, size in sizes.items()):  # older than the rows
                [exact] = yield [Statement(f"SELECT open, count(*) FROM {d.operations} GROUP BY open", {})]
                sizes |= {bool(is_open): size for is_open, size in exact}
            for is_open, size in sizes.items():
                if full[is_open]:
                    groups[is_open] = _scaled(groups[is_open], size)
        return _queues(
            [*groups[True], *groups[False]],
            {target: int(number) for target, number in held},
            [name for (name,) in paused],
            estimated=any(full.values()),
        )

    async def waiting(self, limit: int) -> int:
        """Return how many operations are unfinished, at most `limit`; beyond 20,000, this is an estimate."""
        most = min(limit, _SAMPLE)
        text = (
            f"SELECT count(*) FROM (SELECT 1 FROM {self.dialect.operations} o WHERE o.open AND o.finished IS NULL "
            "LIMIT :limit) w"
        )
        [(number,)] = await self._run(lambda: one(Statement(text, {"limit": most})), Access.READ)
        if number < most or most == limit:
            return int(number)
        return min(limit, (await self.queue(None)).length)

    # Manual actions.

    async def begin_anew(
        self, ids: Sequence[str], states: Iterable[OperationState], request: bytes | None
    ) -> list[str]:
        """Make operations in these states pending again, with a new request if given; return their ids (LG-7)."""
        now = self.dialect.now
        return await self._changed(
            ids,
            "state = 'pending', attempts = 0, step = 0, previous = NULL, refreshed = false, reason = NULL, "
            f"backoff_request_seconds = NULL, next_attempt_at = {now}, began = {now}, finished = NULL, "
            "request = coalesce(:request, request)",
            states,
            request=request,
        )

    async def discard(self, ids: Sequence[str]) -> list[str]:
        """Discard operations that have not succeeded; return their ids (LG-7)."""
        changes = f"state = 'discarded', finished = {self.dialect.now}, next_attempt_at = NULL, {_NO_LEASE}"
        discarded = await self._changed(ids, changes, set(OperationState) - WELL)
        await self.take_up(discarded)
        return discarded

    async def _changed(
        self,
        ids: Sequence[str],
        changes: str,
        states: Iterable[OperationState],
        **given: Any,
    ) -> list[str]:
        """Change operations in these states and return their ids."""

        def change() -> Plan[list[str]]:
            statements = []
            for some in _batches(ids):
                rows, its = self._table(("id",), [(id_,) for id_ in some])
                text = (
                    f"WITH r (key) AS ({rows}) UPDATE {self.dialect.operations} SET {changes} "
                    f"WHERE id IN (SELECT key FROM r) AND state IN ({_texts(states)}) RETURNING id"
                )
                statements.append(Statement(text, {**its, **given}))
            changed = yield statements
            return [id_ for rows in changed for (id_,) in rows]

        return await self._run(change, Access.TRANSACTION)

    async def retarget(self, old: str, new: str, limit: int, *, due: bool = False) -> int:
        """Change the target of operations that have not succeeded or been discarded; return how many (LG-10).

        With `due`, only operations that may be claimed at some time are changed, which an index finds, and only if the
        old target is another spelling of the new one. If the new target already has an operation with the same key, the
        operation is left as it is.
        """
        d = self.dialect
        others = [each for each in _spellings(old) if each != bare_target(new)]
        rows, given = self._table(("target",), [(each,) for each in others])
        states = CLAIMABLE if due else set(OperationState) - WELL
        its = "AND o.due IS NOT NULL AND o.next_attempt_at IS NOT NULL " if due else ""
        moved = (
            f"SELECT o.seq AS key FROM {d.operations} o WHERE o.open AND o.target IN ({rows}) {its}"
            f"AND o.state IN ({_texts(states)}) AND NOT EXISTS (SELECT 1 FROM {d.operations} k "
            "WHERE k.target = :new AND k.method = o.method AND k.idempotency_key = o.idempotency_key) "
            f"LIMIT :limit{d.skip}"
        )
        text = (
            f"UPDATE {d.operations} AS o SET target = :new FROM ({moved}) moved WHERE o.seq = moved.key RETURNING seq"
        )
        statement = Statement(text, {**given, "new": bare_target(new), "limit": limit})
        return len(await self._run(lambda: one(statement), Access.STATEMENT))

    async def prune(self, keep: float, states: Sequence[OperationState], limit: int) -> int:
        """Delete operations in these states that finished more than `keep` seconds ago; return how many (LG-11)."""
        d = self.dialect
        old = (
            f"SELECT o.seq FROM {d.operations} o WHERE {'NOT o.open' if WELL.issuperset(states) else 'true'} "
            f"AND o.state IN ({_texts(states)}) AND o.finished <= {d.later.format(d.now, '-:keep')} "
            f"LIMIT :limit{d.skip}"
        )
        prune = Statement(
            f"DELETE FROM {d.operations} WHERE seq IN ({old}) RETURNING seq", {"keep": keep, "limit": limit}
        )
        return len(await self._run(lambda: one(prune), Access.STATEMENT))


def follow(plan: Plan[ResultT], execute: Callable[[list[Statement]], list[list[Row]]]) -> ResultT:
    """Run a plan, with this function to execute its statements."""
    try:
        statements = next(plan)
        while True:
            statements = plan.send(execute(statements))
    except StopIteration as end:
        result: ResultT = end.value
        return result


def _found(submission: Submission, stored: Mapping[Any, str]) -> str | None:
    """Return the id of the stored operation with a submission's id, or with its idempotency key; None without one."""
    key = submission.target, submission.method, submission.idempotency_key
    return stored.get(submission.id) or (stored.get(key) if key[-1] is not None else None)


def _stored(submission: Submission) -> Submission:
    """Return a submission with its metadata as it is stored."""
    return submission._replace(metadata=encode_metadata(submission.metadata))  # type: ignore[arg-type]


def _spellings(target: str) -> tuple[str, str, str]:
    """Return the spellings of a target, first the one that is stored; previous versions stored what they were given."""
    bare = bare_target(target)
    return bare, f"dns:///{bare}", f"dns:{bare}"


def _batches(rows: Sequence[RowT]) -> list[Sequence[RowT]]:
    return [rows[first : first + _MANY] for first in range(0, len(rows), _MANY)]


def one(statement: Statement) -> Plan[list[Row]]:
    """Return a plan of one statement, whose result is its rows."""
    [rows] = yield [statement]
    return rows


def _end(row: _Locked, report: AttemptReport) -> _End:
    standing = row.standing(row.now)
    if report.failure is None:
        return _End(row, report.token, row.now, "OK", None, after_success(standing, report.token))
    change = after_failure(
        ledger_policy(report.policy),
        standing,
        report.token,
        report.failure,
        draw=report.draw,
        can_refresh=report.can_refresh,
    )
    return _End(row, report.token, row.now, report.failure.code, report.details, change)


def _capped(seconds: float, policy: RetryPolicy) -> float:
    most = ledger_policy(policy).max_server_delay
    return seconds if most is None else min(seconds, most)


def _moved(end: _End) -> dict[str, Any]:
    """Return an operation's new row."""
    change = end.change._asdict()
    return {
        "id": end.row.id,
        "attempts": end.attempts,
        "recorded": end.recorded,
        "began": end.began,
        "ended": end.ended,
        "finished": end.ended if end.change.delay is None else None,
        "code": end.code,
        "details": end.details,
        **{name: change[name] for name in ("step", "previous", "refreshed", "delay", "reason")},
        "state": end.change.state.value,
    }


def _texts(states: Iterable[OperationState]) -> str:
    return ", ".join(sorted(f"'{state.value}'" for state in states))


def operation_of(row: Row) -> Operation:
    """Return the operation in a row with the columns `_COLUMNS`.

    What cannot be read, because other means wrote it, is a `problem` of this operation alone, not an error for the
    whole query.
    """
    values = dict(zip(_COLUMNS, row, strict=True))
    problem = None
    for name, value in values.items():
        if not _is_readable(name, value):
            kind, substitute = _KINDS.get(name, (str, ""))
            problem = f"{name}: expected {kind.__name__}, not {type(value).__name__}"
            values[name] = None if name in _NULLABLE else substitute
    try:
        values["state"] = OperationState(values["state"])
        values["metadata"] = decode_metadata(values["metadata"])
    except ValueError as error:
        problem = problem or str(error)
        values |= {"metadata": (), "state": _STATES.get(values["state"], OperationState.FAILED)}
    return Operation(**values, problem=problem)


def _is_readable(name: str, value: object) -> bool:
    kind, _ = _KINDS.get(name, (str, ""))
    if value is None:
        return name in _NULLABLE
    if kind is float:
        return isinstance(value, float | int) and math.isfinite(value)
    return isinstance(value, kind)


def _scaled(rows: Sequence[Row], size: float) -> list[Row]:
    """Return the counts of a sample, scaled to the number of all rows."""
    sampled = sum(row[2] for row in rows)
    return [(*row[:2], round(row[2] * max(size, sampled) / sampled), *row[3:]) for row in rows]


def _queues(
    rows: Iterable[Row], held: Mapping[str, int], paused: Collection[str], *, estimated: bool
) -> dict[str, Queue]:
    """Return queues from rows that each have a target, a state, its number of operations, the oldest, and now."""
    queues = {target: Queue({}, 0, 0.0, paused=(target,)) for target in paused}
    for target, name, count, created, now in rows:
        state = _STATES.get(name)
        if state is None:  # unreadable
            continue
        age = now - created if state in _UNFINISHED and _is_readable("created", created) else 0.0
        new = Queue({state: count}, count if state in _UNFINISHED else 0, age, estimated=estimated)
        bare = bare_target(target)
        queues[bare] = combined([queues[bare], new]) if bare in queues else new
    for target, number in held.items():
        queues[bare_target(target)] = queues[bare_target(target)]._replace(held_keys=number)
    return queues


def combined(queues: Iterable[Queue]) -> Queue:
    """Return the queue of all of these together."""
    total = Queue({}, 0, 0.0)
    for queue in queues:
        counts = total.counts | {state: total.counts.get(state, 0) + n for state, n in queue.counts.items()}
        total = Queue(
            counts,
            total.length + queue.length,
            max(total.oldest, queue.oldest),
            total.held_keys + queue.held_keys,
            (*total.paused, *queue.paused),
            total.estimated or queue.estimated,
        )
    return total


def check_process(where: str, opener: int) -> None:
    """Reject the child of a fork: SQLite's thread does not exist there, and the parent also uses any connection."""
    if os.getpid() != opener:
        raise LedgerUnavailableError(f"{where}: the ledger was opened before a fork; open one in each process")


def check_version(where: str, found: int, newest: int, *, apply: bool) -> None:
    """Reject tables that are newer than this library, or older ones that must not be changed (LG-13)."""
    if found > newest:
        raise LedgerSchemaError(
            f"{where}: a newer grpc-backoff has upgraded the tables to version {found}; this one knows {newest}"
        )
    if found < newest and not apply:
        problem = f"the tables have version {found} instead of {newest}" if found else "there are no tables yet"
        raise LedgerSchemaError(f"{where}: {problem}; run `grpc-backoff ledger --db URL migrate`")


def readiness(row: Row, policy_of: PolicyOf) -> Readiness:
    """Return whether a row's operation is ready (LG-5).

    The row contains the operation's id, state, policy, step, backoff, last and next attempt, the end of its lease, what
    holds it, and the time now. After a failure, the operation is ready at `last_attempted_at +
    backoff_request_seconds`. If the owner died before it could record these, the operation is ready min(growth, cap)
    after the end of the lease.
    """
    operation, name, policy, step, backoff, last, due, lease_until, held, now = row
    if not all(map(_is_readable, _READY, row)) or name not in _STATES:
        return Readiness(operation, ready=False, at=None, why="unreadable")
    state = OperationState(name)
    if state is OperationState.IN_PROGRESS:
        if lease_until > now:
            return Readiness(operation, ready=False, at=lease_until, why="in progress")
        at = lease_until + fallback(ledger_policy(policy_of(policy)), step + 1)
        return Readiness(operation, at <= now, at, "its owner is gone")
    if state not in CLAIMABLE or held is not None:
        return Readiness(operation, ready=False, at=None, why=held or name)
    if state is OperationState.WAITING and backoff is not None and last is not None:
        due = last + backoff
    return Readiness(operation, due <= now, due, "due" if due <= now else "backoff")
