"""Delivers the operations of one channel's target: claims them, calls, and records what became of each (LG-10).

A shell: when the next attempt follows, and whether, is the store's to record by `transitions`. Four tasks run beside
the attempts: one claims, one records their ends in batches, one extends leases and does nothing else, and one looks for
lost leases and prunes. None of them waits for a hook: hooks have tasks of their own, and while there are too many of
them nothing is claimed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from grpc_backoff.aio.errors import NoConnectionError
from grpc_backoff.calls.core_words import Link, Report, is_oversized, never_left, was_refused
from grpc_backoff.calls.decision import FailedAttempt
from grpc_backoff.calls.server_hint import read_hint
from grpc_backoff.errors import OptionError
from grpc_backoff.ledger import events
from grpc_backoff.ledger.errors import LedgerBusyError, LedgerError
from grpc_backoff.ledger.hooks import call_hook, run_hook
from grpc_backoff.ledger.records import (
    FINISHED,
    LOST,
    AttemptReport,
    Filter,
    Lease,
    Metadata,
    Operation,
    OperationState,
    Recorded,
)
from grpc_backoff.ledger.slow_start import AttemptWindow
from grpc_backoff.ledger.transitions import recalled
from grpc_backoff.policy.retry import RetryPolicy

if TYPE_CHECKING:
    from grpc_backoff.aio.channel import Channel
    from grpc_backoff.ledger.ledger import Ledger

__all__ = ["Delivery", "event_of"]

_LOG = logging.getLogger("grpc_backoff")
_KEY = "idempotency-key"
_ATTEMPTS_BEFORE = "grpc-previous-rpc-attempts"
_DETAILS = 1024
"""Bytes of a server's words that are kept (LG-1)."""
_MANY = 1000
"""Rows that one transaction of the housekeeping looks at."""
_MOMENT = 0.01
"""Seconds between two looks at whether a delivery that ends has recorded everything."""
_CROWDED = 0.05
"""Seconds until a claim follows on one that got nothing of what was due, as others had its locks."""
_BEATS = 3
"""How often a lease is extended before it could end."""
_ONE_ATTEMPT = RetryPolicy.parse("max_attempts: 1")
_PRUNE_EVERY = 100.0
"""Seconds between looks for what may be pruned."""


class Delivery:
    """One run of `Ledger.deliver`."""

    def __init__(self, ledger: Ledger, channel: Channel, concurrency: int, grace: float) -> None:
        """Nothing is claimed yet."""
        self._ledger = ledger
        self._store = ledger.store
        self._settings = ledger.settings
        self._channel = channel
        self._grace = grace
        self._window = AttemptWindow(concurrency)
        self._running: dict[asyncio.Task[None], Lease] = {}
        self._ended: list[tuple[AttemptReport, Operation]] = []
        self._held: set[Lease] = set()
        self._methods: dict[str, Any] = {}
        self._credentials: Metadata = ()
        self._doubted: set[Lease] = set()
        """Leases whose ends may be recorded already, as an answer was lost."""
        self._lost: list[Recorded] = []
        """Losses that nobody has been told of yet."""
        self._hooks: set[asyncio.Task[None]] = set()
        self._hook_places = asyncio.Semaphore(concurrency)
        self._beside: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._unrecorded = asyncio.Event()
        self._extended_at = time.monotonic()
        self._flushing = False
        self._troubled = False
        self.target = channel.target

    def wake(self) -> None:
        """Look at the database at once."""
        self._wake.set()

    async def run(self) -> None:
        """Deliver until cancelled, or until `end` is called; then give back what has not been delivered."""
        work = (self._claim(), self._record(), self._extend_leases(), self._housekeeping())
        self._beside = [asyncio.ensure_future(each) for each in work]
        try:
            done, _ = await asyncio.wait(self._beside, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if not task.cancelled():  # as `end` does
                    task.result()
        finally:
            await asyncio.shield(self.end())

    def end(self) -> asyncio.Task[None]:
        """Begin to wind up, once; return the task, which goes on when whoever waits for it is cancelled."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._wind_up())
        return self._ending

    async def _wind_up(self) -> None:
        """Let running attempts end within the grace, record what has ended, and give back the rest."""
        claiming, *beside = self._beside
        claiming.cancel()
        await asyncio.gather(claiming, return_exceptions=True)
        if self._running:
            await asyncio.wait(self._running, timeout=self._grace)
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        patience = max(self._grace, self._settings.poll)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._recorded()
        if self._hooks:
            await asyncio.wait(self._hooks, timeout=patience)
        rest = [*self._hooks, *beside]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        # What ended and could not be recorded is not given back: its attempt was made, and its lease's end will say so.
        given_back = self._held - {Lease(operation.id, operation.lease_token) for _, operation in self._ended}
        if given_back:
            with contextlib.suppress(LedgerError):  # they end by themselves
                await self._store.release(sorted(given_back))

    # Claiming.

    async def _claim(self) -> None:
        while True:
            free = self._room()
            if free <= 0:
                self._wake.clear()
                if self._room() <= 0:
                    await self._wake.wait()
                continue
            try:
                taken = await self._take(free)
                self._is_well()
            except LedgerError as error:
                await self._is_troubled(error)
                continue
            for operation in taken:
                self._start(operation)

    def _room(self) -> int:
        """Return how many more operations there may be at work: in attempts, in hooks, and on the way to hooks."""
        hooks, behind = self._ledger.hooks, len(self._hooks)
        if hooks.on_exhausted is not None or hooks.on_conflict is not None:
            behind += sum(report.failure is not None for report, _ in self._ended)
        return min(self._window.size, self._window.limit - behind) - len(self._running)

    async def _take(self, free: int) -> list[Operation]:
        """Return operations to deliver; before that, wait until there are some and the channel is READY."""
        self._wake.clear()
        if self._channel.get_state() is not grpc.ChannelConnectivity.READY:
            self._channel.refuse_if_closed()
            self._window = self._window.closed()
            due = await self._store.next_due(self.target)
            if due is None or due > 0:
                await self._pause(due)
            else:  # asked for in slices: while nothing is due the channel may stop dialling (CB-14)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.poll):
                        await self._channel.channel_ready()
            return []
        claim = asyncio.ensure_future(self._store.claim(self.target, free, self._ledger.owner, self._settings.lease))
        try:
            taken = await asyncio.shield(claim)
        except asyncio.CancelledError:  # what it brings is given back
            with contextlib.suppress(LedgerError):
                self._held.update(Lease(operation.id, operation.lease_token) for operation in await claim)
            raise
        if not taken:
            due = await self._store.next_due(self.target)
            await self._pause(None if due is None else due or _CROWDED)
        return taken

    async def _pause(self, due: float | None) -> None:
        """Wait until an operation is due, something is heard, or the time has come to look again (LG-12)."""
        seconds = self._settings.poll if due is None else min(due, self._settings.poll)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    # Attempts.

    def _start(self, operation: Operation) -> None:
        lease = Lease(operation.id, operation.lease_token)
        self._held.add(lease)
        task = asyncio.ensure_future(self._attempt(operation))
        self._running[task] = lease
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        lease = self._running.pop(task)
        error: BaseException | None
        if task.cancelled():
            error = None if self._ending is not None else asyncio.CancelledError()  # by an interceptor, say
        else:
            error = task.exception()
        if error is not None:  # a bug; the lease ends by itself
            self._held.discard(lease)
            _LOG.error("%s: an attempt of operation %s broke", self.target, lease.id, exc_info=error)
        self._wake.set()

    async def _attempt(self, operation: Operation) -> None:
        if operation.problem is not None:
            self._set_aside(operation, operation.problem)
            return
        try:
            policy = self._ledger.policy_of(operation.policy)
        except OptionError as error:
            self._set_aside(operation, str(error))
            return
        timeout = policy.timeout or self._settings.attempt_timeout
        began = time.monotonic()
        try:
            response = await self._call(operation, timeout)
        except grpc.aio.AioRpcError as error:
            if self._never_left(error):
                await self._give_back(operation)
                return
            await self._failed(operation, policy, error, ran_out=time.monotonic() - began >= timeout)
        else:
            await self._succeeded(operation, policy, response)
        self._window = self._window.grown()

    def _set_aside(self, operation: Operation, why: str) -> None:
        """Fail an operation that cannot be read here, whatever is retried: its policy's name is unknown, say."""
        failure = FailedAttempt("INTERNAL")
        self._report(operation, AttemptReport(operation.id, operation.lease_token, _ONE_ATTEMPT, failure, cut(why)))

    async def _call(self, operation: Operation, timeout: float) -> bytes:  # noqa: ASYNC109 - the call's own
        """Make one attempt: without the retries of the channel and of its service config, and without waiting."""
        method = self._methods.get(operation.method)
        if method is None:
            made: Any = self._channel.unary_unary(operation.method)
            method = self._methods[operation.method] = made.retrying(None)
        answer: bytes = await method(
            operation.request, timeout=timeout, metadata=self._metadata(operation), wait_for_ready=False
        )
        return answer

    def _metadata(self, operation: Operation) -> grpc.aio.Metadata:
        renewed = {key for key, _ in self._credentials}
        pairs = [pair for pair in operation.metadata if pair[0] not in renewed]
        pairs += self._credentials
        pairs.append((_KEY, operation.idempotency_key or operation.id))
        if operation.attempts:
            pairs.append((_ATTEMPTS_BEFORE, str(operation.attempts)))  # RT-10; a core that retries too drops it
        return grpc.aio.Metadata(*pairs)

    def _never_left(self, error: grpc.aio.AioRpcError) -> bool:
        """Return whether the server has not seen the attempt: want of a connection is no attempt (LG-10)."""
        if isinstance(error, NoConnectionError):
            return True
        ready = self._channel.get_state() is grpc.ChannelConnectivity.READY
        report = _core_report(error, Link.OPEN if ready else Link.UNREACHABLE)
        return never_left(report) or was_refused(report)

    async def _give_back(self, operation: Operation) -> None:
        self._window = self._window.closed()
        lease = Lease(operation.id, operation.lease_token)
        with contextlib.suppress(LedgerError):  # else the lease ends by itself
            await self._store.release([lease])
        self._held.discard(lease)

    async def _succeeded(self, operation: Operation, policy: RetryPolicy, response: bytes) -> None:
        hook = self._ledger.hooks.on_success
        if hook is not None:
            await run_hook(self.target, hook, operation, response)
        self._report(operation, AttemptReport(operation.id, operation.lease_token, policy))

    async def _failed(
        self, operation: Operation, policy: RetryPolicy, error: grpc.aio.AioRpcError, *, ran_out: bool
    ) -> None:
        code = error.code().name
        trailing, initial = _pairs(error.trailing_metadata()), _pairs(error.initial_metadata())
        failure = FailedAttempt(
            "DEADLINE_EXCEEDED" if ran_out and code == "CANCELLED" else code,
            hint=read_hint(trailing, initial, time.time),
            own_timeout=ran_out,
            oversized=is_oversized(_core_report(error, Link.OPEN)),
        )
        refresh = self._ledger.hooks.refresh_credentials
        renewed = False
        if refresh is not None and code == grpc.StatusCode.UNAUTHENTICATED.name:
            renewed = await self._renew(refresh, operation)
        self._report(
            operation,
            AttemptReport(
                operation.id,
                operation.lease_token,
                policy,
                failure,
                cut(error.details() or ""),
                renewed,
                self._ledger.rng.random(),
            ),
        )

    async def _renew(self, refresh: Callable[..., Any], operation: Operation) -> bool:
        """Ask for new credentials; keep them in memory alone (LG-11)."""
        try:
            renewed = await call_hook(refresh, operation)
            self._credentials = tuple((str(key), value) for key, value in renewed or ())
        except Exception:  # noqa: BLE001 - the hook is the program's
            _LOG.exception("%s: the hook refresh_credentials raised", self.target)
            return False
        return True

    # Recording.

    def _report(self, operation: Operation, report: AttemptReport) -> None:
        self._ended.append((report, operation))
        self._unrecorded.set()

    async def _record(self) -> None:
        """Record the ends of attempts; those that end while a transaction runs share the next one."""
        while True:
            await self._unrecorded.wait()
            try:
                await self._flush()
            except LedgerError as error:
                await self._is_troubled(error)

    async def _recorded(self) -> None:
        """Return once every end is recorded, and told."""
        while self._ended or self._flushing:  # noqa: ASYNC110 - two things, at the end alone
            await asyncio.sleep(_MOMENT)

    async def _flush(self) -> None:
        self._flushing = True
        try:
            await self._flush_batch()
        finally:
            self._flushing = False

    async def _flush_batch(self) -> None:
        batch = self._ended[:_MANY]
        self._unrecorded.clear()
        try:
            told = await self._store.record([report for report, _ in batch])
            told = [await self._first_answer(report, each) for (report, _), each in zip(batch, told, strict=True)]
        except BaseException:
            self._doubted.update(Lease(operation.id, operation.lease_token) for _, operation in batch)
            self._unrecorded.set()
            raise
        del self._ended[: len(batch)]
        for (report, operation), recorded in zip(batch, told, strict=True):
            if isinstance(recorded, LedgerBusyError):
                self._report(operation, report)
            else:
                lease = Lease(operation.id, operation.lease_token)
                self._held.discard(lease)
                self._doubted.discard(lease)
                self._tell(operation, recorded)
        if any(report.failure is not None for report, _ in batch):
            self._wake.set()  # there may be room again
        if self._ended:
            self._unrecorded.set()

    async def _first_answer(
        self, report: AttemptReport, recorded: Recorded | LedgerBusyError
    ) -> Recorded | LedgerBusyError:
        """Return what the first record of an end came to, where the answer to it was lost: the second comes late."""
        if isinstance(recorded, LedgerBusyError) or recorded.live or report.token is None:
            return recorded
        if Lease(report.id, report.token) not in self._doubted:
            return recorded
        found = await self._store.find(Filter(ids=(report.id,)), 1)
        attempts = await self._store.attempts(report.id)
        return (recalled(found[0], attempts, report) if found else None) or recorded

    def _tell(self, operation: Operation, recorded: Recorded) -> None:
        if recorded.delay is not None:
            asyncio.get_running_loop().call_later(recorded.delay, self._wake.set)
        hook = self._ledger.announce(operation, recorded)
        if hook is not None:
            task = asyncio.ensure_future(self._call_hook(hook))
            self._hooks.add(task)
            task.add_done_callback(self._hook_done)

    async def _call_hook(self, hook: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with self._hook_places:
            await hook()

    def _hook_done(self, task: asyncio.Task[None]) -> None:
        self._hooks.discard(task)
        self._wake.set()

    # Beside the attempts.

    async def _extend_leases(self) -> None:
        while True:
            await asyncio.sleep(self._settings.lease / _BEATS)
            with contextlib.suppress(LedgerError):  # the next round tries again; the claims say that it is so
                await self._extend()

    async def _extend(self) -> None:
        began = time.monotonic()
        if self._held:
            await self._store.extend(sorted(self._held), self._settings.lease)
        self._extended_at = began

    async def _housekeeping(self) -> None:
        """End the leases of dead owners, and prune, each in its time."""
        prune_at = time.monotonic()
        pause = min(self._settings.poll, self._settings.lease / _BEATS)
        while True:
            with contextlib.suppress(LedgerError):  # as above
                if len(self._hooks) < self._window.limit:
                    if time.monotonic() - self._extended_at >= self._settings.lease:
                        await self._extend()  # behind an outage: its own have ended too, but are not lost
                    await self._find_lost()
                if time.monotonic() >= prune_at:
                    pruned = await self._store.prune(
                        self._settings.keep, [OperationState.SUCCEEDED, OperationState.DISCARDED], _MANY
                    )
                    prune_at = time.monotonic() + (0 if pruned == _MANY else _PRUNE_EVERY)
            await asyncio.sleep(pause)

    async def _find_lost(self) -> None:
        self._lost += await self._store.lost(self.target, self._ledger.policy_of_any, self._ledger.rng, _MANY)
        if not self._lost:
            return
        self._wake.set()
        operations = await self._store.find(Filter(ids=tuple(each.id for each in self._lost)), len(self._lost))
        by_id = {operation.id: operation for operation in operations}
        lost, self._lost = self._lost, []
        for recorded in lost:
            if recorded.id in by_id:
                self._tell(by_id[recorded.id], recorded)

    # Trouble with the database.

    async def _is_troubled(self, error: LedgerError) -> None:
        """Say it once, and try again in a while."""
        _LOG.log(logging.DEBUG if self._troubled else logging.WARNING, "%s: deliveries wait: %s", self.target, error)
        self._troubled = True
        await asyncio.sleep(self._settings.poll)

    def _is_well(self) -> None:
        if self._troubled:
            _LOG.info("%s: deliveries go on", self.target)
            self._troubled = False


def event_of(operation: Operation, recorded: Recorded) -> events.OperationEvent:
    """Return what listeners are told of a report that counted."""
    common: dict[str, Any] = {
        "operation_id": operation.id,
        "target": operation.target,
        "method": operation.method,
        "attempt": recorded.attempts,
        "trace_id": operation.trace_id,
    }
    if recorded.state is OperationState.SUCCEEDED:
        return events.OperationDelivered(**common)
    if recorded.state is OperationState.CONFLICT:
        return events.OperationConflicted(**common, code=recorded.code)
    if recorded.state in FINISHED:
        return events.OperationExhausted(**common, code=recorded.code, reason=recorded.reason)
    kind = events.OperationLost if recorded.code == LOST else events.OperationRetried
    return kind(**common, code=recorded.code, delay=recorded.delay or 0.0, source=recorded.source or "")


def cut(details: str) -> str:
    """Return a server's words as they are kept: at most 1 KiB (LG-1)."""
    return details.encode()[:_DETAILS].decode(errors="ignore").replace("\x00", "")


def _core_report(error: grpc.aio.AioRpcError, link: Link) -> Report:
    metadata = bool(_pairs(error.trailing_metadata()) or _pairs(error.initial_metadata()))
    return Report(error.code().name, error.details() or "", link, metadata)


def _pairs(metadata: Any) -> Metadata:
    return tuple((key, value) for key, value in metadata or ())
