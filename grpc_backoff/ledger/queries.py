"""Queries: operations by filter, their readiness and attempts (LG-5), and how many there are (LG-11).

What counting costs does not grow with the table.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from grpc_backoff.config.target import bare_target
from grpc_backoff.ledger.records import (
    CLAIMABLE,
    WELL,
    Filter,
    Operation,
    OperationAttempt,
    OperationOutcome,
    OperationState,
    Queue,
    Readiness,
)
from grpc_backoff.ledger.rows import READY, STATES, PolicyOf, is_readable, operation_of, readiness
from grpc_backoff.ledger.statements import Access, Plan, Row, Statement, texts
from grpc_backoff.ledger.store import LONG_AGO, Store, spellings

_ATTEMPT = ("number", "started", "ended", "code", "delay", "source")

_UNFINISHED = CLAIMABLE | {OperationState.IN_PROGRESS}
_SINCE = "CASE WHEN o.attempts = 0 THEN coalesce(o.next_attempt_at, o.claimed_from, o.began) ELSE o.began END"
"""Since when an operation waits: its first attempt or, before that, the earliest time of one (`not_before`)."""
_SAMPLE = 20_000
"""How many rows are counted exactly; beyond that, numbers of operations are estimates."""


async def ready(db: Store, which: Filter, limit: int, policy_of: PolicyOf) -> list[Readiness]:
    """For each operation, return whether it is ready, when it became or will become ready, and why (LG-5)."""
    obstacle = (
        f"CASE WHEN o.state NOT IN ({texts(CLAIMABLE)}) THEN NULL "
        f"WHEN EXISTS (SELECT 1 FROM {db.paused_targets} p WHERE p.target = o.target) THEN 'paused' "
        f"WHEN {db.behind()} THEN 'blocked' END"
    )
    columns = f"{', '.join(f'o.{name}' for name in READY)}, {obstacle}, {db.sql.now}"
    return [readiness(row, policy_of) for row in await _select(db, columns, which, limit)]


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
    return await db.rows(
        f"SELECT {columns} FROM {db.sql.operations} o WHERE {' AND '.join(terms)} ORDER BY o.seq {order} LIMIT :limit",
        {**params, "limit": limit},
        Access.READ,
    )


async def outcome(db: Store, id: str) -> OperationOutcome | None:  # noqa: A002
    """Return how an operation stands, with its response if that is stored; None if there is no such operation."""
    response = "NULL" if await db.still_oldest() else "o.response"
    text = (
        f"SELECT o.id, o.state, o.attempts, o.code, o.details, {response} FROM {db.sql.operations} o WHERE o.id = :id"
    )
    for key, state, attempts, code, details, kept in await db.rows(text, {"id": id}, Access.READ):
        standing = STATES.get(state, STATES["pending"])
        return OperationOutcome(id=key, state=standing, attempts=attempts, code=code, details=details, response=kept)
    return None


async def attempts(db: Store, id: str) -> list[OperationAttempt]:  # noqa: A002
    """Return an operation's attempts in order."""
    text = f"SELECT {', '.join(_ATTEMPT)} FROM {db.sql.attempts} WHERE operation_id = :id ORDER BY number"
    rows = await db.rows(text, {"id": id}, Access.READ)
    return [OperationAttempt(**dict(zip(_ATTEMPT, row, strict=True))) for row in rows]


# Counting.


async def queue(db: Store, target: str | None) -> Queue:
    """Return how many operations each state has, and how long an unfinished one has waited at most."""
    by_target = await queues(db)
    if target is None:
        return _combined(by_target.values())
    return by_target.get(bare_target(target), Queue({}, 0, 0.0))


async def queues(db: Store) -> dict[str, Queue]:
    """Return the same for each target.

    Beyond 20,000 rows, the numbers are estimates: from those rows, and the database's own estimate of all.
    """
    return await db.run(lambda: _count(db), Access.READ)


def _count(db: Store) -> Plan[dict[str, Queue]]:
    is_open, key = db.open("o"), db.order_key("o")
    some = f"SELECT o.target, o.state, {_SINCE} AS since, o.finished FROM {db.sql.operations} o WHERE"
    counted, grouped = f"SELECT target, state, count(*), min(since), {db.sql.now} FROM", "s GROUP BY target, state"
    most = {"most": _SAMPLE}
    rows_open, rows_done, held_keys, paused = yield [
        Statement(f"{counted} ({some} {is_open} LIMIT :most) {grouped}", most),
        Statement(f"{counted} ({some} NOT {is_open} ORDER BY o.finished DESC LIMIT :most) {grouped}", most),
        Statement(
            f"SELECT o.target, count(DISTINCT {key}) FROM {db.sql.operations} o WHERE {is_open} "
            f"AND {key} >= '' AND o.finished IS NOT NULL GROUP BY o.target",
            {},
        ),
        Statement(f"SELECT p.target FROM {db.paused_targets} p", {}),
    ]
    groups = {True: rows_open, False: rows_done}
    full = {part: sum(row[2] for row in rows) >= _SAMPLE for part, rows in groups.items()}
    if any(full.values()):
        [estimates] = yield [Statement(db.sql.sizes.format(open=is_open), {})]
        sizes = {bool(part): size for part, size in estimates}
        if any(full[part] and size < _SAMPLE for part, size in sizes.items()):  # older than the rows
            [exact] = yield [Statement(f"SELECT {is_open}, count(*) FROM {db.sql.operations} o GROUP BY {is_open}", {})]
            sizes |= {bool(part): size for part, size in exact}
        for part, size in sizes.items():
            if full[part]:
                groups[part] = _scaled(groups[part], size)
    return _by_target(
        [*groups[True], *groups[False]],
        {target: int(number) for target, number in held_keys},
        [name for (name,) in paused],
        estimated=any(full.values()),
    )


async def waiting(db: Store, limit: int) -> int:
    """Return how many operations are unfinished, at most `limit`; beyond 20,000, this is an estimate."""
    most = min(limit, _SAMPLE)
    text = (
        f"SELECT count(*) FROM (SELECT 1 FROM {db.sql.operations} o "
        f"WHERE {db.open('o')} AND o.finished IS NULL "
        f"ORDER BY o.target, {db.due('o')}, o.seq LIMIT :limit) w"  # in the order of an index, which does not grow
    )
    [(number,)] = await db.rows(text, {"limit": most}, Access.READ)
    if number < most or most == limit:
        return int(number)
    return min(limit, (await queue(db, None)).length)


def _scaled(rows: Sequence[Row], size: float) -> list[Row]:
    """Return the counts of a sample, scaled to the number of all rows."""
    sampled = sum(row[2] for row in rows)
    return [(*row[:2], round(row[2] * max(size, sampled) / sampled), *row[3:]) for row in rows]


def _by_target(
    rows: Iterable[Row], held_keys: Mapping[str, int], paused: Collection[str], *, estimated: bool
) -> dict[str, Queue]:
    """Return queues from rows that each have a target, a state, a count, since when they wait, and now."""
    parts = defaultdict[str, list[Queue]](list)
    for target in paused:
        parts[target].append(Queue({}, 0, 0.0, paused=(target,)))
    for target, name, count, since, now in rows:
        state = STATES.get(name)
        if state is not None:  # otherwise it is unreadable
            waits = state in _UNFINISHED
            age = max(0.0, now - since) if waits and is_readable("began", since) else 0.0
            parts[bare_target(target)].append(Queue({state: count}, count if waits else 0, age, estimated=estimated))
    for target, number in held_keys.items():
        parts[bare_target(target)].append(Queue({}, 0, 0.0, number))
    return {target: _combined(queues) for target, queues in parts.items()}


def _combined(queues: Collection[Queue]) -> Queue:
    """Return one queue with the sums of these."""
    counts = Counter[OperationState]()
    for queue in queues:
        counts.update(queue.counts)
    return Queue(
        dict(counts),
        sum(queue.length for queue in queues),
        max((queue.oldest for queue in queues), default=0.0),
        sum(queue.held_keys for queue in queues),
        tuple(target for queue in queues for target in queue.paused),
        any(queue.estimated for queue in queues),
    )
