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
from grpc_backoff.ledger.statements import BATCH

_BEATS = 3
"""How many times a lease is extended within its duration."""
_PRUNE_EVERY = 100.0
"""Seconds between checks for operations to prune."""
_SWEEP_EVERY, _SWEEP_SELDOM = 1.0, 60.0
"""Seconds between sweeps, and the most to which they grow while sweeps are in vain."""
_SWEEP_SHARE = 0.05
"""The part of the time that sweeps may take, because those of a large table take long."""


async def extend_leases(state: DeliveryState) -> None:
    """Extend what is held several times within the duration of a lease (LG-6)."""
    while True:
        await asyncio.sleep(state.settings.lease / _BEATS)
        with contextlib.suppress(LedgerError):  # the next round retries; the claiming task logs it
            await _extend(state)


async def _extend(state: DeliveryState) -> None:
    began = time.monotonic()
    if state.held:
        await claiming.extend(state.store, sorted(state.held), state.settings.lease)
    state.extended_at = began


async def keep_house(state: DeliveryState, policy_of: PolicyOf) -> None:
    """End the leases of dead owners, keep order keys in order, and prune, each at its interval."""
    prune_at = look_at = time.monotonic()
    pause = min(state.settings.poll, state.settings.lease / _BEATS)
    lost: list[Recorded] = []  # attempts that have not been announced yet
    while True:
        with contextlib.suppress(LedgerError):  # as above
            await state.store.look(state.target)
            if not state.is_crowded:
                if time.monotonic() - state.extended_at >= state.settings.lease:
                    await _extend(state)  # after an outage, this process's leases have expired but are not lost
                first = time.monotonic() < look_at
                lost += await recording.lost(state.store, state.target, policy_of, BATCH, first=first)
                await _announce_lost(state, lost)
            if not state.is_crowded:
                await _expire(state)
            await claiming.set_aside(state.store, state.target, BATCH, 2 * state.settings.concurrency)
            if time.monotonic() >= look_at:
                if state.aside:
                    await state.record_what_is_aside()
                    state.room_made.set()
                    state.news.set()  # the next operation of an order key
                await claiming.take_up(state.store)
                look_at = time.monotonic() + state.settings.lease
            # Previous versions stored other spellings.
            await manual.retarget(state.store, state.target, state.target, BATCH, due=True)
            if time.monotonic() >= prune_at:
                pruned = await manual.prune(state.store, state.settings.keep, [*WELL], BATCH)
                prune_at = time.monotonic() + (0 if pruned == BATCH else _PRUNE_EVERY)
        await asyncio.sleep(pause)


async def _announce_lost(state: DeliveryState, lost: list[Recorded]) -> None:
    """Announce lost attempts, unless their operations cannot be read now; then those are left in the list."""
    if lost:
        state.news.set()
        ids = tuple(recorded.id for recorded in lost)
        by_id = {found.id: found for found in await queries.find(state.store, Filter(ids=ids), len(ids))}
        while lost:
            recorded = lost.pop(0)
            if recorded.id in by_id:
                state.announce(by_id[recorded.id], recorded)


async def _expire(state: DeliveryState) -> None:
    for operation in await claiming.expire(state.store, state.target, BATCH):
        state.announce(operation, Recorded(operation.id, operation.state, operation.attempts, live=True))
        state.news.set()  # there may be a next operation of its order key


async def sweep(state: DeliveryState) -> None:
    """Sweep the database, more seldom while that is in vain or takes long."""
    pause = _SWEEP_EVERY
    while True:
        await asyncio.sleep(pause)
        in_vain, began = True, time.monotonic()
        with contextlib.suppress(LedgerError):  # as above
            in_vain = await state.store.sweep()
        at_least = (time.monotonic() - began) / _SWEEP_SHARE
        pause = min(max(2 * pause if in_vain else _SWEEP_EVERY, at_least), _SWEEP_SELDOM)
