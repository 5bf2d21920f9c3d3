"""What the parts of a delivery share."""

from __future__ import annotations

import asyncio
import logging

from grpc_backoff.ledger.errors import LedgerError
from grpc_backoff.ledger.records import Lease
from grpc_backoff.ledger.store import Store
from grpc_backoff.policy.ledger_settings import LedgerSettings

_LOG = logging.getLogger("grpc_backoff")


class DeliveryState:
    """The state of one delivery that several of its tasks use, beside what it delivers from where.

    Attributes:
        window: how many attempts may run: one after the channel has reconnected, and then more (LG-10).
        held: the leases of the operations that were claimed and are not recorded or given back yet.
        news: set when an operation may be due that no claim has seen.
        room_made: set when more operations may be claimed than before.
        troubled: whether the last request to the database failed.
    """

    together = 0.005
    """Seconds to wait for attempts to end together, which saves claims and recordings."""

    def __init__(self, store: Store, settings: LedgerSettings, target: str) -> None:
        self.store = store
        self.settings = settings
        self.target = target
        self.window = 1
        self.running: dict[asyncio.Task[None], Lease] = {}
        self.held: set[Lease] = set()
        self.news = asyncio.Event()
        self.room_made = asyncio.Event()
        self.troubled = False

    def widen(self) -> None:
        """Let one more attempt run after each answer from the server, up to the limit, as in TCP's slow start."""
        self.window = min(self.window + 1, self.settings.concurrency)

    async def is_troubled(self, error: LedgerError) -> None:
        """Log the first of a series of errors as a warning and wait before trying again."""
        level = logging.DEBUG if self.troubled else logging.WARNING
        _LOG.log(level, "%s: deliveries have paused: %s", self.target, error)
        self.troubled = True
        await asyncio.sleep(self.settings.poll)
