"""The current state of the observed channels, with artificial events and a simulated clock."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import threading

import pytest

from grpc_backoff.decide.connections import events
from grpc_backoff.decide.connections.events import ChannelKey, Failure, Role, Stage
from grpc_backoff.decide.connections.slot_events import SlotClosed, SlotRetiring, SlotServing
from grpc_backoff.telemetry.channels import Channels

REFUSED = Failure(Stage.TCP, "refused")
LOST = Failure(Stage.ESTABLISHED, "lost")

FORKING = """
import os, signal
from grpc_backoff.decide.connections.events import ChannelKey, Connected
from grpc_backoff.telemetry.channels import Channels

channel, channels = ChannelKey(), Channels()
channels.note(Connected(target="t", at=0.0, attempt=1, channel=channel, took=0.0, connections=1), "t")
with channels._lock:
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(0 if not channels.open_connections() and not channels.next_attempts() else 1)
assert os.waitpid(child, 0)[1] == 0
assert channels.open_connections() == {"t": 1}
"""


class Told:
    """Passes events to a `Channels` object, whose clock is `self.now`."""

    def __init__(self):
        self.now = 1000.0
        self.channels = Channels(lambda: self.now)

    def tell(self, kind, channel, target="t", **figures):
        self.channels.note(kind(target="as given", at=-1.0, attempt=1, channel=channel, **figures), target)

    def started(self, channel, target="t"):
        self.tell(events.AttemptStarted, channel, target, limit=20.0)

    def failed(self, channel, retry_in, target="t", **more):
        self.tell(events.AttemptFailed, channel, target, failure=REFUSED, took=0.0, retry_in=retry_in, **more)

    def failed_elsewhere(self, channel, retry_in):
        self.failed(channel, retry_in, elsewhere=True)

    def connected(self, channel, target="t"):
        self.tell(events.Connected, channel, target, took=0.0, connections=1)

    def lost(self, channel, retry_in=None):
        self.tell(events.Disconnected, channel, failure=LOST, lived=1.0, counted_as_failure=False, retry_in=retry_in)

    def reset(self, channel, retry_in=None):
        self.tell(events.BackoffReset, channel, retry_in=retry_in)

    def closed(self, channel):
        self.tell(events.Closed, channel, lived=None)

    def both(self):
        return self.channels.open_connections(), self.channels.next_attempts()


@pytest.fixture
def told():
    """Return an object that passes events to a new `Channels`."""
    return Told()


def test_the_wait_runs_down(told):
    """CH-11: the reported time to the next attempt counts down, and disappears when the attempt is due."""
    channel = ChannelKey()
    told.started(channel)
    assert told.both() == ({"t": 0}, {})
    told.failed(channel, 5.0)
    assert told.both() == ({"t": 0}, {"t": 5.0})
    told.now += 4.5
    assert told.both() == ({"t": 0}, {"t": 0.5})
    told.now += 0.5
    assert told.both() == ({"t": 0}, {})


@pytest.mark.parametrize(
    ("steps", "connections", "waits"),
    [
        # An attempt that starts early, after a reset, ends the wait (CH-11).
        ([("failed", 60.0), ("reset",), ("started",)], 0, {}),
        ([("failed", 60.0), ("reset",), ("started",), ("connected",)], 1, {}),
        # A lost connection is no longer counted, and the wait that follows, if any, is reported (CB-7, CB-8).
        ([("connected",), ("lost",)], 0, {}),
        ([("connected",), ("lost", 0.0)], 0, {}),
        ([("connected",), ("lost", 3.0)], 0, {"t": 3.0}),
        # A reset that cannot dial at once shortens the wait; a reset of a READY channel changes nothing (CB-9).
        ([("failed", 60.0), ("reset", 0.75)], 0, {"t": 0.75}),
        ([("connected",), ("reset",)], 1, {}),
        # While a channel is connected, an attempt of another channel with its key changes nothing (SH-4).
        ([("connected",), ("failed_elsewhere", 5.0)], 1, {}),
    ],
)
def test_a_channel(told, steps, connections, waits):
    """CH-11: a channel's connection and its wait are reported as its events tell them."""
    channel = ChannelKey()
    for step, *figures in steps:
        getattr(told, step)(channel, *figures)
    assert told.both() == ({"t": connections}, waits)


def test_several_channels_to_one_target(told):
    """CH-11: connections to one target add up, and its shortest wait is reported; each target is counted separately."""
    near, far, farther, ready, also, other = (ChannelKey() for _ in range(6))
    told.failed(far, 30.0)
    told.failed(near, 2.0)
    told.failed(farther, 60.0)
    told.connected(ready)
    told.connected(also)
    told.failed(other, 9.0, "other")
    assert told.both() == ({"t": 2, "other": 0}, {"t": 2.0, "other": 9.0})
    told.now += 2.5
    assert told.both() == ({"t": 2, "other": 0}, {"t": 27.5, "other": 6.5})
    told.connected(far)
    assert told.both() == ({"t": 3, "other": 0}, {"t": 57.5, "other": 6.5})
    told.connected(farther)
    assert told.both() == ({"t": 4, "other": 0}, {"other": 6.5})


def test_a_closed_channel_is_forgotten(told):
    """CB-10: a closed channel has neither a connection nor a wait, even while its `ChannelKey` object exists."""
    ready, waits = ChannelKey(), ChannelKey()
    told.connected(ready)
    told.failed(waits, 30.0)
    told.closed(ready)
    told.closed(waits)
    assert told.both() == ({}, {})
    assert len(told.channels._known) == 0


def test_a_channel_that_is_gone_is_forgotten(told):
    """CB-10: a channel that was dropped without an event disappears from memory and from the metrics."""
    channels = [ChannelKey() for _ in range(100)]
    for channel in channels:
        told.connected(channel)
    assert told.both() == ({"t": 100}, {})
    del channels[10:], channel
    gc.collect()
    assert told.both() == ({"t": 10}, {})
    assert len(told.channels._known) == 10


def test_readers_and_loops_side_by_side(told):
    """RT-12: channels may change in several threads while other threads read, and the final figures are exact."""
    stop, errors = threading.Event(), []

    def read():
        try:
            while not stop.is_set():
                connections, waits = told.both()
                assert 0 <= sum(connections.values()) <= 40
                assert all(wait == 5.0 for wait in waits.values())
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    def work(kept):
        for turn in range(2000):
            channel = kept[turn % len(kept)] = ChannelKey()
            random.choice([told.started, told.connected, told.lost, told.closed])(channel)
            told.failed(channel, 5.0)
            told.connected(channel)

    kept = [[ChannelKey() for _ in range(10)] for _ in range(4)]
    readers = [threading.Thread(target=read) for _ in range(2)]
    workers = [threading.Thread(target=work, args=[each]) for each in kept]
    for thread in readers + workers:
        thread.start()
    for thread in workers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert errors == []
    assert told.both() == ({"t": 40}, {})


def test_the_slots_of_a_channel(told):
    """PO-11: each slot's connection counts, under its role, until the slot is closed or loses it."""
    key = ChannelKey()
    about = {"took": 0.0, "connections": 1}
    told.tell(events.Connected, key, **about)
    told.tell(events.Connected, key, slot=1, **about, attempt_id="2.1")
    told.tell(SlotServing, key, slot=1, why="it has a connection")
    told.tell(SlotRetiring, key, slot=0, why="it was replaced")
    assert dict(told.channels.roles()) == {("t", Role.RETIRING): 1, ("t", Role.SERVING): 1}
    assert dict(told.channels.open_connections()) == {"t": 2}
    told.tell(SlotClosed, key, slot=0, why="its last call has ended", lived=1.0)
    assert dict(told.channels.roles()) == {("t", Role.SERVING): 1}
    told.closed(key)
    assert dict(told.channels.roles()) == {}


def test_in_a_forked_child():
    """FK-1: a forked child counts none of its parent's connections, even if another thread was counting at the fork."""
    if not hasattr(os, "fork"):
        pytest.skip("a system without forks")
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
