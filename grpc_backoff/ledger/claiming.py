"""Claiming: each operation has a single owner for as long as its lease lasts (LG-6).

Operations of a target with one order key are attempted one after the other (LG-15). Claims keep that order. Besides,
operations that are behind others of their keys are set aside, so that claims need not pass over them. So at worst one
that is wrongly set aside waits for `take_up`, and nothing needs to be locked.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Mapping, Sequence

from grpc_backoff.ledger.errors import LedgerError
from grpc_backoff.ledger.records import CLAIMABLE, Lease, Operation
from grpc_backoff.ledger.rows import is_readable, operation_of
from grpc_backoff.ledger.statements import NO_LEASE, Access, texts
from grpc_backoff.ledger.store import SOON, Store

_AFTER = "CASE WHEN o.lease_token < 9223372036854775807 THEN o.lease_token + 1 ELSE 1 END"
"""The number of a claim; after the largest that a database can store, they begin anew."""


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
    since, floor = db.since(target)
    others, params = _without(db, without, methods_without)
    if method is not None:
        others, params = f"{others} AND o.method = :method", params | {"method": method}
    due = (
        f"SELECT o.seq AS key FROM {db.sql.operations} o "
        f"WHERE {db.open('o')} AND o.target = :target AND {db.due('o')} {since} "
        f"AND {db.due('o')} <= {db.sql.now} AND o.next_attempt_at <= {db.sql.now}{others} "
        f"AND {_claimable(db)} ORDER BY {db.due('o')}, o.seq LIMIT :limit{db.sql.skip}"
    )
    return await _change(
        db,
        f"UPDATE {db.sql.operations} AS o SET state = 'in_progress', lease_owner = :owner, "
        f"lease_began = {db.sql.clock}, {db.sql.lease}, lease_token = {_AFTER}, "
        f"claimed_from = o.next_attempt_at, next_attempt_at = NULL FROM ({due}) due WHERE o.seq = due.key",
        {"owner": owner, "lease": lease, "target": target, "limit": limit, **floor, **params},
    )


async def reclaim(db: Store, target: str, owner: str, lease: float, held: Collection[Lease]) -> list[Operation]:
    """Return what the owner has claimed and does not know of, since the database's answer was lost, oldest first.

    The leases are extended to `lease` seconds from now. `held` are those that the owner knows of.
    """
    since, floor = db.since(target)
    known, column_params = db.column([lease.id for lease in held])
    due = "" if db.is_oldest else f"AND {db.due('o')} {since} AND {db.due('o')} <= {db.sql.now} "
    return await _change(
        db,
        f"UPDATE {db.sql.operations} AS o SET {db.sql.lease} "
        f"WHERE {db.open('o')} AND o.target = :target {due}AND o.state = 'in_progress' "
        f"AND o.lease_owner = :owner AND o.lease_until > {db.sql.now} AND o.id NOT IN ({known})",
        {"owner": owner, "lease": lease, "target": target, **floor, **column_params},
    )


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
    timely = f"coalesce(o.not_after > {db.sql.now}, true) AND "
    if db.is_oldest:  # once another process has migrated, nothing is claimed without regard to pauses and keys
        timely = f"(SELECT version FROM {db.sql.versions}) = {db.oldest} AND "
    return (
        f"{timely}NOT EXISTS (SELECT 1 FROM {db.paused_targets} p WHERE p.target = :target) "
        f"AND ({db.order_key('o')} IS NULL OR NOT {db.behind()})"
    )


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
    await take_up_after(db, [operation.id for operation in expired if operation.order_key is not None])
    return expired


async def next_due(
    db: Store, target: str, without: Collection[str] = (), methods_without: Collection[str] = ()
) -> float | None:
    """Return the seconds until the next operation for a target may be claimed; None if there is none."""
    since, floor = db.since(target)
    others, params = _without(db, without, methods_without)
    text = (
        f"SELECT o.next_attempt_at, {db.sql.now} FROM {db.sql.operations} o WHERE {db.open('o')} "
        f"AND o.target = :target AND {db.due('o')} {since} AND o.next_attempt_at IS NOT NULL{others} "
        f"AND {_claimable(db)} ORDER BY {db.due('o')}, o.seq LIMIT 1"
    )
    rows = await db.rows(text, {"target": target, **floor, **params}, Access.READ, SOON)
    if not rows or not (is_readable("began", rows[0][0]) or rows[0][0] == -math.inf):
        return None
    return max(0.0, float(rows[0][0] - rows[0][1]))


async def extend(db: Store, leases: Sequence[Lease], lease: float) -> set[str]:
    """Extend leases to `lease` seconds from now; return the ids of those still held (LG-6)."""
    # The result of a row that is locked is being recorded.
    return set(await _change_held(db, leases, db.sql.skip, db.sql.lease, {"lease": lease}))


async def release(db: Store, leases: Sequence[Lease]) -> None:
    """Return claimed operations to the state before their claim (LG-10)."""
    state = "CASE o.attempts WHEN 0 THEN 'pending' ELSE 'waiting_for_retry' END"
    await _change_held(db, leases, db.sql.lock, f"state = {state}, next_attempt_at = o.claimed_from, {NO_LEASE}", {})


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


# Order keys.


async def set_aside(db: Store, target: str, limit: int, enough: int) -> None:
    """Set aside those of the first `limit` due operations that are behind others of their order keys.

    Those after the first `enough` operations that claims can take are left: they are in nobody's way, and most
    never will be, which saves two updates of each.
    """
    since, floor = db.since(target)
    first = (
        f"SELECT o.seq AS key, {db.due('o')} AS due, {db.order_key('o')} >= '' AND {db.behind()} AS behind "
        f"FROM {db.sql.operations} o WHERE {db.open('o')} AND o.target = :target "
        f"AND {db.due('o')} {since} AND {db.due('o')} <= {db.sql.now} "
        f"AND o.next_attempt_at <= {db.sql.now} ORDER BY {db.due('o')}, o.seq LIMIT :limit"
    )
    counted = (
        "SELECT key, behind, sum(CASE WHEN behind THEN 0 ELSE 1 END) OVER (ORDER BY due, key) AS free "
        f"FROM ({first}) first"
    )
    behind = (
        f"SELECT o.seq AS key FROM {db.sql.operations} o WHERE EXISTS (SELECT 1 FROM {db.sql.operations} k "
        f"WHERE {db.open('k')} AND k.target = :target AND {db.order_key('k')} >= '') "
        f"AND o.seq IN (SELECT key FROM ({counted}) counted WHERE behind AND free < :enough) "
        f"AND {db.open('o')} AND o.next_attempt_at <= {db.sql.now} LIMIT :limit{db.sql.skip}"
    )
    text = (
        f"UPDATE {db.sql.operations} AS o SET claimed_from = o.next_attempt_at, next_attempt_at = NULL "
        f"FROM ({behind}) behind WHERE o.seq = behind.key RETURNING id"
    )
    aside = await db.rows(text, {"target": target, "limit": limit, "enough": enough, **floor}, share=SOON)
    if aside:  # what was ahead of them may have ended meanwhile
        await take_up(db, [id_ for (id_,) in aside])


async def take_up(db: Store, ids: Sequence[str] | None = None) -> None:
    """Take up the first operation of each order key, if it was set aside; with `ids`, for their keys only."""
    aside = "{0}.next_attempt_at IS NULL AND {0}.lease_owner IS NULL AND {0}.finished IS NULL"
    which, params = f"{db.open('k')} AND {aside.format('k')}", dict[str, object]()
    if ids is not None:
        rows, params = db.column(ids)
        which = f"k.id IN ({rows})"
    first = (  # found by the index for each key, whatever the database estimates
        f"SELECT min(p.seq) FROM {db.sql.operations} p "
        f"WHERE {db.open('p')} AND p.target = k.target AND {db.order_key('p')} = k.order_key"
    )
    key = db.order_key("k")
    keys = f"SELECT DISTINCT k.target, {key} AS order_key FROM {db.sql.operations} k WHERE {which} AND {key} >= ''"
    text = (
        f"UPDATE {db.sql.operations} AS o SET next_attempt_at = o.claimed_from, claimed_from = NULL "
        f"WHERE o.seq IN (SELECT ({first}) FROM ({keys}) k) AND {aside.format('o')} RETURNING seq"
    )
    if await db.rows(text, params, share=SOON):
        db.became_due_earlier()


async def take_up_after(db: Store, ended: Sequence[str]) -> None:
    """Take up what is behind operations that have ended; if that fails, it is taken up somewhat later."""
    if ended:
        with contextlib.suppress(LedgerError):
            await take_up(db, ended)
