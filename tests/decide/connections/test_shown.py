"""SH-7, CH-4: what a channel shows of a shared manager, and of why a call got no connection."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpc_backoff.decide.connections.events import ConnectionStatus, Failure, Stage, State
from grpc_backoff.decide.connections.shown import explain, state_shown, status_shown

REFUSED = Failure(Stage.TCP, "refused")
STATUS = ConnectionStatus(
    state=State.TRANSIENT_FAILURE,
    attempt=3,
    in_flight=True,
    last_error=REFUSED,
    next_attempt_in=2.5,
    ready_since=7.0,
    made=4,
)


@pytest.mark.parametrize("state", State)
def test_the_state_is_the_managers_once_asked(state):
    """SH-7: a channel is IDLE until it asks for a connection, then in its manager's state, and SHUTDOWN once closed."""
    assert state_shown(state, asked=False, closed=False) is State.IDLE
    assert state_shown(state, asked=True, closed=False) is state
    assert {state_shown(state, asked=asked, closed=True) for asked in (False, True)} == {State.SHUTDOWN}


def test_the_status_is_the_managers_once_asked():
    """SH-7: the status of a channel that has not asked for a connection shows nothing of the shared connection."""
    assert status_shown(STATUS, asked=True, closed=False) is STATUS
    idle = status_shown(STATUS, asked=False, closed=False)
    assert idle == ConnectionStatus(
        state=State.IDLE,
        attempt=0,
        in_flight=False,
        last_error=None,
        next_attempt_in=None,
        ready_since=None,
        made=0,
    )


def test_a_closed_channel_keeps_its_last_error():
    """CH-11: a closed channel still reports its attempts and last error, and plans nothing."""
    closed = status_shown(STATUS, asked=True, closed=True)
    assert (closed.state, closed.attempt, closed.last_error, closed.made) == (State.SHUTDOWN, 3, REFUSED, 4)
    assert (closed.in_flight, closed.next_attempt_in, closed.ready_since) == (False, None, None)


FIRST = ConnectionStatus(
    state=State.CONNECTING,
    attempt=7,
    in_flight=True,
    last_error=None,
    next_attempt_in=1.5,
    ready_since=None,
    made=3,
)


@pytest.mark.parametrize(
    ("status", "how", "text"),
    [
        ({}, {}, "no connection to t; the first attempt has not ended"),
        (
            {"in_flight": False},
            {},
            "no connection to t; no attempt has begun, because the target's schedule does not allow one yet",
        ),
        ({"in_flight": False, "next_attempt_in": None}, {}, "no connection to t; no attempt has begun"),
        ({"state": State.READY}, {}, "no connection to t; the connection ended before the call could use it"),
        (
            {"state": State.IDLE, "in_flight": False, "next_attempt_in": None},
            {},
            "no connection to t; the connection ended before the call could use it",
        ),
        (
            {"state": State.READY},
            {"waited": True},
            "Deadline Exceeded while waiting: no connection to t; the call could not use the connection in time",
        ),
        ({"last_error": REFUSED}, {}, "no connection to t; last error: tcp: refused"),
        (
            {"last_error": REFUSED},
            {"proxied": True},
            "no connection to t through the HTTP proxy; last error: tcp: refused",
        ),
        (
            {"last_error": REFUSED},
            {"waited": True},
            "Deadline Exceeded while waiting: no connection to t; last error: tcp: refused",
        ),
        (
            {"state": State.READY},
            {"waited": True, "asked": True, "full": True},
            "Deadline Exceeded while waiting: t was asked whether it is alive and has not answered yet",
        ),
    ],
)
def test_why(status, how, text):
    """CH-4: the text contains the target, the stage and the reason, but no figures."""
    assert explain("t", replace(FIRST, **status), **how) == text
