"""CH-11: the stage at which a connection failed, inferred from the core's message."""

from __future__ import annotations

import pytest

from grpc_backoff.decide.connections.dial_texts import NO_SETTINGS, reason_in, stage_of
from grpc_backoff.decide.connections.events import Stage

OPENING = "failed to connect to all addresses; last error: UNKNOWN: "


@pytest.mark.parametrize(
    ("reason", "stage"),
    [
        ("DNS resolution failed for a:1: no such host", Stage.RESOLVE),
        (f"{OPENING}ipv4:127.0.0.1:1: Failed to connect to remote host: Connection refused", Stage.TCP),
        (f"{OPENING}unix:/tmp/tls.sock: No such file or directory", Stage.TCP),
        (f"{OPENING}ipv4:127.0.0.1:1: Ssl handshake failed: socket closed", Stage.TLS),
        (f"{OPENING}ipv4:127.0.0.1:1: Socket closed", Stage.SETTINGS),
        ("a new kind of trouble", Stage.UNKNOWN),
        (f"{OPENING}unix:/run/tls-settings.sock: a new kind of trouble", Stage.UNKNOWN),
    ],
)
def test_stages(reason, stage):
    """CH-11: the address in the message does not affect the stage; the stage is `unknown` if the cause is."""
    assert stage_of(reason) is stage


def test_the_limit_has_one_text():
    """CH-4: the reason for reaching the time limit is the same whether the core or the machine noticed it."""
    reason = reason_in(f"{OPENING}ipv4:127.0.0.1:1: connection attempt timed out before receiving SETTINGS frame")

    assert (reason, stage_of(reason)) == (NO_SETTINGS, Stage.SETTINGS)


def test_one_line():
    """CH-4: a reason is a single line, without the bytes that the core appends after a null byte."""
    assert reason_in("too\n many\0garbage") == "too many"
