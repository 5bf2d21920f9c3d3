"""Queries: operations by filter, their readiness and their attempts (LG-5)."""

from __future__ import annotations

from grpc_backoff.ledger.database import LONG_AGO, Part, spellings
from grpc_backoff.ledger.records import (
    CLAIMABLE,
    WELL,
    Filter,
    Operation,
    OperationAttempt,
    OperationOutcome,
    Readiness,
)
from grpc_backoff.ledger.rows import READY, STATES, PolicyOf, operation_of, readiness
from grpc_backoff.ledger.statements import Access, Row, texts

_ATTEMPT = ("number", "started", "ended", "code", "delay", "source")


class Queries(Part):
    """Finds operations."""

    async def ready(self, which: Filter, limit: int, policy_of: PolicyOf) -> list[Readiness]:
        """For each operation, return whether it is ready, when it became or will become ready, and why (LG-5)."""
        held = (
            f"CASE WHEN o.state NOT IN ({texts(CLAIMABLE)}) THEN NULL "
            f"WHEN EXISTS (SELECT 1 FROM {self._db.paused} p WHERE p.target = o.target) THEN 'paused' "
            f"WHEN {self._db.behind()} THEN 'blocked' END"
        )
        columns = f"{', '.join(f'o.{name}' for name in READY)}, {held}, {self._db.dialect.now}"
        return [readiness(row, policy_of) for row in await self._select(columns, which, limit)]

    async def find(
        self, which: Filter, limit: int, *, after: str | None = None, newest_first: bool = False
    ) -> list[Operation]:
        """Return the operations that match a filter, oldest or newest first, from the one that follows `after`."""
        rows = await self._select(self._db.operation, which, limit, after_id=after, newest_first=newest_first)
        return [*map(operation_of, rows)]

    async def ids(self, which: Filter, limit: int, after: int | None = None) -> tuple[list[str], int | None]:
        """Return the ids of operations that match a filter, oldest first, and what to pass as `after` for the next."""
        rows = await self._select("o.id, o.seq", which, limit, after=after)
        return [id_ for id_, _ in rows], rows[-1][1] if rows else None

    async def _select(
        self,
        columns: str,
        which: Filter,
        limit: int,
        *,
        after: int | None = None,
        after_id: str | None = None,
        newest_first: bool = False,
    ) -> list[Row]:
        db, d = self._db, self._db.dialect
        beyond, order = ("<", "DESC") if newest_first else (">", "ASC")
        equal = ("method", "idempotency_key", "order_key", "code")
        age = None if which.older_than is None else min(which.older_than, LONG_AGO)
        parts = {"older_than": age, "after": after, "after_id": after_id} | {
            name: getattr(which, name) for name in equal
        }
        conditions = {name: f"o.{name} = :{name}" for name in equal} | {
            "order_key": f"{db.order_key('o')} = :order_key",
            "after": f"o.seq {beyond} :after",
            "after_id": f"o.seq {beyond} (SELECT a.seq FROM {d.operations} a WHERE a.id = :after_id)",
            "older_than": f"o.created <= {d.later.format(d.now, '-:older_than')}",
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
        return await db.rows(
            f"SELECT {columns} FROM {d.operations} o WHERE {' AND '.join(terms)} ORDER BY o.seq {order} LIMIT :limit",
            {**params, "limit": limit},
            Access.READ,
        )

    async def outcome(self, id: str) -> OperationOutcome | None:  # noqa: A002
        """Return how an operation stands, with its response if that is stored; None if there is no such operation."""
        response = "NULL" if await self._db.still_oldest() else "o.response"
        text = (
            f"SELECT o.id, o.state, o.attempts, o.code, o.details, {response} FROM {self._db.dialect.operations} o "
            "WHERE o.id = :id"
        )
        for key, state, attempts, code, details, kept in await self._db.rows(text, {"id": id}, Access.READ):
            standing = STATES.get(state, STATES["pending"])
            return OperationOutcome(
                id=key, state=standing, attempts=attempts, code=code, details=details, response=kept
            )
        return None

    async def attempts(self, id: str) -> list[OperationAttempt]:  # noqa: A002
        """Return an operation's attempts in order."""
        text = f"SELECT {', '.join(_ATTEMPT)} FROM {self._db.dialect.attempts} WHERE operation_id = :id ORDER BY number"
        rows = await self._db.rows(text, {"id": id}, Access.READ)
        return [OperationAttempt(**dict(zip(_ATTEMPT, row, strict=True))) for row in rows]
