"""The scripted connector follows its script."""

from __future__ import annotations

import asyncio

import pytest

from grpc_backoff import ConnectError, OptionError
from grpc_backoff.testing import Fails, FakeClock, Hangs, ScriptedConnector, Succeeds


async def test_outcomes_in_order_and_the_last_for_ever():
    """CB-3: outcomes follow the script, the last outcome repeats, and each attempt is recorded."""
    clock = FakeClock(0.0)
    connector = ScriptedConnector(clock, [Succeeds(1), Fails(2)])
    first = asyncio.ensure_future(connector.connect(20))
    await clock.advance(1)
    await first
    for _ in range(2):
        failing = asyncio.ensure_future(connector.connect(20))
        await clock.advance(2)
        with pytest.raises(ConnectError):
            await failing

    assert [(a.at, a.outcome) for a in connector.attempts] == [
        (0, "connected"),
        (1, "failed"),
        (3, "failed"),
    ]


@pytest.mark.parametrize("script", [[1], [Fails], "a text"])
def test_wrong_scripts(script):
    """A script with other items, such as a class, is refused, and not taken for failures to connect."""
    connector = ScriptedConnector(FakeClock(), [Fails()])
    for play in (connector.play, lambda script: ScriptedConnector(FakeClock(), script)):
        with pytest.raises(OptionError, match=r"script=.*: expected a list of Succeeds"):
            play(script)


async def test_an_empty_script():
    """A connector that is not to be used needs no script; if it is used after all, the failure says so."""
    with pytest.raises(ConnectError, match="the script of the connector is empty"):
        await ScriptedConnector(FakeClock(), []).connect(20)


async def test_a_hanging_attempt_ends_by_cancelling():
    """CB-3: an attempt that hangs until it is cancelled is recorded as cancelled."""
    connector = ScriptedConnector(FakeClock(), [Hangs()])
    attempt = asyncio.ensure_future(connector.connect(20))
    await asyncio.sleep(0)
    attempt.cancel()
    await asyncio.gather(attempt, return_exceptions=True)

    assert connector.attempts[0].outcome == "cancelled"


async def test_a_connection_ends_once():
    """CH-11: if a connection is ended twice, the first reason is kept."""
    clock = FakeClock()
    connector = ScriptedConnector(clock, [Succeeds()])
    attempt = asyncio.ensure_future(connector.connect(20))
    await clock.advance(0)
    connection = await attempt
    connection.end("one", graceful=True)
    connection.end("two")

    assert (await connection.lost()).reason == "one"
    assert not connection.alive()
