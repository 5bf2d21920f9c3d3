"""Order keys: operations of a target with one key are attempted one after the other (LG-15)."""

from __future__ import annotations

from collections.abc import Sequence

from grpc_backoff.ledger.database import SOON, Database


class OrderKeys(Database):
    """Sets operations aside that are behind others of their order keys, so that claims need not pass over them.

    This is not what keeps the order: claims do. So at worst an operation that is wrongly set aside waits for `take_up`,
    and nothing needs to be locked.
    """

    def _behind(self) -> str:
        """Return whether an operation `o` is behind another one of its order key that has not ended well."""
        return (
            f"EXISTS (SELECT 1 FROM {self.dialect.operations} p "
            "WHERE p.target = o.target AND p.order_key = o.order_key AND p.seq < o.seq AND p.open)"
        )

    async def set_aside(self, target: str, limit: int) -> None:
        """Set aside operations that are behind others of their order keys."""
        d = self.dialect
        behind = (
            f"SELECT o.seq AS key FROM {d.operations} o WHERE o.open AND o.target = :target AND o.order_key >= '' "
            f"AND o.next_attempt_at <= {d.now} AND {self._behind()} LIMIT :limit{d.skip}"
        )
        text = (
            f"UPDATE {d.operations} AS o SET claimed_from = o.next_attempt_at, next_attempt_at = NULL "
            f"FROM ({behind}) behind WHERE o.seq = behind.key RETURNING id"
        )
        aside = await self._rows(text, {"target": target, "limit": limit}, share=SOON)
        if aside:  # what was ahead of them may have ended meanwhile
            await self.take_up([id_ for (id_,) in aside])

    async def take_up(self, ids: Sequence[str] | None = None) -> None:
        """Take up the first operation of each order key, if it was set aside; with `ids`, for their keys only."""
        d = self.dialect
        rows, given = ("", {}) if ids is None else self._column(ids)
        keys = f"JOIN {d.operations} k ON k.target = p.target AND k.order_key = p.order_key WHERE k.id IN ({rows})"
        heads = (
            f"SELECT min(p.seq) AS key FROM {d.operations} p {keys if rows else 'WHERE true'} "
            "AND p.open AND p.order_key >= '' GROUP BY p.target, p.order_key"
        )
        text = (
            f"UPDATE {d.operations} AS o SET next_attempt_at = o.claimed_from, claimed_from = NULL FROM ({heads}) head "
            "WHERE o.seq = head.key AND o.next_attempt_at IS NULL AND o.lease_owner IS NULL AND o.finished IS NULL "
            "RETURNING seq"
        )
        await self._rows(text, given, share=SOON)
