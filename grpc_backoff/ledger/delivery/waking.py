"""Waking: who hears that an operation was submitted, or has ended (LG-12, LG-19)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from grpc_backoff.config.target import bare_target
from grpc_backoff.ledger.delivery.delivery import Delivery
from grpc_backoff.ledger.errors import LedgerError
from grpc_backoff.ledger.operation import Operation
from grpc_backoff.ledger.stores.store import Store

_COALESCE = 0.01  # how long notifications that follow another are batched before they are sent, in seconds


class Waking:
    """Wakes the deliveries and waiters of this process, and notifies other processes.

    Attributes:
        deliveries: those of this process that run or wind up.
        notifier: the task that sends notifications, if there was one to send.
    """

    def __init__(self, store: Store) -> None:
        self.deliveries: set[Delivery] = set()
        self.notifier: asyncio.Task[None] | None = None
        self._store = store
        self._to_notify: set[str] = set()
        self._waiters: dict[str, list[asyncio.Event]] = {}

    def wake(self, target: str) -> None:
        """Wake the deliveries of a target; a notification may also name an operation that has ended."""
        self._wake_waiters(target)
        for delivery in self.deliveries:
            if delivery.target == bare_target(target):
                delivery.wake()

    def wake_all(self, target: str) -> None:
        """Wake the deliveries of a target, in this process and in others."""
        self.wake(target)
        self.notify(target)

    @contextlib.contextmanager
    def waking(self, delivery: Delivery) -> Iterator[None]:
        """Wake a delivery that runs in the block, and until it has wound up."""
        self._store.listen(self.wake)
        self.deliveries.add(delivery)
        try:
            yield
        finally:
            delivery.end().add_done_callback(lambda _: self.deliveries.discard(delivery))

    def wake_deliveries(self) -> None:
        """Wake all deliveries of this process."""
        for delivery in self.deliveries:
            delivery.wake()

    def notify(self, target: str) -> None:
        """Notify other processes of new operations: at once, then once for all that follow within a short time."""
        self._to_notify.add(target)
        if self.notifier is None or self.notifier.done():
            self.notifier = asyncio.ensure_future(self._send())

    async def _send(self) -> None:
        while self._to_notify:
            targets, self._to_notify = self._to_notify, set()
            for target in targets:
                with contextlib.suppress(LedgerError):  # the others poll anyway
                    await self._store.notify(target)
            await asyncio.sleep(_COALESCE)

    def ended(self, operation: Operation) -> None:
        """Wake those that wait for the outcome of an operation."""
        self._wake_waiters(operation.id)
        if operation.keep_response is not None:
            self.notify(operation.id)  # those that wait in other processes

    def _wake_waiters(self, id_: str) -> None:
        for event in self._waiters.get(id_, ()):
            event.set()

    @contextlib.contextmanager
    def waiter(self, id_: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever the operation may have ended."""
        self._store.listen(self.wake)
        event = asyncio.Event()
        self._waiters.setdefault(id_, []).append(event)
        try:
            yield event
        finally:
            self._waiters[id_].remove(event)
            if not self._waiters[id_]:
                del self._waiters[id_]
