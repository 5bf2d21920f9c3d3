"""The state of a delivery: its attempts, whose ends are recorded in batches, until they are (LG-2)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from grpc_backoff.base.logs import Log
from grpc_backoff.ledger.delivery.announcing import Announcer
from grpc_backoff.ledger.errors import LedgerBusyError, LedgerError, LedgerStateError
from grpc_backoff.ledger.operation import Operation
from grpc_backoff.ledger.records import AttemptReport, Filter, Lease, Recorded
from grpc_backoff.ledger.stores.statements import BATCH
from grpc_backoff.ledger.stores.store import Store
from grpc_backoff.ledger.transactions import queries, recording
from grpc_backoff.ledger.transitions import recalled
from grpc_backoff.policy.ledger_settings import LedgerSettings

_LOG = Log("grpc_backoff")


class DeliveryState:
    """What the tasks of one delivery share, beside what it delivers from where.

    It records the ends of attempts, and runs the hooks that follow alongside the next ones.

    Attributes:
        window: how many attempts may run: one after the channel has reconnected, and then more (LG-10).
        held: the leases of the operations that were claimed and are not recorded or given back yet.
        news: set when an operation may be due that no claim has seen.
        room_made: set when more operations may be claimed than before.
        troubled: whether the last request to the database failed.
        unrecorded: what is not recorded yet.
        unrecordable: what cannot be recorded, because the database rejects the row or it cannot be read.
        running_hooks: the hooks that run, or wait until fewer do.
        extended_at: when the leases were last extended, on the clock `time.monotonic`.
    """

    together = 0.005
    """Seconds to wait for attempts to end together, which saves claims and recordings."""

    def __init__(self, store: Store, settings: LedgerSettings, target: str, announcer: Announcer) -> None:
        self.store = store
        self.settings = settings
        self.target = target
        self.window = 1
        self.running: dict[asyncio.Task[None], Lease] = {}
        self.held: set[Lease] = set()
        self.news = asyncio.Event()
        self.room_made = asyncio.Event()
        self.troubled = False
        self.unrecorded: list[tuple[AttemptReport, Operation]] = []
        self.unrecordable: list[tuple[AttemptReport, Operation]] = []
        self.flushing = False
        self.running_hooks: set[asyncio.Task[None]] = set()
        self.extended_at = time.monotonic()
        self._announcer = announcer
        self._hook_places = asyncio.Semaphore(settings.concurrency)
        self._doubted: set[Lease] = set()
        """Leases whose results may already be recorded, because the database's answer was lost."""
        self._to_record = asyncio.Event()

    def widen(self) -> None:
        """Let one more attempt run after each answer from the server, up to the limit, as in TCP's slow start."""
        self.window = min(self.window + 1, self.settings.concurrency)

    async def pause_after(self, error: LedgerError) -> None:
        """Log the first of a series of errors as a warning and wait before trying again."""
        level = logging.DEBUG if self.troubled else logging.WARNING
        _LOG.log(level, "%s: deliveries have paused: %s", self.target, error)
        self.troubled = True
        await asyncio.sleep(self.settings.poll)

    def room(self) -> int:
        """Return how many more operations may be claimed, given the running attempts and the backlog of hooks."""
        if len(self.unrecordable) >= BATCH:  # something is wrong with more than a few rows
            return 0
        hooks, behind = self._announcer.hooks(), len(self.running_hooks)
        if any((hooks.on_exhausted, hooks.on_conflict, hooks.on_blocked)):
            behind += sum(report.failure is not None for report, _ in self.unrecorded)
        return min(self.window, self.settings.concurrency - behind) - len(self.running)

    @property
    def is_crowded(self) -> bool:
        """Whether so many hooks are running that no more should follow."""
        return len(self.running_hooks) >= self.settings.concurrency

    def add(self, operation: Operation, report: AttemptReport) -> None:
        """Record the end of an attempt soon."""
        self.unrecorded.append((report, operation))
        self._to_record.set()

    async def record(self) -> None:
        """Record the ends of attempts; those that end during a transaction share the next one."""
        while True:
            await self._to_record.wait()
            if self.running and 2 * len(self.unrecorded) < self.window:
                await asyncio.sleep(self.together)
            self.flushing = True
            try:
                await self._flush()
            except LedgerError as error:  # the reports are still in `unrecorded`
                await self.pause_after(error)
            finally:
                self.flushing = False

    async def _flush(self) -> None:
        batch = self.unrecorded[:BATCH]
        self._to_record.clear()
        try:
            answers = await recording.record_ends(self.store, [report for report, _ in batch])
            answers = [
                await self._first_answer(report, answer) for (report, _), answer in zip(batch, answers, strict=True)
            ]
        except BaseException:
            self._doubted.update(Lease.of(operation) for _, operation in batch)
            self._to_record.set()
            raise
        del self.unrecorded[: len(batch)]
        for (report, operation), recorded in zip(batch, answers, strict=True):
            if isinstance(recorded, LedgerStateError):
                line = "%s: the end of an attempt at operation %s cannot be recorded, so it is set aside and recorded "
                _LOG.error(line + "once that is possible: %s", self.target, operation.id, recorded)
                self.unrecordable.append((report, operation))
            else:
                self._settle(report, operation, recorded)
        if any(report.failure is not None or operation.order_key is not None for report, operation in batch):
            self.room_made.set()  # of hooks
            self.news.set()  # the next operation of an order key
        if self.unrecorded:
            self._to_record.set()

    def _settle(self, report: AttemptReport, operation: Operation, recorded: Recorded | LedgerBusyError) -> None:
        if isinstance(recorded, LedgerBusyError):
            self.add(operation, report)
        else:
            self.held.discard(Lease.of(operation))
            self._doubted.discard(Lease.of(operation))
            self.announce(operation, recorded)

    async def retry_unrecordable(self) -> None:
        """Try again to record what could not be; its leases are extended meanwhile, so that nothing runs again."""
        for report, operation in [*self.unrecordable]:
            [answer] = await recording.record_ends(self.store, [report])
            if not isinstance(answer, LedgerStateError):
                self.unrecordable.remove((report, operation))
                self._settle(report, operation, answer)
                self.room_made.set()
                self.news.set()  # the next operation of an order key

    async def _first_answer(self, report: AttemptReport, recorded: recording.Result) -> recording.Result:
        """Return the first recording's result if its answer was lost, because a second recording counts as late."""
        if not isinstance(recorded, Recorded) or recorded.live or report.token is None:
            return recorded
        if Lease(report.id, report.token) not in self._doubted:
            return recorded
        found = await queries.find(self.store, Filter(ids=(report.id,)), 1)
        attempts = await queries.attempts(self.store, report.id)
        return (recalled(found[0], attempts, report) if found else None) or recorded

    def announce(self, operation: Operation, recorded: Recorded) -> None:
        """Announce what was recorded, and start the hook that follows."""
        if recorded.delay is not None:
            asyncio.get_running_loop().call_later(recorded.delay, self.news.set)
        hook = self._announcer.announce(operation, recorded)
        if hook is not None:
            task = asyncio.ensure_future(self._call_hook(hook))
            self.running_hooks.add(task)
            task.add_done_callback(self.running_hooks.discard)
            task.add_done_callback(lambda _: self.room_made.set())

    async def _call_hook(self, hook: Callable[[], Awaitable[None]]) -> None:
        async with self._hook_places:
            await hook()
