"""`check_connector` detects a faulty connector."""

from __future__ import annotations

import asyncio

import pytest

from grpc_backoff import ConnectError, Failure, Stage
from grpc_backoff.probe.http2 import Http2Connector
from grpc_backoff.testing import ScriptedConnection
from tests.connectors import check_connector


class Naive:
    """Treats an accepted TCP connection as success and closes it only at the end."""

    def __init__(self, target):
        self.port = int(target.rpartition(":")[2])
        self.writers = []

    async def connect(self, limit):
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
    """CB-6: a connector that does not wait for SETTINGS is detected. Takes about a second of real time."""
    with pytest.raises(AssertionError):
        await check_connector(Naive)


class Hasty(Http2Connector):
    """Gives an attempt only half of its time."""

    async def connect(self, limit):
        return await super().connect(limit / 2)


async def test_a_connector_that_gives_up_before_the_limit_is_caught():
    """CB-3: a connector that gives up before the limit is detected. Takes about four seconds of real time."""
    with pytest.raises(AssertionError, match="an attempt must not end before its limit"):
        await check_connector(Hasty)


class Deaf(Http2Connector):
    """Ignores cancellation and keeps its socket open."""

    async def connect(self, limit):
        kept.append(asyncio.ensure_future(super().connect(5 * limit)))
        return await asyncio.shield(kept[-1])


kept = []


async def test_a_connector_that_keeps_its_socket_is_caught():
    """CB-3: a connector that keeps its socket open after the limit is detected. Takes about five seconds."""
    with pytest.raises(AssertionError, match="after the limit"):
        await check_connector(Deaf)
    for task in kept:
        task.cancel()
    await asyncio.gather(*kept, return_exceptions=True)
