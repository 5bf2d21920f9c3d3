"""Counting: how many operations there are, at a cost that does not grow with the table (LG-11)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from grpc_backoff.config.target import bare_target
from grpc_backoff.ledger.database import Part
from grpc_backoff.ledger.records import CLAIMABLE, OperationState, Queue
from grpc_backoff.ledger.rows import STATES, is_readable
from grpc_backoff.ledger.statements import Access, Plan, Row, Statement

_UNFINISHED = CLAIMABLE | {OperationState.IN_PROGRESS}
_SINCE = "CASE WHEN o.attempts = 0 THEN coalesce(o.next_attempt_at, o.claimed_from, o.began) ELSE o.began END"
"""Since when an operation waits: its first attempt or, before that, the earliest time of one (`not_before`)."""
_SAMPLE = 20_000
"""How many rows are counted exactly; beyond that, numbers of operations are estimates."""


class Counting(Part):
    """Counts operations."""

    async def queue(self, target: str | None) -> Queue:
        """Return how many operations each state has, and how long an unfinished one has waited at most."""
        queues = await self.queues()
        if target is None:
            return _combined(queues.values())
        return queues.get(bare_target(target), Queue({}, 0, 0.0))

    async def queues(self) -> dict[str, Queue]:
        """Return the same for each target.

        Beyond 20,000 rows, the numbers are estimates: from those rows, and the database's own estimate of all.
        """
        return await self._db.run(self._queues, Access.READ)

    def _queues(self) -> Plan[dict[str, Queue]]:
        db, d = self._db, self._db.dialect
        is_open, key = db.open("o"), db.order_key("o")
        some = f"SELECT o.target, o.state, {_SINCE} AS since, o.finished FROM {d.operations} o WHERE"
        counted, grouped = f"SELECT target, state, count(*), min(since), {d.now} FROM", "s GROUP BY target, state"
        most = {"most": _SAMPLE}
        rows_open, rows_done, held, paused = yield [
            Statement(f"{counted} ({some} {is_open} LIMIT :most) {grouped}", most),
            Statement(f"{counted} ({some} NOT {is_open} ORDER BY o.finished DESC LIMIT :most) {grouped}", most),
            Statement(
                f"SELECT o.target, count(DISTINCT {key}) FROM {d.operations} o WHERE {is_open} "
                f"AND {key} >= '' AND o.finished IS NOT NULL GROUP BY o.target",
                {},
            ),
            Statement(f"SELECT p.target FROM {db.paused} p", {}),
        ]
        groups = {True: rows_open, False: rows_done}
        full = {part: sum(row[2] for row in rows) >= _SAMPLE for part, rows in groups.items()}
        if any(full.values()):
            [estimates] = yield [Statement(d.sizes.format(open=is_open), {})]
            sizes = {bool(part): size for part, size in estimates}
            if any(full[part] and size < _SAMPLE for part, size in sizes.items()):  # older than the rows
                [exact] = yield [Statement(f"SELECT {is_open}, count(*) FROM {d.operations} o GROUP BY {is_open}", {})]
                sizes |= {bool(part): size for part, size in exact}
            for part, size in sizes.items():
                if full[part]:
                    groups[part] = _scaled(groups[part], size)
        return _queues(
            [*groups[True], *groups[False]],
            {target: int(number) for target, number in held},
            [name for (name,) in paused],
            estimated=any(full.values()),
        )

    async def waiting(self, limit: int) -> int:
        """Return how many operations are unfinished, at most `limit`; beyond 20,000, this is an estimate."""
        most = min(limit, _SAMPLE)
        db = self._db
        text = (
            f"SELECT count(*) FROM (SELECT 1 FROM {db.dialect.operations} o "
            f"WHERE {db.open('o')} AND o.finished IS NULL "
            f"ORDER BY o.target, {db.due('o')}, o.seq LIMIT :limit) w"  # in the order of an index, which does not grow
        )
        [(number,)] = await db.rows(text, {"limit": most}, Access.READ)
        if number < most or most == limit:
            return int(number)
        return min(limit, (await self.queue(None)).length)


def _scaled(rows: Sequence[Row], size: float) -> list[Row]:
    """Return the counts of a sample, scaled to the number of all rows."""
    sampled = sum(row[2] for row in rows)
    return [(*row[:2], round(row[2] * max(size, sampled) / sampled), *row[3:]) for row in rows]


def _queues(
    rows: Iterable[Row], held: Mapping[str, int], paused: Collection[str], *, estimated: bool
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
    for target, number in held.items():
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
