"""What a slot's manager reports to; `tests/aio/test_pool.py` and `tests/both_apis/test_pool.py` test slots in pools."""

from __future__ import annotations

import pytest

from grpc_backoff.base.status import State
from grpc_backoff.decide.connections.happened import Happened
from grpc_backoff.engine import slot
from grpc_backoff.engine.news import NewsDesk
from grpc_backoff.engine.slot import SlotReceiver
from grpc_backoff.engine.watches import LivenessWatches
from grpc_backoff.policy.pooling import PoolPolicy

REPORTS = {
    "pending": len,
    "serves": SlotReceiver.release,
    "failed": SlotReceiver.fail,
    "changed": lambda receiver: receiver.changed(State.READY),
    "emitted": lambda receiver: receiver.hear(Happened("Connected", {})),
    "left": SlotReceiver.left,
}


class Pool:
    """A pool, its rules, its setup and its queue, which records what it is told."""

    def __init__(self):
        self.told, self.by_number, self.quiet_after = [], {3: self}, 0
        self.rules = self.setup = self.pooling = self
        self.target = "a"
        self.liveness = LivenessWatches(PoolPolicy(), "a")

    def __len__(self):
        self.told.append("pending")
        return 2

    @property
    def pending(self):
        return self

    def serves(self, slot):
        self.told.append("serves")

    def failed(self, slot):
        self.told.append("failed")

    def changed(self, slot, state):
        self.told.append("changed")

    def call_left(self):
        self.told.append("left")

    def emit(self, event):
        self.told.append("emitted")


@pytest.fixture(autouse=True)
def _news(monkeypatch):
    monkeypatch.setattr(slot, "NEWS", NewsDesk())


@pytest.mark.parametrize("report", REPORTS)
def test_a_slot_that_is_closed(report):
    """PO-12: what a manager reports after its slot was closed goes nowhere, so that it keeps nothing alive."""
    receiver = SlotReceiver(pool := Pool(), 3, "a")
    REPORTS[report](receiver)
    receiver.pool = None
    REPORTS[report](receiver)
    assert (pool.told, len(receiver)) == ([report], 0)


@pytest.mark.parametrize("report", REPORTS)
def test_a_slot_that_is_closed_as_it_reports(report):
    """CB-10, PO-14: a slot may be closed while its receiver is told something, by a finalizer or another thread."""

    class Closing(SlotReceiver):
        pools = ()

        @property
        def pool(self):
            return self.pools.pop()

        @pool.setter
        def pool(self, pool):
            self.pools = [None, pool]

    receiver = Closing(pool := Pool(), 3, "a")
    REPORTS[report](receiver)
    assert (pool.told, receiver.pools) == ([report], [None])


@pytest.mark.parametrize("last", [False, True])
def test_the_end_of_a_slot(last):
    """CB-10: the end of a slot is the channel's if the slot is the last one."""
    receiver = SlotReceiver(pool := Pool(), 3, "a")
    receiver.is_last = last
    receiver.hear(Happened("Closed", {}))
    assert bool(pool.told) is last
