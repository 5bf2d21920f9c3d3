"""Order keys: operations of a target with one of them are attempted one after the other (LG-15).

Claims keep that order. Besides, operations that are behind others of their keys are set aside, so that claims need not
pass over them. So at worst one that is wrongly set aside waits for `take_up`, and nothing needs to be locked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from grpc_backoff.ledger.errors import LedgerError
from grpc_backoff.ledger.stores.store import SOON, Store


async def set_aside(db: Store, target: str, limit: int, enough: int) -> None:
    """Set aside those of the first `limit` due operations that are behind others of their order keys.

    Those after the first `enough` operations that claims can take are left: they are in nobody's way, and most
    never will be, which saves two updates of each.
    """
    ahead, params = db.from_floor(target)
    first = (
        f"SELECT o.seq AS key, {db.due} AS due, {db.order_key('o')} >= '' AND {db.behind()} AS behind "
        f"FROM {db.sql.operations} o WHERE {ahead} AND {db.due} <= {db.sql.now} "
        f"AND o.next_attempt_at <= {db.sql.now} ORDER BY {db.due}, o.seq LIMIT :limit"
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
    aside = await db.rows(text, {"limit": limit, "enough": enough, **params}, share=SOON)
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
    taken = (  # without waiting for a lock, since the records of a delivery's other operations wait for this
        f"SELECT o.seq AS key FROM {db.sql.operations} o "
        f"WHERE o.seq IN (SELECT ({first}) FROM ({keys}) k) AND {aside.format('o')}{db.sql.skip}"
    )
    text = (
        f"UPDATE {db.sql.operations} AS o SET next_attempt_at = o.claimed_from, claimed_from = NULL "
        f"FROM ({taken}) taken WHERE o.seq = taken.key RETURNING seq"
    )
    if await db.rows(text, params, share=SOON):
        db.became_due_earlier()


async def take_up_after(db: Store, ended: Sequence[str]) -> None:
    """Take up what is behind operations that have ended; if that fails, it is taken up somewhat later."""
    if ended:
        with contextlib.suppress(LedgerError):
            await take_up(db, ended)
