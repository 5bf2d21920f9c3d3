"""SH-7: the state and status that a channel shows of a shared manager."""

from __future__ import annotations

import pytest

from grpc_backoff.decide.connections.events import ConnectionStatus, Failure, Stage, State
from grpc_backoff.decide.connections.shared_status import state_shown, status_shown

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
