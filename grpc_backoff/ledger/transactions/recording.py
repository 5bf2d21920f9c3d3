"""Recording: the end of an attempt and what follows it, decided in `transitions` under the row's lock (LG-2)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

from grpc_backoff.base.logs import Log
from grpc_backoff.base.record import NamedTuple
from grpc_backoff.ledger.errors import LedgerBusyError, LedgerStateError
from grpc_backoff.ledger.operation import CLAIMABLE, LOST, WELL, OperationState
from grpc_backoff.ledger.records import AttemptReport, Recorded
from grpc_backoff.ledger.stores.rows import locked_rows
from grpc_backoff.ledger.stores.statements import NO_LEASE, Access, Plan, Statement, one
from grpc_backoff.ledger.stores.store import Store
from grpc_backoff.ledger.transactions import order_keys
from grpc_backoff.ledger.transitions import Change, LockedRow, PolicyOf, after_loss, after_report

_LOG = Log("grpc_backoff")
_HEAD = 1000  # how many of the first operations of a target are examined for expired leases; see `lost`
Result = Recorded | LedgerBusyError | LedgerStateError
"""What became of a report."""


class _End(NamedTuple):
    """The end of an attempt: the operation's row as it was, and the change that follows.

    `added` is False if the attempt's row exists already, because the attempt was recorded as lost.
    """

    row: LockedRow
    token: int | None
    ended: float
    code: str
    details: str | None
    change: Change
    added: bool = True
    response: bytes | None = None

    @classmethod
    def of(cls, row: LockedRow, report: AttemptReport) -> _End:
        """Decide what follows a report."""
        change = after_report(row, report)
        code = "OK" if report.failure is None else report.failure.code
        kept = report.response if change.state is OperationState.SUCCEEDED else None
        return cls(row, report.token, row.now, code, report.details, change, response=kept)

    @property
    def moves(self) -> bool:
        """Whether more than the number of attempts changes."""
        return self.change.live or self.change.state.value != self.row.state

    def values(self) -> dict[str, object]:
        """Return what the attempt's row and the operation's new one contain. A series begins with its first attempt."""
        row, change = self.row, self.change
        started = row.lease_began if change.live and self.token is not None else None
        return change._asdict() | {
            "id": row.id,
            "token": self.token,
            "state": change.state.value,
            "attempts": row.attempts + self.added,
            "recorded": row.recorded + self.added,
            "started": started,
            "began": row.began if row.attempts else started or self.ended,
            "ended": self.ended,
            "finished": self.ended if change.delay is None else None,
            "code": self.code,
            "details": self.details,
            "response": self.response,
        }

    def result(self) -> Recorded:
        """Return the result of recording it."""
        (state, _, _, _, delay, source, reason, live), row = self.change, self.row
        attempts = row.attempts + self.added
        return Recorded(row.id, state, attempts, self.code, delay, source, reason, live, row.order_key)


async def record_ends(db: Store, reports: Sequence[AttemptReport]) -> list[Result]:
    """Record the ends of attempts, each under the lock of its row (LG-2).

    The result of a report whose row cannot be read, or is rejected by the database, is an error; so is that of a row
    that another process has locked, if the database locks rows. The others are recorded.
    """
    done = await _record_plain(db, [report for report in reports if _is_plain(report)])
    outcomes = [done.get((report.id, report.token)) if _is_plain(report) else None for report in reports]
    rest = [report for report, answer in zip(reports, outcomes, strict=True) if answer is None]
    others = iter(await _record_all(db, rest) if rest else ())
    return [answer or next(others) for answer in outcomes]


def _is_plain(report: AttemptReport) -> bool:
    """Return whether a report is about a success under a lease, whose response is not kept: nothing is to decide."""
    return report.failure is None and report.token is not None and report.response is None


async def _record_plain(db: Store, reports: Sequence[AttemptReport]) -> dict[tuple[str, int | None], Recorded]:
    """Record those of plain reports that one statement can record, if the database has one; return which, by lease."""
    if not reports or not db.sql.succeeded or db.is_oldest:  # whose tables have no reason
        return {}
    leases = [(report.id, report.token) for report in reports]
    try:
        succeeded = db.with_rows(("id", "token"), leases, db.sql.succeeded)
        found = await db.run(lambda: one(succeeded), Access.LIMITED)
    except (LedgerBusyError, LedgerStateError):  # about one of them; nothing was written
        return {}
    await order_keys.take_up_after(db, [id_ for id_, _, _, order_key in found if order_key is not None])
    state = OperationState.SUCCEEDED
    return {
        (id_, token): Recorded(id_, state, attempts, "OK", live=True, order_key=order_key)
        for id_, token, attempts, order_key in found
    }


async def _record_all(db: Store, reports: Sequence[AttemptReport]) -> Sequence[Result]:
    """Record the ends of attempts in one transaction or, if that fails because of one of them, one by one."""
    try:
        outcomes = await db.run(lambda: _record(db, reports), Access.TRANSACTION)
    except db.of_rows as error:
        if len(reports) == 1:
            return [error]
        return [(await record_ends(db, [report]))[0] for report in reports]
    recorded = [outcome for outcome in outcomes if isinstance(outcome, Recorded)]
    ended = [outcome.id for outcome in recorded if outcome.order_key is not None and outcome.state in WELL]
    await order_keys.take_up_after(db, ended)
    return outcomes


def _unreadable(operation: str, problem: str) -> LedgerStateError:
    return LedgerStateError(f"the row of operation {operation} cannot be read: {problem}; nothing was changed")


def _record(db: Store, reports: Sequence[AttemptReport]) -> Plan[list[Recorded | LedgerStateError]]:
    outcomes: dict[int, Recorded | LedgerStateError] = {}
    left = list(enumerate(reports))
    while left:  # once, unless there are several reports on one operation
        some = {report.id: (index, report) for index, report in reversed(left)}
        left = [(index, report) for index, report in left if some[report.id][0] != index]
        which = f"JOIN r ON o.id = r.id ORDER BY o.id{db.sql.lock}"  # ordered, so that two never deadlock
        text = f", {_locked(db, which)}"
        [found] = yield [db.with_rows(("id",), [(id_,) for id_ in some], text)]
        read, problems = locked_rows(found)
        recorded = yield from _write(db, [_End.of(row, some[row.id][1]) for row in read])
        outcomes |= {some[report.id][0]: report for report in recorded}
        outcomes |= {some[id_][0]: _unreadable(id_, problem) for id_, problem in problems.items()}
    return [outcomes.get(index) or Recorded(report.id, None) for index, report in enumerate(reports)]


async def lost(db: Store, target: str, policy_of: PolicyOf, limit: int, *, first: bool = False) -> list[Recorded]:
    """End the leases that have expired and record their attempts as lost (LG-6).

    With `first`, only the first operations of the target are examined where there is no index of leases. Since
    operations are claimed in this order, that finds all but those that were claimed in spite of others before them.
    """
    expired = db.sql.expired if first and not db.is_oldest else f"{db.open('o')} AND o.lease_until <= {db.sql.now}"
    params = {"head": _HEAD, "limit": limit} | db.from_floor(target)[1]
    disturbed = "".join(f" OR EXISTS (SELECT 1 FROM {db.sql.operations} WHERE {early})" for early in db.sql.early)
    look = f"SELECT 1 WHERE EXISTS (SELECT 1 FROM {db.sql.operations} o WHERE {expired}){disturbed}"
    if not await db.rows(look, params, Access.READ):
        return []
    late, order = f"WHERE {expired} AND o.target = :target", f"ORDER BY o.lease_until LIMIT :limit{db.sql.skip}"
    try:
        return await db.run(lambda: _lose(db, policy_of, f"{late} {order}", params), Access.TRANSACTION)
    except LedgerStateError:  # about one of them, so that each is tried by itself
        text = f"SELECT o.id FROM {db.sql.operations} o {late} ORDER BY o.lease_until LIMIT :limit"
        ids = [id_ for (id_,) in await db.rows(text, params, Access.READ)]
    outcomes, single = [], f"{late} AND o.id = :id {order}"
    for id_ in ids:
        try:
            outcomes += await db.run(partial(_lose, db, policy_of, single, params | {"id": id_}), Access.TRANSACTION)
        except LedgerStateError as error:
            _log_once(db, id_, error)
    return outcomes


def _log_once(db: Store, operation: str, error: LedgerStateError) -> None:
    """Log that a lost attempt cannot be recorded, once per operation, because each look finds it again."""
    if operation not in db.unrecordable:
        db.unrecordable.add(operation)
        _LOG.error("operation %s: its lease has expired, but that cannot be recorded: %s", operation, error)


def _lose(db: Store, policy_of: PolicyOf, which: str, params: Mapping[str, object]) -> Plan[list[Recorded]]:
    yield [
        Statement(f"UPDATE {db.sql.operations} SET {again} WHERE {early}", {}, answers=False)
        for early, again in db.sql.early.items()
    ]
    [found] = yield [Statement(f"WITH {_locked(db, which)}", params)]
    ends = []
    read, problems = locked_rows(found)
    for id_, problem in problems.items():
        _log_once(db, id_, _unreadable(id_, problem))
    for row in read:
        ended = row.now if row.lease_until is None else row.lease_until  # from when `ready` counts as well
        change = after_loss(policy_of(row.policy), row, ended)
        ends.append(_End(row, row.lease_token, ended, LOST, None, change))
    return (yield from _write(db, ends))


async def set_backoff(db: Store, id: str, seconds: float, policy_of: PolicyOf) -> bool:  # noqa: A002 - an operation's
    """Write a backoff in seconds, and its timestamp, atomically; return whether a waiting operation had this id.

    Its maximum is that of a wait that a server asks for (LG-4).
    """
    return await db.run(lambda: _set_backoff(db, id, seconds, policy_of), Access.TRANSACTION)


def _set_backoff(db: Store, operation: str, seconds: float, policy_of: PolicyOf) -> Plan[bool]:
    which = f"WHERE o.id = :id{db.sql.lock}"
    [found] = yield [Statement(f"WITH {_locked(db, which)}", {"id": operation})]
    waiting = [row for row in locked_rows(found)[0] if OperationState(row.state) in CLAIMABLE]
    delays = [(row, policy_of(row.policy).max_server_delay or 0.0) for row in waiting]
    yield _each(
        db,
        f"UPDATE {db.sql.operations} AS o SET state = 'waiting_for_retry', backoff_request_seconds = r.delay, "
        f"last_attempted_at = {db.sql.at.format('r.ended')}, "
        f"next_attempt_at = {db.sql.later.format(db.sql.at.format('r.ended'), 'r.delay')} FROM r WHERE o.id = r.id",
        [{"id": row.id, "delay": min(seconds, most), "ended": row.now} for row, most in delays],
    )
    return bool(waiting)


def _locked(db: Store, which: str) -> str:
    """Return a query that locks some operations and returns their `LockedRow`."""
    *names, _ = LockedRow._fields
    columns = [db.order_key("o") if name == "order_key" else f"o.{name}" for name in names]
    return (
        f"locked ({', '.join(names)}) AS "
        f"(SELECT {', '.join(columns)} FROM {db.sql.operations} o {which}) "
        f"SELECT {', '.join(names)}, {db.sql.clock} FROM locked"
    )


def _write(db: Store, ends: Sequence[_End]) -> Plan[list[Recorded]]:
    """Write the rows of attempts and the new states of their operations together (LG-2)."""
    reason = "" if db.is_oldest else "reason = r.reason, "
    known = yield from _late(db, ends)
    ends = [end._replace(added=(end.row.id, end.token) not in known) for end in ends]
    written = [(end, end.values()) for end in ends]
    at, ended = db.sql.at.format, db.sql.at.format("r.ended")
    due = db.sql.later.format(ended, "r.delay")
    yield [
        *_each(
            db,
            f"INSERT INTO {db.sql.attempts} (operation_id, number, token, started, ended, code, delay, source) "
            f"SELECT r.id, r.recorded, r.token, {at('r.started')}, {ended}, r.code, r.delay, r.source FROM r",
            [values for end, values in written if end.added],
        ),
        *_each(
            db,
            f"UPDATE {db.sql.attempts} AS a SET code = r.code, ended = {ended} FROM r "
            "WHERE a.operation_id = r.id AND a.token = r.token",
            [values for end, values in written if not end.added],
        ),
        *_each(
            db,
            f"UPDATE {db.sql.operations} AS o SET attempts = r.attempts, recorded = r.recorded "
            "FROM r WHERE o.id = r.id",
            [values for end, values in written if end.added and not end.moves],
        ),
        *_each(
            db,
            f"UPDATE {db.sql.operations} AS o SET state = r.state, attempts = r.attempts, recorded = r.recorded, "
            "step = r.step, previous = r.previous, refreshed = r.refreshed, backoff_request_seconds = r.delay, "
            f"last_attempted_at = {ended}, next_attempt_at = {due}, code = r.code, details = r.details, {reason}"
            f"began = {at('r.began')}, finished = {at('r.finished')}, {NO_LEASE} FROM r WHERE o.id = r.id",
            [values for end, values in written if end.moves],
        ),
        *_each(
            db,
            f"UPDATE {db.sql.operations} AS o SET response = r.response FROM r WHERE o.id = r.id",
            [values for end, values in written if end.response is not None],
        ),
    ]
    return [end.result() for end in ends]


def _late(db: Store, ends: Sequence[_End]) -> Plan[set[tuple[str, int | None]]]:
    """Return the operations and tokens of late reports whose attempt was recorded as lost."""
    late = [(end.row.id, end.token) for end in ends if not end.change.live and end.token is not None]
    if not late:
        return set()
    text = (
        f"SELECT a.operation_id, a.token FROM {db.sql.attempts} a JOIN r ON a.operation_id = r.id AND a.token = r.token"
    )
    [found] = yield [db.with_rows(("id", "token"), late, text)]
    return {(id_, token) for id_, token in found}


def _each(db: Store, text: str, rows: Sequence[Mapping[str, object]]) -> list[Statement]:
    """Return the statement that writes these rows, of which it reads `r.column`; none if there are no rows."""
    if not rows:
        return []
    columns = [*dict.fromkeys(re.findall(r"\br\.(\w+)", text))]
    return [db.with_rows(columns, [[row[name] for name in columns] for row in rows], text, answers=False)]
