"""Upkeep: what a delivery does alongside its attempts, each at its interval (LG-6, LG-11)."""

from __future__ import annotations

import asyncio
import contextlib
import time

from grpc_backoff.ledger import claiming, manual, queries, recording
from grpc_backoff.ledger.delivery_state import DeliveryState
from grpc_backoff.ledger.errors import LedgerError
from grpc_backoff.ledger.records import WELL, Filter, Recorded
from grpc_backoff.ledger.rows import PolicyOf

_MANY = 1000
"""How many rows one housekeeping transaction examines."""
_BEATS = 3
"""How many times a lease is extended within its duration."""
_PRUNE_EVERY = 100.0
"""Seconds between checks for operations to prune."""
_SWEEP_EVERY, _SWEEP_SELDOM = 1.0, 60.0
"""Seconds between sweeps, and the most to which they grow while sweeps are in vain."""
_SWEEP_SHARE = 0.05
"""The part of the time that sweeps may take, because those of a large table take long."""


class Upkeep:
    """Extends leases, ends those of dead owners, keeps order keys in order, prunes and sweeps."""

    def __init__(self, state: DeliveryState, policy_of: PolicyOf) -> None:
        """Begin with leases that are as good as extended; `policy_of` returns the policy that a text describes."""
        self._state = state
        self._policy_of = policy_of
        self._extended_at = time.monotonic()
        self._lost: list[Recorded] = []
        """Lost attempts that have not been announced yet."""

    async def extend_leases(self) -> None:
        """Extend what is held several times within the duration of a lease (LG-6)."""
        while True:
            await asyncio.sleep(self._state.settings.lease / _BEATS)
            with contextlib.suppress(LedgerError):  # the next round retries; the claiming task logs it
                await self._extend()

    async def _extend(self) -> None:
        state = self._state
        began = time.monotonic()
        if state.held:
            await claiming.extend(state.store, sorted(state.held), state.settings.lease)
        self._extended_at = began

    async def keep_house(self) -> None:
        """End the leases of dead owners, keep order keys in order, and prune, each at its interval."""
        state = self._state
        prune_at = look_at = time.monotonic()
        pause = min(state.settings.poll, state.settings.lease / _BEATS)
        while True:
            with contextlib.suppress(LedgerError):  # as above
                await state.store.look(state.target)
                if not state.is_crowded:
                    if time.monotonic() - self._extended_at >= state.settings.lease:
                        await self._extend()  # after an outage, this process's leases have expired but are not lost
                    await self._find_lost(first=time.monotonic() < look_at)
                await self._expire()
                await claiming.set_aside(state.store, state.target, _MANY, 2 * state.settings.concurrency)
                if time.monotonic() >= look_at:
                    if state.aside:
                        await state.record_what_is_aside()
                        state.room_made.set()
                        state.news.set()  # the next operation of an order key
                    await claiming.take_up(state.store)
                    look_at = time.monotonic() + state.settings.lease
                # Previous versions stored other spellings.
                await manual.retarget(state.store, state.target, state.target, _MANY, due=True)
                if time.monotonic() >= prune_at:
                    pruned = await manual.prune(state.store, state.settings.keep, [*WELL], _MANY)
                    prune_at = time.monotonic() + (0 if pruned == _MANY else _PRUNE_EVERY)
            await asyncio.sleep(pause)

    async def _find_lost(self, *, first: bool) -> None:
        state = self._state
        self._lost += await recording.lost(state.store, state.target, self._policy_of, _MANY, first=first)
        if not self._lost:
            return
        state.news.set()
        operations = await queries.find(
            state.store, Filter(ids=tuple(operation.id for operation in self._lost)), len(self._lost)
        )
        by_id = {operation.id: operation for operation in operations}
        lost, self._lost = self._lost, []
        for recorded in lost:
            if recorded.id in by_id:
                state.tell(by_id[recorded.id], recorded)

    async def _expire(self) -> None:
        if self._state.is_crowded:
            return
        for operation in await claiming.expire(self._state.store, self._state.target, _MANY):
            self._state.tell(operation, Recorded(operation.id, operation.state, operation.attempts, live=True))
            self._state.news.set()  # there may be a next operation of its order key

    async def sweep(self) -> None:
        """Sweep the database, more seldom while that is in vain or takes long."""
        pause = _SWEEP_EVERY
        while True:
            await asyncio.sleep(pause)
            in_vain, began = True, time.monotonic()
            with contextlib.suppress(LedgerError):  # as above
                in_vain = await self._state.store.sweep()
            at_least = (time.monotonic() - began) / _SWEEP_SHARE
            pause = min(max(2 * pause if in_vain else _SWEEP_EVERY, at_least), _SWEEP_SELDOM)
