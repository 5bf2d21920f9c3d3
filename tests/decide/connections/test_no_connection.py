"""CH-4: the text of the error for a call that got no connection."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grpc_backoff.decide.connections.events import ConnectionStatus, Failure, Stage, State
from grpc_backoff.decide.connections.no_connection import explain

REFUSED = Failure(Stage.TCP, "refused")
STATUS = ConnectionStatus(
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
    ],
)
def test_why(status, how, text):
    """CH-4: the text contains the target, the stage and the reason, but no figures."""
    assert explain("t", replace(STATUS, **status), **how) == text
