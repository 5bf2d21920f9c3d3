"""Queries: operations by filter, their readiness, their attempts and their outcomes (LG-5, LG-19)."""

from __future__ import annotations

from grpc_backoff.ledger.operation import CLAIMABLE, WELL, Operation, OperationAttempt, OperationOutcome, OperationState
from grpc_backoff.ledger.records import Filter, Readiness
from grpc_backoff.ledger.stores.rows import STATES, is_readable, operation_of
from grpc_backoff.ledger.stores.statements import Access, Row, texts
from grpc_backoff.ledger.stores.store import LONG_AGO, Store, spellings
from grpc_backoff.ledger.transitions import PolicyOf, fallback

_ATTEMPT = ("number", "started", "ended", "code", "delay", "source")
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


async def ready(db: Store, which: Filter, limit: int, policy_of: PolicyOf) -> list[Readiness]:
    """For each operation, return whether it is ready, when it became or will become ready, and why (LG-5)."""
    obstacle = (
        f"CASE WHEN o.state NOT IN ({texts(CLAIMABLE)}) THEN NULL "
        f"WHEN EXISTS (SELECT 1 FROM {db.paused_targets} p WHERE p.target = o.target) THEN 'paused' "
        f"WHEN {db.blocked()} THEN 'blocked' END"
    )
    columns = f"{', '.join(f'o.{name}' for name in _READY)}, {obstacle}, {db.sql.now}"
    return [_readiness(row, policy_of) for row in await _select(db, columns, which, limit)]


def _readiness(row: Row, policy_of: PolicyOf) -> Readiness:
    """Return whether a row's operation is ready (LG-5).

    The row contains the columns `_READY`, what is in its way, and the time now. After a failure, the operation is
    ready at `last_attempted_at + backoff_request_seconds`. If the owner died before it could record these, the
    operation is ready min(growth, cap) after the end of the lease.
    """
    operation, name, policy, step, backoff, last, due, lease_until, obstacle, now = row
    if not all(map(is_readable, _READY, row)) or name not in STATES:
        return Readiness(operation, ready=False, at=None, why="unreadable")
    state = OperationState(name)
    if state is OperationState.IN_PROGRESS and lease_until is not None:
        if lease_until > now:
            return Readiness(operation, ready=False, at=lease_until, why="in progress")
        at = lease_until + fallback(policy_of(policy), step + 1)
        return Readiness(operation, at <= now, at, "its owner is gone")
    if state not in CLAIMABLE or obstacle is not None or due is None:  # without a time it is set aside
        return Readiness(operation, ready=False, at=None, why=obstacle or name)
    if state is OperationState.WAITING and backoff is not None and last is not None:
        due = last + backoff
    return Readiness(operation, due <= now, due, "due" if due <= now else "backoff")


async def find(
    db: Store, which: Filter, limit: int, *, after: str | None = None, newest_first: bool = False
) -> list[Operation]:
    """Return the operations that match a filter, oldest or newest first, from the one that follows `after`."""
    rows = await _select(db, db.operation, which, limit, after_id=after, newest_first=newest_first)
    return [*map(operation_of, rows)]


async def ids(db: Store, which: Filter, limit: int, after: int | None = None) -> tuple[list[str], int | None]:
    """Return the ids of operations that match a filter, oldest first, and what to pass as `after` for the next."""
    rows = await _select(db, "o.id, o.seq", which, limit, after=after)
    return [id_ for id_, _ in rows], rows[-1][1] if rows else None


async def _select(
    db: Store,
    columns: str,
    which: Filter,
    limit: int,
    *,
    after: int | None = None,
    after_id: str | None = None,
    newest_first: bool = False,
) -> list[Row]:
    beyond, order = ("<", "DESC") if newest_first else (">", "ASC")
    equal = ("method", "idempotency_key", "order_key", "code")
    age = None if which.older_than is None else min(which.older_than, LONG_AGO)
    parts = {"older_than": age, "after": after, "after_id": after_id} | {name: getattr(which, name) for name in equal}
    conditions = {name: f"o.{name} = :{name}" for name in equal} | {
        "order_key": f"{db.order_key('o')} = :order_key",
        "after": f"o.seq {beyond} :after",
        "after_id": f"o.seq {beyond} (SELECT a.seq FROM {db.sql.operations} a WHERE a.id = :after_id)",
        "older_than": f"o.created <= {db.sql.later.format(db.sql.now, '-:older_than')}",
    }
    params: dict[str, object] = {name: value for name, value in parts.items() if value is not None}
    terms = ["true", *(conditions[name] for name in params)]
    if which.states:
        terms.append(f"o.state IN ({texts(which.states)})")
        terms += [db.open("o")] if WELL.isdisjoint(which.states) else []  # which an index knows
    targets = None if which.target is None else spellings(which.target)
    for name, values in (("id", None if which.ids is None else db.possible(which.ids)), ("target", targets)):
        if values is not None:
            rows, column_params = db.column(values, name)
            terms.append(f"o.{name} IN ({rows})")
            params |= column_params
    which_rows = f"WHERE {' AND '.join(terms)} ORDER BY o.seq {order} LIMIT :limit"
    text = f"SELECT {columns} FROM {db.sql.operations} o {which_rows}"
    return await db.rows(text, {**params, "limit": limit}, Access.READ)


async def outcome(db: Store, id: str) -> OperationOutcome | None:  # noqa: A002
    """Return how an operation stands, with its response if that is stored; None if there is no such operation."""
    response = "NULL" if await db.still_oldest() else "response"
    text = f"SELECT id, state, attempts, code, details, {response} FROM {db.sql.operations} WHERE id = :id"
    for key, state, attempts, code, details, kept in await db.rows(text, {"id": id}, Access.READ):
        standing = STATES.get(state, STATES["pending"])
        return OperationOutcome(id=key, state=standing, attempts=attempts, code=code, details=details, response=kept)
    return None


async def attempts(db: Store, id: str) -> list[OperationAttempt]:  # noqa: A002
    """Return an operation's attempts in order."""
    text = f"SELECT {', '.join(_ATTEMPT)} FROM {db.sql.attempts} WHERE operation_id = :id ORDER BY number"
    rows = await db.rows(text, {"id": id}, Access.READ)
    return [OperationAttempt(**dict(zip(_ATTEMPT, row, strict=True))) for row in rows]
