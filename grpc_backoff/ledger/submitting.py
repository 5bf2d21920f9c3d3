"""Submitting: an operation, or its idempotency key, is stored once (LG-1, LG-9)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.ledger.errors import LedgerStateError, LedgerUnavailableError
from grpc_backoff.ledger.records import Submission, Submitted
from grpc_backoff.ledger.rows import LATER, encode_metadata
from grpc_backoff.ledger.statements import PARAMETER, Access, ParameterStyle, Plan, Row, Statement, batches
from grpc_backoff.ledger.store import Store

_MARKS: Mapping[str, str] = {"format": "%s", "qmark": "?", "numeric_dollar": "${}"}
_GIVEN = ", ".join(name for name in Submission._fields if name not in ("not_before", *LATER))
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


def plan(db: Store, submissions: Sequence[Submission]) -> Plan[list[Submitted]]:
    """Return the transaction of `submit`."""
    new: set[str] = set()
    stored: dict[object, str] = {}
    if (yield from db.look_at_version()):
        _check_later(db, submissions)
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
    later = _later(submissions)
    insert = _inserting(db, f"SELECT {_new(db, '', later)} FROM r WHERE true", later)
    rows = [*map(_stored, submissions)]
    return db.with_rows(Submission._fields, rows, f"{insert} RETURNING id")


def _check_later(db: Store, submissions: Sequence[Submission]) -> None:
    """Refuse what the tables have no place for (LG-18)."""
    for name in _later(submissions):
        db.check_tables(name)


def _new(db: Store, mark: str, later: Sequence[str]) -> str:
    """Return the values of a new row; `mark` comes before each parameter's name."""
    at = db.sql.at
    new = _NEW.format(now=db.sql.now, at=at.format(f"{mark}not_before"))
    columns = [at.format(f"{mark}{name}") if name == "not_after" else f"{mark}{name}" for name in later]
    return ", ".join([mark + _GIVEN.replace(", ", f", {mark}"), new, *columns])


def _inserting(db: Store, new: str, later: Sequence[str], conflict: str = "DO NOTHING") -> str:
    """Return the INSERT of new rows; on a known id or key, the existing row `o` is left unchanged by default."""
    columns = ", ".join([_GIVEN, _INITIAL, *later])
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
    _check_later(db, [submission])
    later, locked = _later([submission]), ""
    new = _new(db, ":", later)
    if submission.order_key is not None and db.sql.key_lock:
        locked = f" FROM (SELECT {db.sql.key_lock.format(':target', ':order_key')}) locked"
    insert = _inserting(db, f"SELECT {db.typed(new)}{locked}" if locked else f"VALUES ({new})", later)
    if submission.idempotency_key is not None and db.is_oldest:  # right once another process has migrated
        taken = (
            f"SELECT 1 FROM {db.sql.operations} k WHERE k.method = :method AND k.idempotency_key = "
            ":idempotency_key AND k.id <> :id AND (k.request <> :request OR k.target <> :target)"
        )
        new = new.replace(":request", f"CASE WHEN NOT EXISTS ({taken}) THEN :request END")
        insert = _inserting(db, f"SELECT {db.typed(new)}", later)
    elif submission.idempotency_key is not None:
        stored = f"SELECT 1 FROM {db.sql.operations} s WHERE s.id = :id"
        conflict = (
            "(target, method, idempotency_key) WHERE idempotency_key IS NOT NULL "
            f"DO UPDATE SET {db.sql.refuse} WHERE o.request <> excluded.request"
        )
        select = f"SELECT {db.typed(new)}{locked} WHERE NOT EXISTS ({stored})"
        insert = _inserting(db, select, later, conflict)
    params = {**_stored(submission)._asdict(), **db.times()}
    names = re.findall(PARAMETER, insert)
    numbers = iter(range(1, len(names) + 1))
    return re.sub(PARAMETER, lambda _: mark.format(next(numbers)), insert), tuple(params[name] for name in names)


def remedy(submissions: Sequence[Submission]) -> str:
    """Return what to do if it is not known whether submissions were stored."""
    without = [submission.id for submission in submissions if submission.idempotency_key is None]
    if not without:
        return "submit again with the same idempotency key"
    more = f" and {len(without) - 1} more" if len(without) > 1 else ""
    return f"with an idempotency key, submit it again; without one, look for operation {without[0]}{more} first"


def _later(submissions: Sequence[Submission]) -> list[str]:
    """Return those parts of submissions that the tables of earlier versions have no place for."""
    return [name for name in LATER if any(getattr(submission, name, None) is not None for submission in submissions)]


def _found(submission: Submission, stored: Mapping[object, str]) -> str | None:
    """Return the id of the stored operation with a submission's id, or with its idempotency key; None without one."""
    key = submission.target, submission.method, submission.idempotency_key
    return stored.get(submission.id) or (stored.get(key) if key[-1] is not None else None)


def _stored(submission: Submission) -> Submission:
    """Return a submission with its metadata as it is stored."""
    return submission._replace(metadata=encode_metadata(submission.metadata))  # type: ignore[arg-type]
