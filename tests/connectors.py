"""Checks that every `Connector` must pass, the core's, the probe's and the script's, on real sockets in real time."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

from grpc_backoff.connection.connector import ConnectError, Connector
from grpc_backoff.decide.connections.events import Stage
from grpc_backoff.testing.front import (
    Behaviour,
    FlakyFront,
    accept_close,
    accept_reset,
    http1_answer,
    settings_only,
    settings_then_close,
    silent,
)

MakeConnector = Callable[[str], Connector[Any]]

_LIMIT = 1.0
_CLOSED_WITHIN = 0.25  # CB-3: this soon after the limit
_SLACK = 0.5  # for a busy machine
_BEFORE = 0.2
_PATIENCE = 5.0  # for things that must happen eventually, on a busy machine


async def check_connector(make: MakeConnector) -> None:
    """Check that a connector fulfils its contract; this takes a few seconds of real time.

    `make` is called with a target on 127.0.0.1 and returns a new connector without TLS.

    Raises:
        AssertionError: the connector violates its contract; the message says how.
    """
    for check in (_connects, _tells_of_loss, _refused, _no_settings, _gone_at_once, _gives_up_when_cancelled):
        await check(make)


def _hold(condition: bool, what: str) -> None:
    if not condition:  # not an assert statement, so that the checks also run under python -O
        raise AssertionError(what)


async def _in_time(awaitable: Awaitable[Any]) -> Any:
    try:
        return await asyncio.wait_for(awaitable, _PATIENCE)
    except TimeoutError:
        raise AssertionError(f"nothing happened in {_PATIENCE} s: {awaitable}") from None


async def _with(behaviour: Behaviour, make: MakeConnector, use: Callable[[FlakyFront, Any], Awaitable[None]]) -> None:
    async with FlakyFront(behaviour) as front:
        connector = make(front.target)
        try:
            await use(front, connector)
        finally:
            await connector.close(None)


async def _connects(make: MakeConnector) -> None:
    async def use(front: FlakyFront, connector: Connector[Any]) -> None:
        connection = await _in_time(connector.connect(_LIMIT))
        _hold(connection.alive(), "a connection must be alive once its peer has sent SETTINGS")
        _hold(len(front.visits) == 1, "one attempt must make one connection")
        await asyncio.sleep(_LIMIT)
        _hold(connection.alive(), "the limit must not apply after SETTINGS (CB-3)")
        connection.retire()
        connection.retire()

    await _with(settings_only, make, use)


async def _tells_of_loss(make: MakeConnector) -> None:
    async def use(front: FlakyFront, connector: Connector[Any]) -> None:
        connection = await _in_time(connector.connect(_LIMIT))
        waiting = asyncio.ensure_future(connection.lost())
        await asyncio.sleep(0.1)
        _hold(not waiting.done(), "an open connection must not be reported as lost")
        await front.break_all()
        _hold(bool((await _in_time(waiting)).reason), "a lost connection must have a reason")
        _hold(not connection.alive(), "a lost connection must not be alive")
        connection.retire()
        again = await _in_time(connector.connect(_LIMIT))
        _hold(again.alive(), "it must be possible to replace a lost connection")
        _hold(len(front.visits) == 1 + 1, "replacing a connection must take exactly one new one")

    await _with(settings_only, make, use)


async def _fails(connector: Connector[Any]) -> Stage:
    outcome = (await asyncio.gather(_in_time(connector.connect(_LIMIT)), return_exceptions=True))[0]
    if not isinstance(outcome, ConnectError):
        raise AssertionError(  # noqa: TRY004 - a failed check, not a wrong type
            f"without SETTINGS, an attempt must raise ConnectError, not {outcome!r} (CB-6)"
        )
    _hold(bool(outcome.failure.reason), "a failure must have a reason")
    return outcome.failure.stage


async def _refused(make: MakeConnector) -> None:
    async def use(front: FlakyFront, connector: Connector[Any]) -> None:
        await front.refuse()
        _hold(await _fails(connector) is Stage.TCP, "a refused connection must fail at stage tcp")

    await _with(silent, make, use)


async def _no_settings(make: MakeConnector) -> None:
    async def use(front: FlakyFront, connector: Connector[Any]) -> None:
        await _fails(connector)
        await asyncio.sleep(0.3)
        _hold(len(front.visits) == 1, "the connector must not repeat a failed attempt")

    for behaviour in (accept_close, accept_reset, http1_answer):
        await _with(behaviour, make, use)


async def _gone_at_once(make: MakeConnector) -> None:
    async def use(_front: FlakyFront, connector: Connector[Any]) -> None:
        connection = await _in_time(connector.connect(_LIMIT))
        await _in_time(connection.lost())

    await _with(settings_then_close(0.0), make, use)


async def _gives_up_when_cancelled(make: MakeConnector) -> None:
    async def use(front: FlakyFront, connector: Connector[Any]) -> None:
        attempt = asyncio.ensure_future(connector.connect(_LIMIT))
        await asyncio.wait([attempt], timeout=_LIMIT - _BEFORE)
        if attempt.done():
            await asyncio.gather(attempt, return_exceptions=True)  # or its failure is logged when it is collected
        _hold(not attempt.done(), "an attempt must not end before its limit when the peer only accepts (CB-3, CB-6)")
        await asyncio.wait([attempt], timeout=_BEFORE)
        attempt.cancel()
        outcome = (await asyncio.gather(attempt, return_exceptions=True))[0]
        _hold(
            isinstance(outcome, ConnectError | asyncio.CancelledError),
            f"an attempt must fail, or be cancellable, at its limit, not {outcome!r} (CB-3)",
        )
        await asyncio.sleep(_CLOSED_WITHIN + _SLACK)
        visit = front.visits[0]
        late = (visit.ended or math.inf) - visit.at - _LIMIT
        _hold(late <= _CLOSED_WITHIN + _SLACK, f"the socket was closed {late:.3f} s after the limit (CB-3)")
        _hold(len(front.visits) == 1, "an abandoned attempt must not be repeated")

    await _with(silent, make, use)
