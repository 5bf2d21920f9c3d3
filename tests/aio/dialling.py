"""The connector on grpcio's C-core as a coroutine, as the checks of all connectors use it."""

from __future__ import annotations

import asyncio

from grpc_backoff import ConnectError
from grpc_backoff.aio.core_connector import CoreConnector
from grpc_backoff.aio.loops import clock_of
from grpc_backoff.decide.connections.events import Failure
from tests.setups import pool_setup


class Dialler:
    """Makes one attempt at a time; its connections have the method `lost` of a `Connection`."""

    def __init__(self, target, credentials, options, policy, *, clock, loop):
        self.core = CoreConnector(
            pool_setup(target, options, credentials, policy=policy, clock=clock), "", clock_of(loop)
        )
        self.core.lost = self._look
        self.close = self.core.close
        self.attempt = None
        self._loop = loop
        self._losses = {}

    async def connect(self, limit):
        outcome = self._loop.create_future()
        self.attempt = self.core.dial(limit, lambda found: outcome.done() or outcome.set_result(found))
        try:
            found = await outcome
        except asyncio.CancelledError:
            self.attempt.abandon()
            raise
        if isinstance(found, Failure):
            raise ConnectError(found)
        lost = self._losses[found] = self._loop.create_future()
        found.lost = lambda: asyncio.shield(lost)
        self._look()
        return found

    def _look(self):
        for connection, lost in self._losses.items():
            loss = connection.loss()
            if loss is not None and not lost.done():
                lost.set_result(loss)
