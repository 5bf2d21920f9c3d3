"""The claims of a delivery: as many operations as there is room for, when they are due, oldest first (LG-6, LG-10)."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import Counter
from collections.abc import Callable

import grpc

from grpc_backoff.aio.channel import Channel
from grpc_backoff.base.logs import Log
from grpc_backoff.ledger.delivery.state import DeliveryState
from grpc_backoff.ledger.errors import LedgerError, LedgerUnavailableError
from grpc_backoff.ledger.operation import Operation
from grpc_backoff.ledger.records import Lease
from grpc_backoff.ledger.transactions import claiming

_LOG = Log("grpc_backoff")
_CROWDED = 0.05
"""Seconds to wait after a claim that got none of the due operations because other processes held their locks."""
_PARTS = 4
"""A claim waits a moment until one of so many parts of the room is free; with fewer, too few attempts would run."""


class Claims:
    """Claims operations of a channel's target, and starts their attempts.

    Attributes:
        limits: how many attempts of a method may run, for the methods that have a limit of their own.
        unknown: the texts of policies that are not known here; their operations are left to other deliverers.
    """

    def __init__(self, state: DeliveryState, channel: Channel, owner: str) -> None:
        """Claim for the delivery that `owner` names in leases."""
        self.limits = dict(state.settings.method_concurrency)
        self.unknown: set[str] = set()
        self._state = state
        self._channel = channel
        self._owner = owner
        self._by_method: Counter[str] = Counter()
        self._in_doubt = False
        self._more_due = True
        """Whether the last claim got as many operations as it asked for, so that more may be due."""

    def count(self, method: str, change: int) -> None:
        """Count an attempt of a method that has begun (1) or ended (-1)."""
        if method in self.limits:
            self._by_method[method] += change

    async def run(self, start: Callable[[Operation], None]) -> None:
        """Claim operations, whenever there is room for more, until cancelled; `start` begins an attempt."""
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
                    _LOG.info("%s: deliveries have resumed", state.target)
                state.troubled = False
                for operation in taken:
                    start(operation)
                if not self._more_due:  # wait until one is due that was not when the claim was made
                    due = await self._next_due()
                    if due != 0 or not taken:
                        await self._pause(_CROWDED if due == 0 else due)
            except LedgerError as error:
                await state.pause_after(error)

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
        owner, lease, without = self._owner, state.settings.lease, tuple(self.unknown)
        claim = functools.partial(claiming.claim, state.store, state.target, owner=owner, lease=lease, without=without)
        taken: list[Operation] = []
        more = False
        try:
            if self._in_doubt:
                taken += await claiming.reclaim(state.store, state.target, owner, lease, state.held)
                self._in_doubt = False
            for method, limit in self.limits.items():
                room = min(limit - self._by_method[method], free - len(taken))
                if room > 0:
                    some = await claim(limit=room, method=method)
                    more |= len(some) == room
                    taken += some
            if len(taken) < free:
                taken += await claim(limit=free - len(taken), methods_without=tuple(self.limits))
            self._more_due = more or len(taken) == free
        except LedgerError as error:
            self._in_doubt |= isinstance(error, LedgerUnavailableError) and error.stored is None
            if not taken:
                raise
        return taken

    async def _next_due(self) -> float | None:
        full = [method for method, limit in self.limits.items() if self._by_method[method] >= limit]
        return await claiming.next_due(self._state.store, self._state.target, self.unknown, full)

    async def _pause(self, due: float | None) -> None:
        """Wait until an operation is due, a notification arrives, or it is time to poll (LG-12)."""
        state = self._state
        seconds = state.settings.poll if due is None else min(due, state.settings.poll)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await state.news.wait()
