"""CH-4: the text of the error for a call that got no connection."""

from __future__ import annotations

import pytest

from grpc_backoff.connection.events import ConnectionStatus, Failure, Stage, State
from grpc_backoff.connection.no_connection import explain


@pytest.mark.parametrize(
    ("error", "waited", "text"),
    [
        (None, False, "no connection to t; the first attempt has not ended"),
        (Failure(Stage.TCP, "refused"), False, "no connection to t; last error: tcp: refused"),
        (
            Failure(Stage.TCP, "refused"),
            True,
            "Deadline Exceeded while waiting: no connection to t; last error: tcp: refused",
        ),
    ],
)
def test_why(error, waited, text):
    """CH-4: the text contains the target, the stage and the reason, but no figures."""
    status = ConnectionStatus(
        state=State.CONNECTING,
        attempt=7,
        in_flight=True,
        last_error=error,
        next_attempt_in=1.5,
        ready_since=None,
        made=3,
    )
    assert explain("t", status, waited=waited) == text
