"""CH-11: which listeners receive an event, and that an error in one does not affect the others."""

from __future__ import annotations

import asyncio
import logging
from contextvars import ContextVar

import pytest

from grpc_backoff.aio.listeners import Listeners, tell
from grpc_backoff.decide.calls.events import CallSucceeded
from grpc_backoff.decide.connections.events import Closed

CLOSED = Closed(target="target", at=1.0, attempt=1, lived=None)


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError])
async def test_each_is_told(caplog, error):
    """CH-11: any exception from a listener is logged, and the other listeners still receive the event."""

    def raises(_event):
        raise error

    heard = []
    tell([heard.append, raises, heard.append], CLOSED, asyncio.get_running_loop())
    assert heard == [CLOSED, CLOSED]
    assert "a listener of the channel to target raised" in caplog.text


async def test_they_do_not_live_in_a_callers_context():
    """CB-10: listeners run in a context of their own, which does not keep a caller's context alive."""
    carried, seen = ContextVar("carried", default=None), []
    carried.set("a request")
    tell([lambda _: seen.append(carried.get())], CLOSED, asyncio.get_running_loop())
    assert seen == [None]


async def test_nothing_after_close(caplog):
    """CB-10: after `close()`, call events are neither reported to listeners nor logged."""
    caplog.set_level(logging.DEBUG, logger="grpc_backoff")
    heard = []
    listeners = Listeners([heard.append], asyncio.get_running_loop())
    success = CallSucceeded(target="target", method="/m", call_id="1", at=1.0, attempt=2, took=1.0)
    listeners.hear_of_call(success)
    assert (len(heard), len(caplog.records)) == (1, 1)
    listeners.close()
    listeners.hear_of_call(success)
    listeners.hear(CLOSED)
    assert (len(heard), len(caplog.records)) == (1, 1)
