"""The gate through which calls enter a connection."""

from __future__ import annotations

from grpc_backoff.engine.gate import GatedConnection

IDLE, READY = 0, 2


class Open(GatedConnection):
    """A connection that is READY."""

    running = 0
    quiet = fail = ask = listen = alive = last_used = loss = retire = link = None

    def __init__(self):
        self.check = self.really = lambda _try_to_connect: READY


def test_shut_and_opened():
    """LV-1: while a gate is shut, calls find no READY channel; it may be shut and opened any number of times."""
    gate = Open()
    for _ in range(2):
        gate.set_gate(shut=False)
        assert (gate.check(False), gate.gated) == (READY, None)
    for _ in range(2):
        gate.set_gate(shut=True)
        assert (gate.check(False), gate.gated) == (IDLE, gate.really)
    for _ in range(2):
        gate.set_gate(shut=False)
        assert (gate.check, gate.gated) == (gate.really, None)
