"""The connector of the slot that stands for a target whose name is not resolved yet (PO-7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from grpc_backoff.base.status import Failure
from grpc_backoff.connection.clock import TimerHandle
from grpc_backoff.engine.core_connector import SlotConnector, Tell
from grpc_backoff.engine.resolver import HANGS, WITHIN_LIMIT, Addresses

if TYPE_CHECKING:
    from grpc_backoff.engine.pool import BasePool


class Resolution(SlotConnector):
    """The connector of the slot that stands for a target whose name is not resolved yet (PO-7).

    An attempt fails if the name cannot be resolved. If it can, the pool retires the slot, which abandons the attempt.
    """

    def __init__(self, pool: BasePool[Any, Any]) -> None:
        super().__init__()
        self._pool = ref(pool)
        self._tell: Tell | None = None
        self._timer: TimerHandle | None = None
        self.open: frozenset[object] = frozenset()

    def connect(self, limit: float, tell: Tell) -> Resolution:
        """Resolve the name; see `CallbackConnector.connect`."""
        pool = self._pool()
        if pool is not None:
            home, self._tell = pool.home, tell
            self._timer = home.call_at(home.now() + limit * WITHIN_LIMIT, lambda: self._ended(tell, HANGS))
            pool.setup.resolve(lambda outcome: home.post(lambda: self._ended(tell, outcome)))
        return self

    def _ended(self, tell: Tell, outcome: Addresses | Failure) -> None:
        pool = self._pool()
        if self._tell is not tell:
            return  # it came too late
        self.abandon()
        if isinstance(outcome, Failure):
            tell(outcome)
        elif pool is not None:
            pool.resolved(outcome)

    def decided(self) -> bool:
        """Return False, because an attempt ends before its limit."""
        return False

    def abandon(self) -> None:
        """Abandon the attempt; the resolution may go on."""
        self._tell = None
        if self._timer is not None:
            self._timer.cancel()
