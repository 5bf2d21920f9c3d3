"""Delivers the operations of one channel's target: claims them, makes the calls, and records the results (LG-10).

This is a shell: whether and when another attempt follows is decided in `transitions`, for `recording`. Five tasks
run alongside the attempts: one claims operations (`claims`), one records results in batches (`state`), one only extends
leases, one looks for lost leases and prunes, and one sweeps the database (`upkeep`). None of these tasks waits for a
hook. Hooks run in separate tasks, and while too many hooks are running, nothing is claimed.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools

from grpc_backoff.aio.channel import Channel
from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.base.logs import Log
from grpc_backoff.config.policy_string import parse_policy
from grpc_backoff.config.target import bare_target
from grpc_backoff.decide.calls.call_machine import FailedAttempt
from grpc_backoff.ledger.delivery import upkeep
from grpc_backoff.ledger.delivery.announcing import Announcer
from grpc_backoff.ledger.delivery.calling import Caller, cut
from grpc_backoff.ledger.delivery.claims import Claims
from grpc_backoff.ledger.delivery.state import DeliveryState
from grpc_backoff.ledger.errors import LedgerError
from grpc_backoff.ledger.operation import Operation
from grpc_backoff.ledger.policies import Policies
from grpc_backoff.ledger.records import AttemptReport, Lease
from grpc_backoff.ledger.stores.store import Store
from grpc_backoff.ledger.transactions import claiming
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.ledger_settings import LedgerSettings

_LOG = Log("grpc_backoff")
_MOMENT = 0.01  # seconds between checks of whether a stopping delivery has recorded everything
_NUMBERS = itertools.count(1)  # the numbers of this process's deliveries, which tell whose lease is whose
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
        self._caller = Caller(channel, announcer, rng)
        self._claims = Claims(self._state, channel, f"{owner}:{next(_NUMBERS)}")
        self._tasks: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Query the database for operations at once."""
        self._state.news.set()

    async def run(self) -> None:
        """Deliver until cancelled, or until `end` is called; then give back the operations that were not delivered."""
        state = self._state
        house = upkeep.extend_leases(state), upkeep.keep_house(state, self._policies.of_any), upkeep.sweep(state)
        self._tasks = [asyncio.ensure_future(work) for work in (self._claims.run(self._start), state.record(), *house)]
        try:
            done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
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
        claims, *others = self._tasks
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
                while state.unrecorded or state.flushing:  # noqa: ASYNC110 - it waits for two things, and only at the end
                    await asyncio.sleep(_MOMENT)
        if state.running_hooks:
            await asyncio.wait(state.running_hooks, timeout=patience)
        rest = [*state.running_hooks, *others]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        self._tasks.clear()  # their errors refer to the frames that raised them, and so to this delivery
        # If an attempt ended but could not be recorded, its operation is not given back, because the attempt was made.
        # It is recorded as lost when the lease expires.
        made = (*state.unrecorded, *state.unrecordable)
        given_back = state.held - {Lease.of(operation) for _, operation in made}
        if given_back:
            with contextlib.suppress(LedgerError):  # the leases expire by themselves
                await claiming.release(state.store, sorted(given_back))

    def _start(self, operation: Operation) -> None:
        task = asyncio.ensure_future(self._attempt(operation))
        self._state.running[task] = lease = Lease.of(operation)
        self._state.held.add(lease)
        self._claims.count(operation.method, 1)
        task.add_done_callback(functools.partial(self._done, operation))

    def _done(self, operation: Operation, task: asyncio.Task[None]) -> None:
        state = self._state
        lease = state.running.pop(task)
        self._claims.count(operation.method, -1)
        error: BaseException | None
        if task.cancelled():
            error = None if self._ending is not None else asyncio.CancelledError()  # for example, by an interceptor
        else:
            error = task.exception()
        if error is not None:  # a bug; the lease expires by itself
            state.held.discard(lease)
            _LOG.error("%s: an attempt at operation %s raised", self.target, lease.id, exc_info=error)
        state.room_made.set()
        if operation.method in self._claims.limits or not state.store.hears:
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
            if operation.policy not in self._claims.unknown:
                self._claims.unknown.add(operation.policy)
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
