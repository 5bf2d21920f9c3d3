"""Delivers the operations of one channel's target: claims them, makes the calls, and records the results (LG-10).

This is a shell: the store decides whether and when another attempt follows, by the rules in `transitions`. Five tasks
run alongside the attempts: one claims operations, one records results in batches, one only extends leases, one looks
for lost leases and prunes, and one sweeps the database. None of these tasks waits for a hook. Hooks run in separate
tasks, and while too many hooks are running, nothing is claimed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import grpc
import grpc.aio

from grpc_backoff.aio.call_errors import NoConnectionError
from grpc_backoff.aio.channel import Channel
from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.config.policy_string import parse_policy
from grpc_backoff.config.target import bare_target
from grpc_backoff.decide.calls.call_machine import NonOkStatus, ran_out
from grpc_backoff.decide.calls.decision import FailedAttempt
from grpc_backoff.decide.calls.server_hint import read_hint
from grpc_backoff.decide.connections.core_texts import (
    TIMED_OUT,
    Link,
    Report,
    is_oversized,
    never_left,
    never_ran,
    was_cut,
    was_refused,
)
from grpc_backoff.ledger import operation_events
from grpc_backoff.ledger.errors import LedgerBusyError, LedgerError, LedgerStateError, LedgerUnavailableError
from grpc_backoff.ledger.operation_hooks import LedgerHooks, call_hook, run_hook
from grpc_backoff.ledger.records import (
    FINISHED,
    LOST,
    WELL,
    AttemptReport,
    Filter,
    Lease,
    Metadata,
    Operation,
    OperationState,
    Recorded,
)
from grpc_backoff.ledger.slow_start import AttemptWindow
from grpc_backoff.ledger.store import Store
from grpc_backoff.ledger.transitions import recalled
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.ledger_settings import LedgerSettings
from grpc_backoff.policy.retry import RetryPolicy

_LOG = logging.getLogger("grpc_backoff")
_KEY = "idempotency-key"
_ATTEMPTS_BEFORE = "grpc-previous-rpc-attempts"
_DETAILS = 1024
"""How many bytes of a server's status details are kept (LG-1)."""
_MANY = 1000
"""How many rows one housekeeping transaction examines."""
_MOMENT = 0.01
"""Seconds between checks of whether a stopping delivery has recorded everything."""
_CROWDED = 0.05
"""Seconds to wait after a claim that got none of the due operations because other processes held their locks."""
_TOGETHER = 0.005
"""Seconds to wait for attempts to end together, which saves claims and recordings."""
_PARTS = 4
"""A claim waits a moment until one of so many parts of the room is free; with fewer, too few attempts would run."""
_BEATS = 3
"""How many times a lease is extended within its duration."""
_NUMBERS = itertools.count(1)
"""The numbers of this process's deliveries, which tell whose lease is whose."""
_ONE_ATTEMPT = parse_policy("max_attempts: 1")
_PRUNE_EVERY = 100.0
"""Seconds between checks for operations to prune."""
_SWEEP_EVERY, _SWEEP_SELDOM = 1.0, 60.0
"""Seconds between sweeps, and the most to which they grow while sweeps are in vain."""
_SWEEP_SHARE = 0.05
"""The part of the time that sweeps may take, because those of a large table take long."""


class DeliveringLedger(Protocol):
    """What a delivery needs of its ledger."""

    store: Store
    settings: LedgerSettings
    hooks: LedgerHooks
    rng: Random
    owner: str

    def announce(self, operation: Operation, recorded: Recorded) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """Announce the result of a report to the listeners; return the hook to call next, or None (LG-7)."""
        ...

    def policy_of(self, text: str) -> RetryPolicy:
        """Return the policy described by an operation's text; OptionError if it is unknown."""
        ...

    def policy_of_any(self, text: str) -> RetryPolicy:
        """Return the policy described by an operation's text, or the default policy if it is unknown."""
        ...


class Delivery:
    """One run of `Ledger.deliver`."""

    def __init__(self, ledger: DeliveringLedger, channel: Channel, concurrency: int, grace: float) -> None:
        """Start with nothing claimed."""
        self._ledger = ledger
        self._store = ledger.store
        self._settings = ledger.settings
        self._channel = channel
        self._grace = grace
        self._window = AttemptWindow(concurrency)
        self._running: dict[asyncio.Task[None], Lease] = {}
        self._limits = dict(ledger.settings.method_concurrency)
        self._by_method: Counter[str] = Counter()
        """The running attempts of the methods that have a limit of their own."""
        self._ended: list[tuple[AttemptReport, Operation]] = []
        self._aside: list[tuple[AttemptReport, Operation]] = []
        """What cannot be recorded, because the database rejects the row or it cannot be read."""
        self._held: set[Lease] = set()
        self._owner = f"{ledger.owner}:{next(_NUMBERS)}"
        self._claims_in_doubt = False
        self._methods: dict[str, Any] = {}
        self._credentials: Metadata = ()
        self._doubted: set[Lease] = set()
        """Leases whose results may already be recorded, because the database's answer was lost."""
        self._lost: list[Recorded] = []
        """Lost attempts that have not been announced yet."""
        self._hooks: set[asyncio.Task[None]] = set()
        self._hook_places = asyncio.Semaphore(concurrency)
        self._beside: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        """Set when an operation may be due that no claim has seen."""
        self._room_made = asyncio.Event()
        """Set when more operations may be claimed than before."""
        self._more_due = True
        """Whether the last claim got as many operations as it asked for, so that more may be due."""
        self._unrecorded = asyncio.Event()
        self._extended_at = time.monotonic()
        self._flushing = False
        self._troubled = False
        self._unknown: set[str] = set()
        """The texts of policies that are not known here; their operations are left to other deliverers."""
        self.target = bare_target(channel.target)

    def wake(self) -> None:
        """Query the database for operations at once."""
        self._news.set()

    async def run(self) -> None:
        """Deliver until cancelled, or until `end` is called; then give back the operations that were not delivered."""
        work = (self._claim(), self._record(), self._extend_leases(), self._housekeeping(), self._sweep())
        self._beside = [asyncio.ensure_future(coroutine) for coroutine in work]
        try:
            done, _ = await asyncio.wait(self._beside, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                if not task.cancelled():  # `end` cancels it
                    task.result()
        finally:
            await asyncio.shield(self.end())

    def end(self) -> asyncio.Task[None]:
        """Start to wind up, unless that has begun; return the task, which continues even if its waiter is cancelled."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._wind_up())
        return self._ending

    async def _wind_up(self) -> None:
        """Let running attempts finish within the grace period, record the results, and give back the rest."""
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
                while self._ended or self._flushing:  # noqa: ASYNC110 - it waits for two things, and only at the end
                    await asyncio.sleep(_MOMENT)
        if self._hooks:
            await asyncio.wait(self._hooks, timeout=patience)
        rest = [*self._hooks, *beside]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        # If an attempt ended but could not be recorded, its operation is not given back, because the attempt was made.
        # It is recorded as lost when the lease expires.
        given_back = self._held - {_lease_of(operation) for _, operation in (*self._ended, *self._aside)}
        if given_back:
            with contextlib.suppress(LedgerError):  # the leases expire by themselves
                await self._store.claiming.release(sorted(given_back))

    # Claiming.

    async def _claim(self) -> None:
        while True:
            free = self._room()
            if free <= 0:
                self._room_made.clear()
                if self._room() <= 0:
                    await self._room_made.wait()
                continue
            if await self._more_end_soon(free):
                continue
            try:
                taken = await self._take(free)
                if self._troubled:
                    _LOG.info("%s: deliveries have resumed", self.target)
                self._troubled = False
                for operation in taken:
                    self._start(operation)
                if not self._more_due:
                    await self._wait_until_due(crowded=not taken)
            except LedgerError as error:
                await self._is_troubled(error)

    async def _more_end_soon(self, free: int) -> bool:
        """Return whether another attempt ends within a moment, so that one claim can replace several attempts."""
        if not self._running or _PARTS * free >= self._window.size:
            return False
        self._room_made.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TOGETHER):
                await self._room_made.wait()
        return self._room() > free

    def _room(self) -> int:
        """Return how many more operations may be claimed, given the running attempts and the backlog of hooks."""
        if len(self._aside) >= _MANY:  # something is wrong with more than a few rows
            return 0
        hooks, behind = self._ledger.hooks, len(self._hooks)
        if any((hooks.on_exhausted, hooks.on_conflict, hooks.on_blocked)):
            behind += sum(report.failure is not None for report, _ in self._ended)
        return min(self._window.size, self._window.limit - behind) - len(self._running)

    async def _take(self, free: int) -> list[Operation]:
        """Claim operations, if the channel is READY; otherwise wait a while for that."""
        self._news.clear()
        self._more_due = True
        if self._channel.get_state() is not grpc.ChannelConnectivity.READY:
            self._channel.refuse_if_closed()
            self._window = self._window.closed()
            due = await self._next_due()
            if due is None or due > 0:
                await self._pause(due)
            else:  # waits in slices: while nothing is due, the channel may stop dialling (CB-14)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.poll):
                        await self._channel.channel_ready()
            return []
        claim = asyncio.ensure_future(self._claim_up_to(free))
        try:
            taken = await asyncio.shield(claim)
        except asyncio.CancelledError:  # give back what was claimed
            with contextlib.suppress(LedgerError):
                self._held.update(map(_lease_of, await claim))
            raise
        return taken

    async def _wait_until_due(self, *, crowded: bool) -> None:
        """Wait until an operation may be due that was not when the last claim was made."""
        due = await self._next_due()
        if due != 0:
            await self._pause(due)
        elif crowded:
            await self._pause(_CROWDED)

    async def _claim_up_to(self, free: int) -> list[Operation]:
        """Claim operations: first those of methods with a limit of their own, which cannot take all of the room.

        If a later claim fails, those before it count: their operations are this delivery's already. So are those of a
        claim whose answer was lost, which are looked up before the next.
        """
        claim = functools.partial(
            self._store.claiming.claim,
            self.target,
            owner=self._owner,
            lease=self._settings.lease,
            without=tuple(self._unknown),
        )
        taken: list[Operation] = []
        more = False
        try:
            if self._claims_in_doubt:
                taken += await self._store.claiming.reclaim(self.target, self._owner, self._settings.lease, self._held)
                self._claims_in_doubt = False
            for method, limit in self._limits.items():
                room = min(limit - self._by_method[method], free - len(taken))
                if room > 0:
                    some = await claim(limit=room, method=method)
                    more |= len(some) == room
                    taken += some
            if len(taken) < free:
                taken += await claim(limit=free - len(taken), methods_without=tuple(self._limits))
            self._more_due = more or len(taken) == free
        except LedgerError as error:
            self._claims_in_doubt |= isinstance(error, LedgerUnavailableError) and error.stored is None
            if not taken:
                raise
        return taken

    async def _next_due(self) -> float | None:
        full = [method for method, limit in self._limits.items() if self._by_method[method] >= limit]
        return await self._store.claiming.next_due(self.target, self._unknown, full)

    async def _pause(self, due: float | None) -> None:
        """Wait until an operation is due, a notification arrives, or it is time to poll (LG-12)."""
        seconds = self._settings.poll if due is None else min(due, self._settings.poll)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    # Attempts.

    def _start(self, operation: Operation) -> None:
        task = asyncio.ensure_future(self._attempt(operation))
        self._running[task] = lease = _lease_of(operation)
        self._held.add(lease)
        self._by_method[operation.method] += operation.method in self._limits
        task.add_done_callback(functools.partial(self._done, operation))

    def _done(self, operation: Operation, task: asyncio.Task[None]) -> None:
        lease = self._running.pop(task)
        self._by_method[operation.method] -= operation.method in self._limits
        error: BaseException | None
        if task.cancelled():
            error = None if self._ending is not None else asyncio.CancelledError()  # for example, by an interceptor
        else:
            error = task.exception()
        if error is not None:  # a bug; the lease expires by itself
            self._held.discard(lease)
            _LOG.error("%s: an attempt at operation %s raised", self.target, lease.id, exc_info=error)
        self._room_made.set()
        if operation.method in self._limits or not self._store.hears:
            self._news.set()

    async def _attempt(self, operation: Operation) -> None:
        if operation.problem is not None:
            failure = FailedAttempt("INTERNAL")
            self._report(operation, AttemptReport(*_lease_of(operation), _ONE_ATTEMPT, failure, cut(operation.problem)))
            return
        try:
            policy = self._ledger.policy_of(operation.policy)
        except OptionError as error:
            await self._leave_to_others(operation, error)
            return
        timeout = policy.timeout or self._settings.attempt_timeout
        began = time.monotonic()
        try:
            response = await self._call(operation, timeout)
        except grpc.aio.AioRpcError as error:
            if self._never_left(error):
                self._window = self._window.closed()
                await self._release(operation)
                return
            await self._failed(operation, policy, error, took=time.monotonic() - began, limit=timeout)
        else:
            await self._succeeded(operation, policy, response)
        self._window = self._window.grown()

    async def _leave_to_others(self, operation: Operation, error: OptionError) -> None:
        """Give back an operation whose policy is unknown here and claim none with this policy again.

        A deliverer with a newer file may know it.
        """
        if operation.policy not in self._unknown:
            self._unknown.add(operation.policy)
            _LOG.warning("%s: operations with this policy are left to other deliverers: %s", self.target, error)
        await self._release(operation)

    async def _call(self, operation: Operation, timeout: float) -> bytes:  # noqa: ASYNC109 - it is the timeout of the call
        """Make one attempt, without retries by the channel or service config, and without waiting for a connection."""
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
            pairs.append((_ATTEMPTS_BEFORE, str(operation.attempts)))  # RT-10; a core that may retry removes it
        return grpc.aio.Metadata(*pairs)

    def _never_left(self, error: grpc.aio.AioRpcError) -> bool:
        """Return whether the server has not seen the attempt, in which case it does not count (LG-10)."""
        if isinstance(error, NoConnectionError):
            return True
        ready = self._channel.get_state() is grpc.ChannelConnectivity.READY
        report = _core_report(error, Link.OPEN if ready else Link.UNREACHABLE)
        return never_left(report) or was_refused(report)

    async def _release(self, operation: Operation) -> None:
        with contextlib.suppress(LedgerError):  # otherwise the lease expires by itself
            await self._store.claiming.release([_lease_of(operation)])
        self._held.discard(_lease_of(operation))
        self._news.set()

    async def _succeeded(self, operation: Operation, policy: RetryPolicy, response: bytes) -> None:
        hook = self._ledger.hooks.on_success
        if hook is not None:
            await run_hook(self.target, hook, operation, response)
        most = operation.keep_response
        kept = response if most is not None and len(response) <= most else None
        self._report(operation, AttemptReport(*_lease_of(operation), policy, response=kept))

    async def _failed(
        self, operation: Operation, policy: RetryPolicy, error: grpc.aio.AioRpcError, *, took: float, limit: float
    ) -> None:
        code, report = error.code().name, _core_report(error, Link.OPEN)
        trailing, initial = _pairs(error.trailing_metadata()), _pairs(error.initial_metadata())
        late = ran_out(NonOkStatus(code, cut=was_cut(report)), limit, took)
        failure = FailedAttempt(
            TIMED_OUT if late else code,
            hint=read_hint(trailing, initial, time.time),
            own_timeout=took >= limit,
            oversized=is_oversized(report),
            never_ran=never_ran(report, (*initial, *trailing)),
        )
        refresh = self._ledger.hooks.refresh_credentials
        renewed = False
        if refresh is not None and code == grpc.StatusCode.UNAUTHENTICATED.name:
            renewed = await self._renew(refresh, operation)
        attempt_report = AttemptReport(*_lease_of(operation), policy, failure, cut(error.details() or ""), renewed)
        self._report(operation, attempt_report._replace(draw=self._ledger.rng.random()))

    async def _renew(self, refresh: Callable[..., Any], operation: Operation) -> bool:
        """Call the hook for new credentials and keep them in memory only (LG-11); return whether it succeeded."""
        try:
            renewed = await call_hook(refresh, operation)
            self._credentials = tuple((str(key), value) for key, value in renewed or ())
        except Exception:  # noqa: BLE001 - a hook is user code
            _LOG.exception("%s: the hook refresh_credentials raised", self.target)
            return False
        return True

    # Recording.

    def _report(self, operation: Operation, report: AttemptReport) -> None:
        self._ended.append((report, operation))
        self._unrecorded.set()

    async def _record(self) -> None:
        """Record the ends of attempts; those that end during a transaction share the next one."""
        while True:
            await self._unrecorded.wait()
            if self._running and 2 * len(self._ended) < self._window.size:
                await asyncio.sleep(_TOGETHER)
            self._flushing = True
            try:
                await self._flush()
            except LedgerError as error:  # the reports are still in `_ended`
                await self._is_troubled(error)
            finally:
                self._flushing = False

    async def _flush(self) -> None:
        batch = self._ended[:_MANY]
        self._unrecorded.clear()
        try:
            answers = await self._store.recording.record([report for report, _ in batch])
            answers = [
                await self._first_answer(report, answer) for (report, _), answer in zip(batch, answers, strict=True)
            ]
        except BaseException:
            self._doubted.update(_lease_of(operation) for _, operation in batch)
            self._unrecorded.set()
            raise
        del self._ended[: len(batch)]
        for (report, operation), recorded in zip(batch, answers, strict=True):
            if isinstance(recorded, LedgerStateError):
                _LOG.error(
                    "%s: the end of an attempt at operation %s cannot be recorded, so it is set aside and recorded "
                    "once that is possible: %s",
                    self.target,
                    operation.id,
                    recorded,
                )
                self._aside.append((report, operation))
            else:
                self._settle(report, operation, recorded)
        if any(report.failure is not None or operation.order_key is not None for report, operation in batch):
            self._room_made.set()  # of hooks
            self._news.set()  # the next operation of an order key
        if self._ended:
            self._unrecorded.set()

    def _settle(self, report: AttemptReport, operation: Operation, recorded: Recorded | LedgerBusyError) -> None:
        if isinstance(recorded, LedgerBusyError):
            self._report(operation, report)
        else:
            self._held.discard(_lease_of(operation))
            self._doubted.discard(_lease_of(operation))
            self._tell(operation, recorded)

    async def _record_what_is_aside(self) -> None:
        """Try again to record what was set aside; its leases are extended meanwhile, so that nothing runs again."""
        aside, self._aside = self._aside, []
        while aside:
            report, operation = aside[-1]
            try:
                [answer] = await self._store.recording.record([report])
            except BaseException:
                self._aside += aside
                raise
            aside.pop()
            if isinstance(answer, LedgerStateError):
                self._aside.append((report, operation))
            else:
                self._settle(report, operation, answer)

    async def _first_answer(
        self, report: AttemptReport, recorded: Recorded | LedgerBusyError | LedgerStateError
    ) -> Recorded | LedgerBusyError | LedgerStateError:
        """Return the first recording's result if its answer was lost, because a second recording counts as late."""
        if not isinstance(recorded, Recorded) or recorded.live or report.token is None:
            return recorded
        if Lease(report.id, report.token) not in self._doubted:
            return recorded
        found = await self._store.queries.find(Filter(ids=(report.id,)), 1)
        attempts = await self._store.queries.attempts(report.id)
        return (recalled(found[0], attempts, report) if found else None) or recorded

    def _tell(self, operation: Operation, recorded: Recorded) -> None:
        if recorded.delay is not None:
            asyncio.get_running_loop().call_later(recorded.delay, self._news.set)
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
        self._room_made.set()

    # Tasks that run alongside the attempts.

    async def _extend_leases(self) -> None:
        while True:
            await asyncio.sleep(self._settings.lease / _BEATS)
            with contextlib.suppress(LedgerError):  # the next round retries; the claiming task logs it
                await self._extend()

    async def _extend(self) -> None:
        began = time.monotonic()
        if self._held:
            await self._store.claiming.extend(sorted(self._held), self._settings.lease)
        self._extended_at = began

    async def _housekeeping(self) -> None:
        """End the leases of dead owners, keep order keys in order, and prune, each at its interval."""
        prune_at = look_at = time.monotonic()
        pause = min(self._settings.poll, self._settings.lease / _BEATS)
        while True:
            with contextlib.suppress(LedgerError):  # as above
                await self._store.look(self.target)
                if len(self._hooks) < self._window.limit:
                    if time.monotonic() - self._extended_at >= self._settings.lease:
                        await self._extend()  # after an outage, this process's leases have expired but are not lost
                    await self._find_lost(first=time.monotonic() < look_at)
                await self._expire()
                await self._store.order_keys.set_aside(self.target, _MANY, 2 * self._window.limit)
                if time.monotonic() >= look_at:
                    if self._aside:
                        await self._record_what_is_aside()
                        self._room_made.set()
                        self._news.set()  # the next operation of an order key
                    await self._store.order_keys.take_up()
                    look_at = time.monotonic() + self._settings.lease
                await self._store.manual.retarget(
                    self.target, self.target, _MANY, due=True
                )  # previous versions' spellings
                if time.monotonic() >= prune_at:
                    pruned = await self._store.manual.prune(self._settings.keep, [*WELL], _MANY)
                    prune_at = time.monotonic() + (0 if pruned == _MANY else _PRUNE_EVERY)
            await asyncio.sleep(pause)

    async def _find_lost(self, *, first: bool) -> None:
        self._lost += await self._store.recording.lost(self.target, self._ledger.policy_of_any, _MANY, first=first)
        if not self._lost:
            return
        self._news.set()
        operations = await self._store.queries.find(
            Filter(ids=tuple(operation.id for operation in self._lost)), len(self._lost)
        )
        by_id = {operation.id: operation for operation in operations}
        lost, self._lost = self._lost, []
        for recorded in lost:
            if recorded.id in by_id:
                self._tell(by_id[recorded.id], recorded)

    async def _expire(self) -> None:
        if len(self._hooks) >= self._window.limit:
            return
        for operation in await self._store.claiming.expire(self.target, _MANY):
            self._tell(operation, Recorded(operation.id, operation.state, operation.attempts, live=True))
            self._news.set()  # there may be a next operation of its order key

    async def _sweep(self) -> None:
        pause = _SWEEP_EVERY
        while True:
            await asyncio.sleep(pause)
            in_vain, began = True, time.monotonic()
            with contextlib.suppress(LedgerError):  # as above
                in_vain = await self._store.sweep()
            at_least = (time.monotonic() - began) / _SWEEP_SHARE
            pause = min(max(2 * pause if in_vain else _SWEEP_EVERY, at_least), _SWEEP_SELDOM)

    # Trouble with the database.

    async def _is_troubled(self, error: LedgerError) -> None:
        """Log the first of a series of errors as a warning and wait before trying again."""
        _LOG.log(
            logging.DEBUG if self._troubled else logging.WARNING, "%s: deliveries have paused: %s", self.target, error
        )
        self._troubled = True
        await asyncio.sleep(self._settings.poll)


def event_of(operation: Operation, recorded: Recorded) -> operation_events.OperationEvent:
    """Return the event for a report on the current attempt of an operation."""
    common: dict[str, Any] = {
        "operation_id": operation.id,
        "target": operation.target,
        "method": operation.method,
        "attempt": recorded.attempts,
        "trace_id": operation.trace_id,
    }
    if recorded.state is OperationState.SUCCEEDED:
        return operation_events.OperationDelivered(**common)
    if recorded.state is OperationState.CONFLICT:
        return operation_events.OperationConflicted(**common, code=recorded.code)
    if recorded.state is OperationState.EXPIRED:
        return operation_events.OperationExpired(**common)
    if recorded.state in FINISHED:
        return operation_events.OperationExhausted(**common, code=recorded.code, reason=recorded.reason)
    kind = operation_events.OperationLost if recorded.code == LOST else operation_events.OperationRetried
    return kind(**common, code=recorded.code, delay=recorded.delay or 0.0, source=recorded.source or "")


def _lease_of(operation: Operation) -> Lease:
    return Lease(operation.id, operation.lease_token)


def cut(details: str) -> str:
    """Truncate a server's status details to the 1 KiB that is kept (LG-1)."""
    return details.encode(errors="replace")[:_DETAILS].decode(errors="ignore").replace("\x00", "")


def _core_report(error: grpc.aio.AioRpcError, link: Link) -> Report:
    metadata = bool(_pairs(error.trailing_metadata()) or _pairs(error.initial_metadata()))
    return Report(error.code().name, error.details() or "", link, metadata)


def _pairs(metadata: Any) -> Metadata:
    return tuple((key, value) for key, value in metadata or ())
