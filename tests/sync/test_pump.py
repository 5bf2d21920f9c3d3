"""The pump: a thread that waits on grpcio, because older versions of grpcio do I/O only while some thread waits."""

from __future__ import annotations

import threading

import grpc
import pytest

from grpc_backoff.sync.pump import Pump, needs_pump
from tests.sync.service import until


@pytest.mark.parametrize(
    ("version", "needs"), [("1.63.0", True), ("1.79.1", True), ("1.80.0rc1", False), ("2.0", False)]
)
def test_which_versions_need_it(monkeypatch, version, needs):
    """TH-5: only versions of grpcio before 1.80 need the pump."""
    monkeypatch.setattr(grpc, "__version__", version)
    assert needs_pump() is needs


def test_it_ends():
    """TH-5: the pump's thread ends soon after `stop`."""
    pump = Pump()
    assert any(thread.name == "grpc-backoff-pump" for thread in threading.enumerate())
    pump.stop()
    until(lambda: not any(thread.name == "grpc-backoff-pump" for thread in threading.enumerate()), within=5)
