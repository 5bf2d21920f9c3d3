"""Reporting: the ends of a delivery's attempts are recorded in batches, until they are (LG-2)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from grpc_backoff.ledger import queries, recording
from grpc_backoff.ledger.announcing import Announcer
from grpc_backoff.ledger.delivery_state import DeliveryState
from grpc_backoff.ledger.errors import LedgerBusyError, LedgerError, LedgerStateError
from grpc_backoff.ledger.records import AttemptReport, Filter, Lease, Operation, Recorded
from grpc_backoff.ledger.transitions import recalled

_LOG = logging.getLogger("grpc_backoff")
_MANY = 1000
"""How many reports one transaction records, and how many may be set aside."""


class AttemptReports:
    """Records the ends of a delivery's attempts, and runs the hooks that follow alongside the next ones."""

    def __init__(self, state: DeliveryState, announcer: Announcer) -> None:
        self.ended: list[tuple[AttemptReport, Operation]] = []
        """What is not recorded yet."""
        self.aside: list[tuple[AttemptReport, Operation]] = []
        """What cannot be recorded, because the database rejects the row or it cannot be read."""
        self.flushing = False
        self.hooks: set[asyncio.Task[None]] = set()
        """The hooks that run, or wait until fewer do."""
        self._state = state
        self._announcer = announcer
        self._hook_places = asyncio.Semaphore(state.settings.concurrency)
        self._doubted: set[Lease] = set()
        """Leases whose results may already be recorded, because the database's answer was lost."""
        self._unrecorded = asyncio.Event()

    def room(self) -> int:
        """Return how many more operations may be claimed, given the running attempts and the backlog of hooks."""
        if len(self.aside) >= _MANY:  # something is wrong with more than a few rows
            return 0
        hooks, behind, state = self._announcer.hooks(), len(self.hooks), self._state
        if any((hooks.on_exhausted, hooks.on_conflict, hooks.on_blocked)):
            behind += sum(report.failure is not None for report, _ in self.ended)
        return min(state.window, state.settings.concurrency - behind) - len(state.running)

    @property
    def is_crowded(self) -> bool:
        """Whether so many hooks are running that no more should follow."""
        return len(self.hooks) >= self._state.settings.concurrency

    def add(self, operation: Operation, report: AttemptReport) -> None:
        """Record the end of an attempt soon."""
        self.ended.append((report, operation))
        self._unrecorded.set()

    async def record(self) -> None:
        """Record the ends of attempts; those that end during a transaction share the next one."""
        while True:
            await self._unrecorded.wait()
            if self._state.running and 2 * len(self.ended) < self._state.window:
                await asyncio.sleep(self._state.together)
            self.flushing = True
            try:
                await self._flush()
            except LedgerError as error:  # the reports are still in `ended`
                await self._state.is_troubled(error)
            finally:
                self.flushing = False

    async def _flush(self) -> None:
        batch = self.ended[:_MANY]
        self._unrecorded.clear()
        try:
            answers = await recording.record_ends(self._state.store, [report for report, _ in batch])
            answers = [
                await self._first_answer(report, answer) for (report, _), answer in zip(batch, answers, strict=True)
            ]
        except BaseException:
            self._doubted.update(Lease.of(operation) for _, operation in batch)
            self._unrecorded.set()
            raise
        del self.ended[: len(batch)]
        for (report, operation), recorded in zip(batch, answers, strict=True):
            if isinstance(recorded, LedgerStateError):
                line = "%s: the end of an attempt at operation %s cannot be recorded, so it is set aside and recorded "
                _LOG.error(line + "once that is possible: %s", self._state.target, operation.id, recorded)
                self.aside.append((report, operation))
            else:
                self._settle(report, operation, recorded)
        if any(report.failure is not None or operation.order_key is not None for report, operation in batch):
            self._state.room_made.set()  # of hooks
            self._state.news.set()  # the next operation of an order key
        if self.ended:
            self._unrecorded.set()

    def _settle(self, report: AttemptReport, operation: Operation, recorded: Recorded | LedgerBusyError) -> None:
        if isinstance(recorded, LedgerBusyError):
            self.add(operation, report)
        else:
            self._state.held.discard(Lease.of(operation))
            self._doubted.discard(Lease.of(operation))
            self.tell(operation, recorded)

    async def record_what_is_aside(self) -> None:
        """Try again to record what was set aside; its leases are extended meanwhile, so that nothing runs again."""
        for report, operation in [*self.aside]:
            [answer] = await recording.record_ends(self._state.store, [report])
            if not isinstance(answer, LedgerStateError):
                self.aside.remove((report, operation))
                self._settle(report, operation, answer)

    async def _first_answer(
        self, report: AttemptReport, recorded: Recorded | LedgerBusyError | LedgerStateError
    ) -> Recorded | LedgerBusyError | LedgerStateError:
        """Return the first recording's result if its answer was lost, because a second recording counts as late."""
        if not isinstance(recorded, Recorded) or recorded.live or report.token is None:
            return recorded
        if Lease(report.id, report.token) not in self._doubted:
            return recorded
        found = await queries.find(self._state.store, Filter(ids=(report.id,)), 1)
        attempts = await queries.attempts(self._state.store, report.id)
        return (recalled(found[0], attempts, report) if found else None) or recorded

    def tell(self, operation: Operation, recorded: Recorded) -> None:
        """Announce what was recorded, and start the hook that follows."""
        if recorded.delay is not None:
            asyncio.get_running_loop().call_later(recorded.delay, self._state.news.set)
        hook = self._announcer.announce(operation, recorded)
        if hook is not None:
            task = asyncio.ensure_future(self._call_hook(hook))
            self.hooks.add(task)
            task.add_done_callback(self._hook_done)

    async def _call_hook(self, hook: Callable[[], Awaitable[None]]) -> None:
        async with self._hook_places:
            await hook()

    def _hook_done(self, task: asyncio.Task[None]) -> None:
        self.hooks.discard(task)
        self._state.room_made.set()
