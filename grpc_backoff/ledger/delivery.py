"""Delivers the operations of one channel's target: claims them, makes the calls, and records the results (LG-10).

This is a shell: whether and when another attempt follows is decided in `transitions`, for `recording`. Five tasks
run alongside the attempts: one claims operations, one records results in batches (`delivery_state`), one only extends
leases, one looks for lost leases and prunes, and one sweeps the database (`upkeep`). None of these tasks waits for a
hook. Hooks run in separate tasks, and while too many hooks are running, nothing is claimed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
from collections import Counter

import grpc
import grpc.aio

from grpc_backoff.aio.channel import Channel
from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.config.policy_string import parse_policy
from grpc_backoff.config.target import bare_target
from grpc_backoff.decide.calls.call_machine import FailedAttempt
from grpc_backoff.ledger import claiming, upkeep
from grpc_backoff.ledger.announcing import Announcer
from grpc_backoff.ledger.calling import Caller, cut
from grpc_backoff.ledger.delivery_state import DeliveryState
from grpc_backoff.ledger.errors import LedgerError, LedgerUnavailableError
from grpc_backoff.ledger.preparing import Policies
from grpc_backoff.ledger.records import AttemptReport, Lease, Operation
from grpc_backoff.ledger.store import Store
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.ledger_settings import LedgerSettings

_LOG = logging.getLogger("grpc_backoff")
_MOMENT = 0.01
"""Seconds between checks of whether a stopping delivery has recorded everything."""
_CROWDED = 0.05
"""Seconds to wait after a claim that got none of the due operations because other processes held their locks."""
_PARTS = 4
"""A claim waits a moment until one of so many parts of the room is free; with fewer, too few attempts would run."""
_NUMBERS = itertools.count(1)
"""The numbers of this process's deliveries, which tell whose lease is whose."""
_ONE_ATTEMPT = parse_policy("max_attempts: 1")


class Delivery:
    """One run of `Ledger.deliver`."""

    def __init__(
        self,
        store: Store,
        settings: LedgerSettings,
        policies: Policies,
        announcer: Announcer,
        rng: Random,
        owner: str,
        channel: Channel,
    ) -> None:
        """Start with nothing claimed; `owner` is the name of this process in leases."""
        self.target = bare_target(channel.target)
        self._state = DeliveryState(store, settings, self.target, announcer)
        self._policies = policies
        self._channel = channel
        self._caller = Caller(channel, announcer, rng)
        self._limits = dict(settings.method_concurrency)
        self._by_method: Counter[str] = Counter()
        """The running attempts of the methods that have a limit of their own."""
        self._owner = f"{owner}:{next(_NUMBERS)}"
        self._claims_in_doubt = False
        self._beside: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None
        self._more_due = True
        """Whether the last claim got as many operations as it asked for, so that more may be due."""
        self._unknown: set[str] = set()
        """The texts of policies that are not known here; their operations are left to other deliverers."""

    def wake(self) -> None:
        """Query the database for operations at once."""
        self._state.news.set()

    async def run(self) -> None:
        """Deliver until cancelled, or until `end` is called; then give back the operations that were not delivered."""
        state = self._state
        house = upkeep.extend_leases(state), upkeep.keep_house(state, self._policies.of_any), upkeep.sweep(state)
        self._beside = [asyncio.ensure_future(work) for work in (self._claim(), state.record(), *house)]
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
        state = self._state
        claims, *beside = self._beside
        claims.cancel()
        await asyncio.gather(claims, return_exceptions=True)
        if state.running:
            await asyncio.wait(state.running, timeout=state.settings.grace)
        for task in state.running:
            task.cancel()
        await asyncio.gather(*state.running, return_exceptions=True)
        patience = max(state.settings.grace, state.settings.poll)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                while state.ended or state.flushing:  # noqa: ASYNC110 - it waits for two things, and only at the end
                    await asyncio.sleep(_MOMENT)
        if state.hooks:
            await asyncio.wait(state.hooks, timeout=patience)
        rest = [*state.hooks, *beside]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        # If an attempt ended but could not be recorded, its operation is not given back, because the attempt was made.
        # It is recorded as lost when the lease expires.
        unrecorded = (*state.ended, *state.aside)
        given_back = state.held - {Lease.of(operation) for _, operation in unrecorded}
        if given_back:
            with contextlib.suppress(LedgerError):  # the leases expire by themselves
                await claiming.release(state.store, sorted(given_back))

    # Claiming.

    async def _claim(self) -> None:
        state = self._state
        while True:
            free = state.room()
            if free <= 0:
                state.room_made.clear()
                await state.room_made.wait()
                continue
            if await self._more_end_soon(free):
                continue
            try:
                taken = await self._take(free)
                if state.troubled:
                    _LOG.info("%s: deliveries have resumed", self.target)
                state.troubled = False
                for operation in taken:
                    self._start(operation)
                if not self._more_due:  # wait until one is due that was not when the claim was made
                    due = await self._next_due()
                    if due != 0 or not taken:
                        await self._pause(_CROWDED if due == 0 else due)
            except LedgerError as error:
                await state.is_troubled(error)

    async def _more_end_soon(self, free: int) -> bool:
        """Return whether another attempt ends within a moment, so that one claim can replace several attempts."""
        state = self._state
        if not state.running or _PARTS * free >= state.window:
            return False
        state.room_made.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(state.together):
                await state.room_made.wait()
        return state.room() > free

    async def _take(self, free: int) -> list[Operation]:
        """Claim operations, if the channel is READY; otherwise wait a while for that."""
        state = self._state
        state.news.clear()
        self._more_due = True
        if self._channel.get_state() is not grpc.ChannelConnectivity.READY:
            self._channel.refuse_if_closed()
            state.window = 1
            due = await self._next_due()
            if due is None or due > 0:
                await self._pause(due)
            else:  # waits in slices: while nothing is due, the channel may stop dialling (CB-14)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(state.settings.poll):
                        await self._channel.channel_ready()
            return []
        claim = asyncio.ensure_future(self._claim_up_to(free))
        try:
            return await asyncio.shield(claim)
        except asyncio.CancelledError:  # give back what was claimed
            with contextlib.suppress(LedgerError):
                state.held.update(map(Lease.of, await claim))
            raise

    async def _claim_up_to(self, free: int) -> list[Operation]:
        """Claim operations: first those of methods with a limit of their own, which cannot take all of the room.

        If a later claim fails, those before it count: their operations are this delivery's already. So are those of a
        claim whose answer was lost, which are looked up before the next.
        """
        state = self._state
        owner, lease, without = self._owner, state.settings.lease, tuple(self._unknown)
        claim = functools.partial(claiming.claim, state.store, self.target, owner=owner, lease=lease, without=without)
        taken: list[Operation] = []
        more = False
        try:
            if self._claims_in_doubt:
                taken += await claiming.reclaim(state.store, self.target, owner, lease, state.held)
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
        return await claiming.next_due(self._state.store, self.target, self._unknown, full)

    async def _pause(self, due: float | None) -> None:
        """Wait until an operation is due, a notification arrives, or it is time to poll (LG-12)."""
        state = self._state
        seconds = state.settings.poll if due is None else min(due, state.settings.poll)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await state.news.wait()

    # Attempts.

    def _start(self, operation: Operation) -> None:
        task = asyncio.ensure_future(self._attempt(operation))
        self._state.running[task] = lease = Lease.of(operation)
        self._state.held.add(lease)
        self._by_method[operation.method] += operation.method in self._limits
        task.add_done_callback(functools.partial(self._done, operation))

    def _done(self, operation: Operation, task: asyncio.Task[None]) -> None:
        state = self._state
        lease = state.running.pop(task)
        self._by_method[operation.method] -= operation.method in self._limits
        error: BaseException | None
        if task.cancelled():
            error = None if self._ending is not None else asyncio.CancelledError()  # for example, by an interceptor
        else:
            error = task.exception()
        if error is not None:  # a bug; the lease expires by itself
            state.held.discard(lease)
            _LOG.error("%s: an attempt at operation %s raised", self.target, lease.id, exc_info=error)
        state.room_made.set()
        if operation.method in self._limits or not state.store.hears:
            state.news.set()

    async def _attempt(self, operation: Operation) -> None:
        state = self._state
        if operation.problem is not None:
            failure, problem = FailedAttempt("INTERNAL"), cut(operation.problem)
            state.add(operation, AttemptReport(*Lease.of(operation), _ONE_ATTEMPT, failure, problem))
            return
        try:
            policy = self._policies.of(operation.policy)
        except OptionError as error:  # a deliverer with a newer file may know it
            if operation.policy not in self._unknown:
                self._unknown.add(operation.policy)
                _LOG.warning("%s: operations with this policy are left to other deliverers: %s", self.target, error)
            await self._release(operation)
            return
        ended = await self._caller.attempt(operation, policy, policy.timeout or state.settings.attempt_timeout)
        if ended is None:
            state.window = 1
            await self._release(operation)
        else:
            state.add(operation, ended)
            state.widen()

    async def _release(self, operation: Operation) -> None:
        state = self._state
        with contextlib.suppress(LedgerError):  # otherwise the lease expires by itself
            await claiming.release(state.store, [Lease.of(operation)])
        state.held.discard(Lease.of(operation))
        state.news.set()
