"""Counting: how many operations there are, and whether there is room for more (LG-11).

What counting costs does not grow with the table.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from grpc_backoff.config.target import bare_target
from grpc_backoff.ledger.errors import LedgerLimitError, LedgerUnavailableError
from grpc_backoff.ledger.operation import CLAIMABLE, OperationState
from grpc_backoff.ledger.records import Queue
from grpc_backoff.ledger.stores.rows import STATES, is_readable
from grpc_backoff.ledger.stores.statements import Access, Plan, Row, Statement
from grpc_backoff.ledger.stores.store import Store

_UNFINISHED = CLAIMABLE | {OperationState.IN_PROGRESS}
_SINCE = "CASE WHEN o.attempts = 0 THEN coalesce(o.next_attempt_at, o.claimed_from, o.began) ELSE o.began END"
"""Since when an operation waits: its first attempt or, before that, the earliest time of one (`not_before`)."""
_SAMPLE = 20_000  # how many rows are counted exactly; beyond that, numbers of operations are estimates
_RECOUNT = 5.0  # how long a count of waiting operations is reused, in seconds


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
        sizes = yield from _sizes(db, full)
        groups |= {part: _scaled(groups[part], size) for part, size in sizes.items() if full[part]}
    return _by_target(
        [*groups[True], *groups[False]],
        {target: int(number) for target, number in held_keys},
        [name for (name,) in paused],
        estimated=any(full.values()),
    )


def _sizes(db: Store, full: Mapping[bool, bool]) -> Plan[dict[bool, float]]:
    """Return how many operations are open, and how many are not; `full` says for which of these that is needed."""
    is_open = db.open("o")
    [estimates] = yield [Statement(db.sql.sizes.format(open=is_open), {})]
    sizes = {bool(part): size for part, size in estimates}
    if any(full[part] and size < _SAMPLE for part, size in sizes.items()):  # the estimate is older than the rows
        [exact] = yield [Statement(f"SELECT {is_open}, count(*) FROM {db.sql.operations} o GROUP BY {is_open}", {})]
        sizes |= {bool(part): size for part, size in exact}
    return sizes


async def waiting(db: Store, limit: int) -> int:
    """Return how many operations are unfinished, at most `limit`; beyond 20,000, this is an estimate."""
    most = min(limit, _SAMPLE)
    text = (
        f"SELECT count(*) FROM (SELECT 1 FROM {db.sql.operations} o "
        f"WHERE {db.open('o')} AND o.finished IS NULL "
        f"ORDER BY o.target, {db.due}, o.seq LIMIT :limit) w"  # in the order of an index, which does not grow
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


class RowLimit:
    """The limit on waiting operations; those from other processes are counted some seconds late."""

    def __init__(self, db: Store, most: int) -> None:
        self._db = db
        self._most = most
        self._waiting = 0
        self._counted_at = -_RECOUNT

    async def check(self, number: int) -> None:
        """Raise LedgerLimitError if no room is left for this many more."""
        now = asyncio.get_running_loop().time()
        if now >= self._counted_at + _RECOUNT or self._waiting + number > self._most:
            try:
                self._waiting, self._counted_at = await waiting(self._db, self._most + 1), now
            except LedgerUnavailableError as error:
                error.reading = False  # the caller was about to write
                raise
        if self._waiting + number > self._most:
            known = f"{self._waiting} of at most {self._most} operations (max_rows) are waiting"
            raise LedgerLimitError(f"no room for {number} more: {known}")

    def add(self, number: int) -> None:
        """Count this many that were submitted here."""
        self._waiting += number
