"""The text that says why a call gave up."""

from __future__ import annotations

import pytest

from grpc_backoff.decide.calls.account import Account
from grpc_backoff.decide.calls.events import Reason, WaitSource

TOLD = {
    Account(attempts=1, took=0.0, reason=Reason.STOPPED): (
        "gave up: the server asked the client not to retry (1 attempt in 0 s)"
    ),
    Account(attempts=5, took=12.345, reason=Reason.ATTEMPTS): "gave up: no attempts are left (5 attempts in 12.3 s)",
    Account(attempts=2, took=1.0, reason=Reason.DEADLINE): (
        "gave up: the deadline leaves no time for another attempt (2 attempts in 1 s)"
    ),
    Account(attempts=2, took=1.0, reason=Reason.DEADLINE, wait=5.0, left=0.5): (
        "gave up: the deadline leaves no time for another attempt (2 attempts in 1 s; the schedule calls for a wait of "
        "5 s, but only 0.5 s are left)"
    ),
    Account(attempts=1, took=0.002, reason=Reason.DEADLINE, wait=5.0, asked_by=WaitSource.PUSHBACK, left=0.998): (
        "gave up: the deadline leaves no time for another attempt (1 attempt in 0.002 s; the server's "
        "grpc-retry-pushback-ms asks for a wait of 5 s, but only 0.998 s are left)"
    ),
}


@pytest.mark.parametrize(("account", "text"), TOLD.items())
def test_text(account, text):
    """RT-3, RT-6: the text gives a fixed reason first, then the figures."""
    assert str(account) == text
