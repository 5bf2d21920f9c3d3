"""Claiming: each operation has a single owner for as long as its lease lasts (LG-6)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from grpc_backoff.ledger.operation import CLAIMABLE, Operation
from grpc_backoff.ledger.records import Lease
from grpc_backoff.ledger.stores.rows import is_readable, operation_of
from grpc_backoff.ledger.stores.statements import NO_LEASE, Access, texts
from grpc_backoff.ledger.stores.store import SOON, Store
from grpc_backoff.ledger.transactions import order_keys

_AFTER = "CASE WHEN o.lease_token < 9223372036854775807 THEN o.lease_token + 1 ELSE 1 END"
"""The number of a claim; after the largest that a database can store, they begin anew."""
_BACK = (
    "state = CASE o.attempts WHEN 0 THEN 'pending' ELSE 'waiting_for_retry' END, "
    f"next_attempt_at = o.claimed_from, {NO_LEASE}"
)
"""The changes that return an operation to the state before its claim."""
_SLACK = 10.0  # seconds before the first operation that is due, from which on claims look


async def claim(
    db: Store,
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
    ahead, params = db.from_floor(target)
    others, other_params = _without(db, without, methods_without)
    if method is not None:
        others, params = f"{others} AND o.method = :method", params | {"method": method}
    due = (
        f"SELECT o.seq AS key FROM {db.sql.operations} o WHERE {ahead} "
        f"AND {db.due} <= {db.sql.now} AND o.next_attempt_at <= {db.sql.now}{others} "
        f"AND {_claimable(db)} ORDER BY {db.due}, o.seq LIMIT :limit{db.sql.skip}"
    )
    return await _change(
        db,
        f"UPDATE {db.sql.operations} AS o SET state = 'in_progress', lease_owner = :owner, "
        f"lease_began = {db.sql.clock}, {db.sql.lease}, lease_token = {_AFTER}, "
        f"claimed_from = o.next_attempt_at, next_attempt_at = NULL FROM ({due}) due WHERE o.seq = due.key",
        {"owner": owner, "lease": lease, "limit": limit, **params, **other_params},
    )


async def reclaim(db: Store, target: str, owner: str, lease: float, held: Collection[Lease]) -> list[Operation]:
    """Return what the owner has claimed and does not know of, since the database's answer was lost, oldest first.

    The leases are extended to `lease` seconds from now. `held` are those that the owner knows of. What was to be
    executed before now is given back instead, so that `expire` ends it (LG-17).
    """
    ahead, params = db.from_floor(target)
    known, column_params = db.column([lease.id for lease in held])
    due = f"{db.open('o')} AND o.target = :target" if db.is_oldest else f"{ahead} AND {db.due} <= {db.sql.now}"
    unknown = (
        f"{due} AND o.state = 'in_progress' AND o.lease_owner = :owner AND o.lease_until > {db.sql.now} "
        f"AND o.id NOT IN ({known})"
    )
    params = {"owner": owner, **params, **column_params}
    if not db.is_oldest:
        await _change(db, f"UPDATE {db.sql.operations} AS o SET {_BACK} WHERE {unknown} AND NOT {_timely(db)}", params)
        unknown = f"{unknown} AND {_timely(db)}"
    text = f"UPDATE {db.sql.operations} AS o SET {db.sql.lease} WHERE {unknown}"
    return await _change(db, text, {"lease": lease, **params})


async def _change(db: Store, text: str, params: Mapping[str, object]) -> list[Operation]:
    """Change operations; return them, oldest first."""
    rows = await db.rows(f"{text} RETURNING seq, {db.operation}", params, share=SOON)
    return [operation_of(row[1:]) for row in sorted(rows, key=lambda row: row[0])]


def _without(db: Store, policies: Collection[str], methods: Collection[str]) -> tuple[str, dict[str, object]]:
    """Return a condition that excludes operations `o` with these policies and methods, and its parameters."""
    text, params = "", dict[str, object]()
    for column, values in (("policy", policies), ("method", methods)):
        if values:
            rows, column_params = db.column(values, column)
            text, params = f"{text} AND o.{column} NOT IN ({rows})", params | column_params
    return text, params


def _claimable(db: Store) -> str:
    """Return the condition: an operation `o` of `:target` has not expired, is not paused, and is behind no other."""
    timely = f"{_timely(db)} AND "
    if db.is_oldest:  # once another process has migrated, nothing is claimed without regard to pauses and keys
        timely = f"(SELECT version FROM {db.sql.versions}) = {db.oldest} AND "
    return (
        f"{timely}NOT EXISTS (SELECT 1 FROM {db.paused_targets} p WHERE p.target = :target) "
        f"AND ({db.order_key('o')} IS NULL OR NOT {db.blocked()})"
    )


def _timely(db: Store) -> str:
    """Return the condition: an attempt of an operation `o` may still begin (LG-17)."""
    return f"coalesce(o.not_after > {db.sql.now}, true)"


async def expire(db: Store, target: str, limit: int) -> list[Operation]:
    """End the operations of a target that were not executed before their `not_after`; return them (LG-17).

    A running attempt goes on: what is in progress expires only when that has ended, or its lease was lost.
    """
    if await db.still_oldest():
        return []
    late = (
        f"SELECT o.seq AS key FROM {db.sql.operations} o WHERE {db.open('o')} AND o.target = :target "
        f"AND o.not_after <= {db.sql.now} AND o.state IN ({texts(CLAIMABLE)}) LIMIT :limit"
    )
    params = {"target": target, "limit": limit}
    if not await db.rows(f"SELECT 1 WHERE EXISTS ({late})", params, Access.READ, SOON):
        return []
    expired = await _change(
        db,
        f"UPDATE {db.sql.operations} AS o SET state = 'expired', finished = {db.sql.now}, "
        f"next_attempt_at = NULL, {NO_LEASE} FROM ({late}{db.sql.skip}) late WHERE o.seq = late.key",
        params,
    )
    await order_keys.take_up_after(db, [operation.id for operation in expired if operation.order_key is not None])
    return expired


async def next_due(
    db: Store, target: str, without: Collection[str] = (), methods_without: Collection[str] = ()
) -> float | None:
    """Return the seconds until the next operation for a target may be claimed; None if there is none."""
    ahead, params = db.from_floor(target)
    others, other_params = _without(db, without, methods_without)
    text = (
        f"SELECT o.next_attempt_at, {db.sql.now} FROM {db.sql.operations} o WHERE {ahead} "
        f"AND o.next_attempt_at IS NOT NULL{others} "
        f"AND {_claimable(db)} ORDER BY {db.due}, o.seq LIMIT 1"
    )
    rows = await db.rows(text, params | other_params, Access.READ, SOON)
    if not rows or not (is_readable("began", rows[0][0]) or rows[0][0] == -math.inf):
        return None
    return max(0.0, float(rows[0][0] - rows[0][1]))


async def find_floor(db: Store, target: str) -> None:
    """Find the earliest time at which an operation of a target may be due; claims then begin there in the index.

    While a transaction stays open, PostgreSQL's index keeps the entries of all that was delivered since, and each claim
    would step over them. An operation whose own transaction took longer than `_SLACK`, and one that another process
    takes up, are found once this has been called again.
    """
    if not db.sql.keeps_ended:
        return
    floors = db.floors
    text = (
        f"SELECT coalesce((SELECT {db.due} FROM {db.sql.operations} o WHERE {db.open('o')} "
        f"AND o.target = :target AND {db.due} <= {db.sql.now} ORDER BY {db.due}, o.seq LIMIT 1), {db.sql.now})"
    )
    [(first,)] = await db.rows(text, {"target": target}, Access.READ)
    floors[target] = first - _SLACK


async def extend(db: Store, leases: Sequence[Lease], lease: float) -> set[str]:
    """Extend leases to `lease` seconds from now; return the ids of those still held (LG-6)."""
    # The result of a row that is locked is being recorded.
    return set(await _change_held(db, leases, db.sql.skip, db.sql.lease, {"lease": lease}))


async def release(db: Store, leases: Sequence[Lease]) -> None:
    """Return claimed operations to the state before their claim (LG-10)."""
    await _change_held(db, leases, db.sql.lock, _BACK, {})


async def _change_held(
    db: Store, leases: Sequence[Lease], lock: str, changes: str, params: Mapping[str, object]
) -> list[str]:
    """Change the operations that are held, in an order in which two of them never deadlock; return their ids."""
    text = (
        f", held AS (SELECT o.seq AS key FROM {db.sql.operations} o "
        f"JOIN r ON o.id = r.id AND o.lease_token = r.token WHERE o.state = 'in_progress' ORDER BY o.id{lock}) "
        f"UPDATE {db.sql.operations} AS o SET {changes} FROM held WHERE o.seq = held.key RETURNING id"
    )
    held = db.with_rows(("id", "token"), leases, text)
    return [id_ for (id_,) in await db.rows(held.text, {**held.params, **params}, share=SOON)]
