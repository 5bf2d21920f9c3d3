"""The pump: a thread that waits on grpcio, because older versions of grpcio do I/O only while some thread waits."""

from __future__ import annotations

import gc
import threading

import grpc
import pytest

import grpc_backoff
from grpc_backoff.grpcio.sync_private import open_channels
from grpc_backoff.sync import channel as channel_module
from grpc_backoff.sync import conductor as conductor_module
from grpc_backoff.sync import pump as pump_module
from grpc_backoff.sync.conductor import Conductor
from grpc_backoff.sync.pump import Pump, Standby, needs_pump
from tests.echo import EchoStub, Message
from tests.sync.service import place, until


@pytest.mark.parametrize(
    ("version", "needs"), [("1.63.0", True), ("1.79.1", True), ("1.80.0rc1", False), ("2.0", False)]
)
def test_which_versions_need_it(monkeypatch, version, needs):
    """TH-5: only versions of grpcio before 1.80 need the pump."""
    monkeypatch.setattr(grpc, "__version__", version)
    assert needs_pump.__wrapped__() is needs


def test_it_ends():
    """TH-5: the pump's thread ends soon after `stop`."""
    pump = Pump()
    until(lambda: any(thread.name == "grpc-backoff-pump" for thread in threading.enumerate()))
    pump.stop()
    until(lambda: not any(thread.name == "grpc-backoff-pump" for thread in threading.enumerate()), within=5)


def test_standby():
    """TH-5: the standby's channel is open from `open` to `close`; both may be called twice."""
    standby = Standby()
    before = len(open_channels())
    opened = []
    for step in (standby.open, standby.open, standby.close, standby.close):
        step()
        opened.append(len(open_channels()) - before)
    assert opened == [1, 1, 0, 0]
    assert not standby.wait(0)


@pytest.mark.parametrize("ending", ["closed", "dropped"])
@pytest.mark.filterwarnings("ignore:unclosed channel:ResourceWarning")
def test_the_core_stays_running_while_a_channel_is_open(monkeypatch, ending):
    """TH-5: the standby is open from the first dial of a channel until it is closed or dropped."""
    conductor = Conductor()
    monkeypatch.setattr(channel_module, "CONDUCTOR", conductor)

    def is_open():
        return conductor._standby._channel is not None

    with place(up=False) as server:
        channel = grpc_backoff.insecure_channel(server.target, [("grpc.initial_reconnect_backoff_ms", 100)])
        assert not is_open()
        with pytest.raises(grpc.RpcError):
            EchoStub(channel).Unary(Message(text="a"), timeout=20)
        assert is_open()
        server.start()
        EchoStub(channel).Unary(Message(text="a"), timeout=20, wait_for_ready=True)
        assert is_open()
        if ending == "closed":
            channel.close()
        del channel
        gc.collect()
        until(lambda: not is_open())
    conductor.stop()


def test_the_core_stays_running_between_channels(monkeypatch):
    """TH-5: the standby outlives a channel for a moment, because a program may create one for each request."""
    conductor, opened = Conductor(), []
    monkeypatch.setattr(channel_module, "CONDUCTOR", conductor)
    monkeypatch.setattr(conductor_module, "_LINGERS", 60.0)
    make = pump_module.core_channel
    monkeypatch.setattr(pump_module, "core_channel", lambda *how: opened.append(1) or make(*how))
    with place() as server:
        for _ in range(3):
            with grpc_backoff.insecure_channel(server.target) as channel:
                EchoStub(channel).Unary(Message(text="a"), timeout=20)
    assert len(opened) == (2 if needs_pump() else 1)
    conductor.stop()
    until(lambda: conductor._standby._channel is None)
