"""Submitting: an operation, or its idempotency key, is stored once (LG-1, LG-9)."""

from __future__ import annotations

import re
from collections.abc import Coroutine, Mapping, Sequence

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.ledger.errors import LedgerStateError, LedgerUnavailableError
from grpc_backoff.ledger.records import Submission, Submitted
from grpc_backoff.ledger.stores.rows import ADDED, encode_metadata
from grpc_backoff.ledger.stores.statements import PARAMETER, Access, ParameterStyle, Plan, Row, Statement, batches
from grpc_backoff.ledger.stores.store import Store

_MARKS: Mapping[str, str] = {"format": "%s", "qmark": "?", "numeric_dollar": "${}"}
_GIVEN = ", ".join(name for name in Submission._fields if name not in ("not_before", *ADDED))
_INITIAL = "state, attempts, recorded, step, refreshed, lease_token, next_attempt_at, created, began"
_NEW = "'pending', 0, 0, 0, false, 0, CASE WHEN {at} > {now} THEN {at} ELSE {now} END, {now}, {now}"


async def submit(db: Store, submissions: Sequence[Submission]) -> list[Submitted]:
    """Store operations, all or none; return the results in the same order (LG-9).

    COMMIT comes last; if anything fails before that, it is certain that nothing was stored.
    """
    try:
        return await db.run(lambda: plan(db, submissions), Access.TRANSACTION)
    except LedgerUnavailableError as error:
        if error.stored is not None:
            raise
        raise LedgerUnavailableError(f"{error.args[0]}; {remedy(submissions)}", stored=None) from error


def submit_within(
    db: Store, connection: object, submissions: Sequence[Submission], *, blocking: bool = False
) -> list[Submitted] | Coroutine[object, object, list[Submitted]]:
    """Store operations in the caller's own transaction; deliverers hear of them when it commits (LG-9).

    The result is awaitable, unless the database is SQLite, or the connection blocks and `blocking` allows that.
    """
    return db.run_within(connection, lambda: _plan_with_notices(db, submissions), blocking=blocking)


def _plan_with_notices(db: Store, submissions: Sequence[Submission]) -> Plan[list[Submitted]]:
    answers = yield from plan(db, submissions)
    if db.sql.notify:
        yield [Statement(db.sql.notify, {"target": target}) for target in {one.target for one in submissions}]
    return answers


def plan(db: Store, submissions: Sequence[Submission]) -> Plan[list[Submitted]]:
    """Return the transaction of `submit`."""
    new: set[str] = set()
    stored: dict[object, str] = {}
    if (yield from db.look_at_version()):
        _check_added(db, submissions)
    yield _key_locks(db, submissions)
    left = list(submissions)
    while left:  # once, unless what was there is pruned before it is looked up
        inserted = yield [_insert(db, some) for some in batches(left)]
        new |= {id_ for rows in inserted for (id_,) in rows}
        known: list[list[Row]] = []
        if any(submission.id not in new for submission in left):
            known = yield [_known(db, some) for some in batches(left)]
        for id_, *key, same in (row for rows in known for row in rows):
            if not same:
                raise LedgerStateError(
                    f"operation {id_} already has the idempotency key {key[-1]!r}, with another request"
                    + (" or for another target" if db.is_oldest else "")
                )
            stored |= {id_: id_, tuple(key): id_}
        left = [submission for submission in left if submission.id not in new and not _found(submission, stored)]
    answers = []
    for submission in submissions:
        answers.append(Submitted(_found(submission, stored) or submission.id, new=submission.id in new))
        new.discard(submission.id)  # a duplicate within a batch is stored once
    return answers


def _insert(db: Store, submissions: Sequence[Submission]) -> Statement:
    added = _added(submissions)
    insert = _inserting(db, f"SELECT {_new(db, '', added)} FROM r WHERE true", added)
    rows = [*map(_stored, submissions)]
    return db.with_rows(Submission._fields, rows, f"{insert} RETURNING id")


def _check_added(db: Store, submissions: Sequence[Submission]) -> None:
    """Refuse what the tables have no place for (LG-18)."""
    for name in _added(submissions):
        db.check_tables(name)


def _new(db: Store, mark: str, added: Sequence[str]) -> str:
    """Return the values of a new row; `mark` comes before each parameter's name."""
    at = db.sql.at
    new = _NEW.format(now=db.sql.now, at=at.format(f"{mark}not_before"))
    columns = [at.format(f"{mark}{name}") if name == "not_after" else f"{mark}{name}" for name in added]
    return ", ".join([mark + _GIVEN.replace(", ", f", {mark}"), new, *columns])


def _inserting(db: Store, new: str, added: Sequence[str], conflict: str = "DO NOTHING") -> str:
    """Return the INSERT of new rows; on a known id or key, the existing row `o` is left unchanged by default."""
    columns = ", ".join([_GIVEN, _INITIAL, *added])
    return f"INSERT INTO {db.sql.operations} AS o ({columns}) {new} ON CONFLICT {conflict}"


def _known(db: Store, submissions: Sequence[Submission]) -> Statement:
    columns = ("id", "target", "method", "request", "idempotency_key")
    rows = [tuple(getattr(submission, name) for name in columns) for submission in submissions]
    found = (
        "SELECT o.id, o.target, o.method, o.idempotency_key, o.request = r.request AND o.target = r.target "
        f"FROM {db.sql.operations} o JOIN r ON"
    )
    where = "" if db.is_oldest else "o.target = r.target AND "  # there, a key is unique for the method alone
    text = (
        f"{found} o.id = r.id UNION ALL "
        f"{found} {where}o.method = r.method AND o.idempotency_key = r.idempotency_key AND o.id <> r.id"
    )
    return db.with_rows(columns, rows, text)


def _key_locks(db: Store, submissions: Sequence[Submission]) -> list[Statement]:
    """Return the statement that locks the order keys, so that operations of a key are numbered as they commit."""
    keys = sorted({(one.target, one.order_key) for one in submissions if one.order_key is not None})
    if not keys or not db.sql.key_lock:
        return []
    lock = db.sql.key_lock.format("r.target", "r.order_key")
    return [db.with_rows(("target", "order_key"), keys, f"SELECT {lock} FROM r", answers=False)]


def statement(db: Store, submission: Submission, style: ParameterStyle | None = None) -> tuple[str, tuple[object, ...]]:
    """Return the SQL that stores an operation and its parameters, for the caller's own driver (LG-9).

    If another request has the same idempotency key, the database rejects the statement.
    """
    style = db.sql.style if style is None else style
    if not isinstance(style, str) or style not in _MARKS:
        raise OptionError("style", style, f"one of: {', '.join(_MARKS)}")
    mark = _MARKS[style]
    _check_added(db, [submission])
    insert = _insert_alone(db, submission)
    params = {**_stored(submission)._asdict(), **db.times()}
    names = re.findall(PARAMETER, insert)
    numbers = iter(range(1, len(names) + 1))
    return re.sub(PARAMETER, lambda _: mark.format(next(numbers)), insert), tuple(params[name] for name in names)


def _insert_alone(db: Store, submission: Submission) -> str:
    """Return the INSERT that needs no other statement, with parameters written `:name`."""
    added, locked = _added([submission]), ""
    new = _new(db, ":", added)
    if submission.order_key is not None and db.sql.key_lock:
        locked = f" FROM (SELECT {db.sql.key_lock.format(':target', ':order_key')}) locked"
    if submission.idempotency_key is None:
        return _inserting(db, f"SELECT {db.typed(new)}{locked}" if locked else f"VALUES ({new})", added)
    if db.is_oldest:  # right once another process has migrated
        taken = (
            f"SELECT 1 FROM {db.sql.operations} k WHERE k.method = :method AND k.idempotency_key = "
            ":idempotency_key AND k.id <> :id AND (k.request <> :request OR k.target <> :target)"
        )
        new = new.replace(":request", f"CASE WHEN NOT EXISTS ({taken}) THEN :request END")
        return _inserting(db, f"SELECT {db.typed(new)}", added)
    stored = f"SELECT 1 FROM {db.sql.operations} s WHERE s.id = :id"
    conflict = (
        "(target, method, idempotency_key) WHERE idempotency_key IS NOT NULL "
        f"DO UPDATE SET {db.sql.refuse} WHERE o.request <> excluded.request"
    )
    return _inserting(db, f"SELECT {db.typed(new)}{locked} WHERE NOT EXISTS ({stored})", added, conflict)


def remedy(submissions: Sequence[Submission]) -> str:
    """Return what to do if it is not known whether submissions were stored."""
    without = [submission.id for submission in submissions if submission.idempotency_key is None]
    if not without:
        return "submit again with the same idempotency key"
    more = f" and {len(without) - 1} more" if len(without) > 1 else ""
    return f"with an idempotency key, submit it again; without one, look for operation {without[0]}{more} first"


def _added(submissions: Sequence[Submission]) -> list[str]:
    """Return those parts of submissions that the tables of earlier versions have no place for."""
    return [name for name in ADDED if any(getattr(submission, name, None) is not None for submission in submissions)]


def _found(submission: Submission, stored: Mapping[object, str]) -> str | None:
    """Return the id of the stored operation with a submission's id, or with its idempotency key; None without one."""
    key = submission.target, submission.method, submission.idempotency_key
    return stored.get(submission.id) or (stored.get(key) if key[-1] is not None else None)


def _stored(submission: Submission) -> Submission:
    return submission._replace(metadata=encode_metadata(submission.metadata))  # type: ignore[arg-type]
