"""Claiming: each operation has a single owner for as long as its lease lasts (LG-6)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

from grpc_backoff.ledger.database import SOON, Database
from grpc_backoff.ledger.order_keys import OrderKeys
from grpc_backoff.ledger.records import CLAIMABLE, Lease, Operation
from grpc_backoff.ledger.rows import is_readable, operation_of
from grpc_backoff.ledger.statements import NO_LEASE, Access, texts

_AFTER = "CASE WHEN o.lease_token < 9223372036854775807 THEN o.lease_token + 1 ELSE 1 END"
"""The number of a claim; after the largest that a database can store, they begin anew."""


class Claiming:
    """Claims operations, and extends and gives back their leases."""

    def __init__(self, database: Database, order_keys: OrderKeys) -> None:
        self._db = database
        self._keys = order_keys

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
        db, d = self._db, self._db.dialect
        since, floor = db.since(target)
        others, params = self._without(without, methods_without)
        if method is not None:
            others, params = f"{others} AND o.method = :method", params | {"method": method}
        due = (
            f"SELECT o.seq AS key FROM {d.operations} o "
            f"WHERE {db.open('o')} AND o.target = :target AND {db.due('o')} {since} AND {db.due('o')} <= {d.now} "
            f"AND o.next_attempt_at <= {d.now}{others} "
            f"AND {self._unheld()} ORDER BY {db.due('o')}, o.seq LIMIT :limit{d.skip}"
        )
        return await self._change(
            f"UPDATE {d.operations} AS o SET state = 'in_progress', lease_owner = :owner, lease_began = {d.clock}, "
            f"lease_until = {d.later.format(d.clock, ':lease')}{d.leased}, lease_token = {_AFTER}, "
            f"claimed_from = o.next_attempt_at, next_attempt_at = NULL FROM ({due}) due WHERE o.seq = due.key",
            {"owner": owner, "lease": lease, "target": target, "limit": limit, **floor, **params},
        )

    async def reclaim(self, target: str, owner: str, lease: float, held: Collection[Lease]) -> list[Operation]:
        """Return what the owner has claimed and does not know of, since the database's answer was lost, oldest first.

        The leases are extended to `lease` seconds from now. `held` are those that the owner knows of.
        """
        db, d = self._db, self._db.dialect
        since, floor = db.since(target)
        known, column_params = db.column([lease.id for lease in held])
        due = "" if db.is_oldest else f"AND {db.due('o')} {since} AND {db.due('o')} <= {d.now} "
        return await self._change(
            f"UPDATE {d.operations} AS o SET lease_until = {d.later.format(d.clock, ':lease')}{d.leased} "
            f"WHERE {db.open('o')} AND o.target = :target {due}AND o.state = 'in_progress' "
            f"AND o.lease_owner = :owner AND o.lease_until > {d.now} AND o.id NOT IN ({known})",
            {"owner": owner, "lease": lease, "target": target, **floor, **column_params},
        )

    async def _change(self, text: str, params: Mapping[str, object]) -> list[Operation]:
        """Change operations; return them, oldest first."""
        rows = await self._db.rows(f"{text} RETURNING seq, {self._db.operation}", params, share=SOON)
        return [operation_of(row[1:]) for row in sorted(rows, key=lambda row: row[0])]

    def _without(self, policies: Collection[str], methods: Collection[str]) -> tuple[str, dict[str, object]]:
        """Return a condition that excludes operations `o` with these policies and methods, and its parameters."""
        text, params = "", dict[str, object]()
        for column, values in (("policy", policies), ("method", methods)):
            if values:
                rows, column_params = self._db.column(values, column)
                text, params = f"{text} AND o.{column} NOT IN ({rows})", params | column_params
        return text, params

    def _unheld(self) -> str:
        """Return whether an operation `o` of `:target` has not expired, is not paused, and is behind no other."""
        db, d = self._db, self._db.dialect
        timely = f"coalesce(o.not_after > {d.now}, true) AND "
        if db.is_oldest:  # once another process has migrated, nothing is claimed without regard to pauses and keys
            timely = f"(SELECT version FROM {d.versions}) = {d.oldest} AND "
        return (
            f"{timely}NOT EXISTS (SELECT 1 FROM {db.paused} p WHERE p.target = :target) "
            f"AND ({db.order_key('o')} IS NULL OR NOT {db.behind()})"
        )

    async def expire(self, target: str, limit: int) -> list[Operation]:
        """End the operations of a target that were not executed before their `not_after`; return them (LG-17).

        A running attempt goes on: what is in progress expires only when that has ended, or its lease was lost.
        """
        db, d = self._db, self._db.dialect
        if await db.still_oldest():
            return []
        late = (
            f"SELECT o.seq AS key FROM {d.operations} o WHERE {db.open('o')} AND o.target = :target "
            f"AND o.not_after <= {d.now} AND o.state IN ({texts(CLAIMABLE)}) LIMIT :limit"
        )
        params = {"target": target, "limit": limit}
        if not await db.rows(f"SELECT 1 WHERE EXISTS ({late})", params, Access.READ, SOON):
            return []
        expired = await self._change(
            f"UPDATE {d.operations} AS o SET state = 'expired', finished = {d.now}, next_attempt_at = NULL, {NO_LEASE} "
            f"FROM ({late}{d.skip}) late WHERE o.seq = late.key",
            params,
        )
        await self._keys.take_up_after(operation.id for operation in expired if operation.order_key is not None)
        return expired

    async def next_due(
        self, target: str, without: Collection[str] = (), methods_without: Collection[str] = ()
    ) -> float | None:
        """Return the seconds until the next operation for a target may be claimed; None if there is none."""
        db, d = self._db, self._db.dialect
        since, floor = db.since(target)
        others, params = self._without(without, methods_without)
        text = (
            f"SELECT o.next_attempt_at, {d.now} FROM {d.operations} o WHERE {db.open('o')} "
            f"AND o.target = :target AND {db.due('o')} {since} AND o.next_attempt_at IS NOT NULL{others} "
            f"AND {self._unheld()} ORDER BY {db.due('o')}, o.seq LIMIT 1"
        )
        rows = await db.rows(text, {"target": target, **floor, **params}, Access.READ, SOON)
        if not rows or not (is_readable("began", rows[0][0]) or rows[0][0] == -math.inf):
            return None
        return max(0.0, float(rows[0][0] - rows[0][1]))

    async def extend(self, leases: Sequence[Lease], lease: float) -> set[str]:
        """Extend leases to `lease` seconds from now; return the ids of those still held (LG-6)."""
        db, d = self._db, self._db.dialect
        held, params = self._held(leases, d.skip)  # the result of a locked row is being recorded
        until = f"lease_until = {d.later.format(d.clock, ':lease')}{d.leased}"
        text = f"{held} UPDATE {d.operations} AS o SET {until} FROM held WHERE o.seq = held.key RETURNING id"
        return {id_ for (id_,) in await db.rows(text, {**params, "lease": lease}, share=SOON)}

    async def release(self, leases: Sequence[Lease]) -> None:
        """Return claimed operations to the state before their claim (LG-10)."""
        held, params = self._held(leases, self._db.dialect.lock)
        text = (
            f"{held} UPDATE {self._db.dialect.operations} AS o "
            "SET state = CASE o.attempts WHEN 0 THEN 'pending' ELSE 'waiting_for_retry' END, "
            f"next_attempt_at = o.claimed_from, {NO_LEASE} FROM held WHERE o.seq = held.key RETURNING id"
        )
        await self._db.rows(text, params, share=SOON)

    def _held(self, leases: Sequence[Lease], lock: str) -> tuple[str, dict[str, object]]:
        """Return a query for the operations that are held, in an order in which two of them never deadlock."""
        text = (
            f", held AS (SELECT o.seq AS key FROM {self._db.dialect.operations} o "
            f"JOIN r ON o.id = r.id AND o.lease_token = r.token WHERE o.state = 'in_progress' ORDER BY o.id{lock})"
        )
        return self._db.with_rows(("id", "token"), leases, text)
