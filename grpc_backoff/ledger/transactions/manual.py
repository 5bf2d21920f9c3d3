"""Manual actions: pause, replay, resolve, discard, retarget and prune (LG-7, LG-8, LG-10, LG-11)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence

from grpc_backoff.config.target import bare_target
from grpc_backoff.ledger.operation import CLAIMABLE, WELL, OperationState
from grpc_backoff.ledger.stores.statements import BATCH, NO_LEASE, Access, Plan, Statement, batches, texts
from grpc_backoff.ledger.stores.store import LONG_AGO, Store, spellings
from grpc_backoff.ledger.transactions import order_keys


async def pause(db: Store, target: str) -> None:
    """Let no operations of a target be claimed until `resume`."""
    if await db.still_oldest():
        db.check_tables("a pause")
    text = f"INSERT INTO {db.sql.pauses} VALUES (:target) ON CONFLICT DO NOTHING RETURNING target"
    await db.rows(text, {"target": bare_target(target)})


async def resume(db: Store, target: str) -> bool:
    """End a pause; return whether the target was paused."""
    if await db.still_oldest():
        return False
    text = f"DELETE FROM {db.sql.pauses} WHERE target = :target RETURNING target"
    return bool(await db.rows(text, {"target": bare_target(target)}))


async def begin_anew(
    db: Store, ids: Sequence[str], states: Iterable[OperationState], request: bytes | None
) -> list[str]:
    """Make operations in these states pending again, with a new request if given; return their ids (LG-7).

    They no longer expire.
    """
    now = db.sql.now
    changes = (
        "state = 'pending', attempts = 0, step = 0, previous = NULL, refreshed = false, "
        f"backoff_request_seconds = NULL, next_attempt_at = {now}, began = {now}, finished = NULL, "
        "request = coalesce(:request, request)"
    )
    if not await db.still_oldest():
        changes += ", not_after = NULL, reason = NULL"
    return await _changed(db, ids, changes, states, request=request)


async def discard(db: Store, ids: Sequence[str]) -> list[str]:
    """Discard operations that have not succeeded; return their ids (LG-7)."""
    changes = f"state = 'discarded', finished = {db.sql.now}, next_attempt_at = NULL, {NO_LEASE}"
    discarded = await _changed(db, ids, changes, set(OperationState) - WELL)
    await order_keys.take_up_after(db, discarded)
    return discarded


async def _changed(
    db: Store, ids: Sequence[str], changes: str, states: Iterable[OperationState], **fields: object
) -> list[str]:
    def change() -> Plan[list[str]]:
        statements = []
        for some in batches(ids):
            rows, column_params = db.column(some)
            where = f"id IN ({rows}) AND state IN ({texts(states)})"
            text = f"UPDATE {db.sql.operations} SET {changes} WHERE {where} RETURNING id"
            statements.append(Statement(text, {**column_params, **fields}))
        changed = yield statements
        return [id_ for rows in changed for (id_,) in rows]

    return await db.run(change, Access.TRANSACTION)


async def retarget(db: Store, old: str, new: str, limit: int, *, due: bool = False) -> int:
    """Change the target of operations that have not succeeded, expired or been discarded; return how many (LG-10).

    With `due`, only operations that may be claimed at some time are changed, which an index finds, and only if the
    old target is another spelling of the new one. If the new target already has an operation with the same key, the
    operation is left as it is.
    """
    # Not a query of rows: with one, PostgreSQL may examine the operations of all targets.
    olds = {f"old{index}": spelling for index, spelling in enumerate(spellings(old)) if spelling != bare_target(new)}
    states = CLAIMABLE if due else set(OperationState) - WELL
    condition = f"AND {db.due} IS NOT NULL AND o.next_attempt_at IS NOT NULL " if due else ""
    moved = (
        f"SELECT o.seq AS key FROM {db.sql.operations} o "
        f"WHERE {db.open('o')} AND o.target IN (:{', :'.join(olds)}) {condition}"
        f"AND o.state IN ({texts(states)}) AND NOT EXISTS (SELECT 1 FROM {db.sql.operations} k "
        "WHERE k.target = :new AND k.method = o.method AND k.idempotency_key = o.idempotency_key) "
        f"LIMIT :limit{db.sql.skip}"
    )
    text = (
        f"UPDATE {db.sql.operations} AS o SET target = :new FROM ({moved}) moved WHERE o.seq = moved.key RETURNING seq"
    )
    numbers = await db.rows(text, {**olds, "new": bare_target(new), "limit": limit})
    if numbers:
        db.became_due_earlier()
    return len(numbers)


async def in_batches(change: Callable[[int], Awaitable[int]]) -> int:
    """Repeat a change of up to this many operations until none is left; return how many were changed."""
    total, changed = 0, BATCH
    while changed == BATCH:
        changed = await change(BATCH)
        total += changed
    return total


async def prune(db: Store, keep: float, states: Sequence[OperationState], limit: int) -> int:
    """Delete operations in these states that finished more than `keep` seconds ago; return how many (LG-11)."""
    ended = f"NOT {db.open('o')}" if WELL.issuperset(states) else "true"
    old = (
        f"SELECT o.seq FROM {db.sql.operations} o WHERE {ended} "
        f"AND o.state IN ({texts(states)}) AND o.finished <= {db.sql.later.format(db.sql.now, '-:keep')} "
        f"LIMIT :limit{db.sql.skip}"
    )
    text = f"DELETE FROM {db.sql.operations} WHERE seq IN ({old}) RETURNING seq"
    return len(await db.rows(text, {"keep": min(keep, LONG_AGO), "limit": limit}))
