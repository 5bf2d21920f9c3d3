"""The checks of a connector catch one that is wrong."""

from __future__ import annotations

import asyncio

import pytest

from grpc_backoff import ConnectError, Failure, Stage
from grpc_backoff.testing import ScriptedConnection
from grpc_backoff.testing.checks import check_connector


class Naive:
    """Takes an accepted TCP connection for success and forgets to close it."""

    def __init__(self, target):
        self.port = int(target.rpartition(":")[2])
        self.writers = []

    async def connect(self, limit, revive):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError as error:
            raise ConnectError(Failure(Stage.TCP, str(error))) from error
        self.writers.append(writer)
        return ScriptedConnection()

    async def close(self, grace):
        for writer in self.writers:
            writer.close()


async def test_a_connector_that_does_not_wait_for_settings_is_caught():
    """CB-6: accepting is not success. Takes about a second of real time."""
    with pytest.raises(AssertionError):
        await check_connector(Naive)
