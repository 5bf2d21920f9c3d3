"""Upkeep: what a delivery does alongside its attempts, each at its interval (LG-6, LG-11)."""

from __future__ import annotations

import asyncio
import contextlib
import time

from grpc_backoff.ledger.delivery.state import DeliveryState
from grpc_backoff.ledger.errors import LedgerError
from grpc_backoff.ledger.operation import WELL
from grpc_backoff.ledger.records import Filter, Recorded
from grpc_backoff.ledger.stores.statements import BATCH
from grpc_backoff.ledger.transactions import claiming, manual, order_keys, queries, recording
from grpc_backoff.ledger.transitions import PolicyOf

_BEATS = 3  # how many times a lease is extended within its duration
_PRUNE_EVERY = 100.0  # seconds between checks for operations to prune
_SWEEP_EVERY, _SWEEP_SELDOM = 1.0, 60.0
"""Seconds between sweeps, and the most to which they grow while sweeps are in vain."""
_SWEEP_SHARE = 0.05  # the part of the time that sweeps may take, because those of a large table take long


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
            await claiming.find_floor(state.store, state.target)
            if not state.is_crowded:
                await _lose(state, policy_of, lost, first=time.monotonic() < look_at)
            if not state.is_crowded:
                await _expire(state)
            await order_keys.set_aside(state.store, state.target, BATCH, 2 * state.settings.concurrency)
            if time.monotonic() >= look_at:
                await state.retry_unrecordable()
                await order_keys.take_up(state.store)
                look_at = time.monotonic() + state.settings.lease
            # Previous versions stored other spellings.
            await manual.retarget(state.store, state.target, state.target, BATCH, due=True)
            if time.monotonic() >= prune_at:
                pruned = await manual.prune(state.store, state.settings.keep, [*WELL], BATCH)
                prune_at = time.monotonic() + (0 if pruned == BATCH else _PRUNE_EVERY)
        await asyncio.sleep(pause)


async def _lose(state: DeliveryState, policy_of: PolicyOf, lost: list[Recorded], *, first: bool) -> None:
    """Record and announce lost attempts; if their operations cannot be read now, those are left in the list."""
    if time.monotonic() - state.extended_at >= state.settings.lease:
        await _extend(state)  # after an outage, this process's leases have expired but are not lost
    lost += await recording.lost(state.store, state.target, policy_of, BATCH, first=first)
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
