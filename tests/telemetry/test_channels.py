"""What is known of channels at a moment, from made events and a clock in hand."""

from __future__ import annotations

import gc
import random
import threading

import pytest

from grpc_backoff.connection import events
from grpc_backoff.connection.events import ChannelKey, Failure, Stage
from grpc_backoff.telemetry.channels import Channels

REFUSED = Failure(Stage.TCP, "refused")
LOST = Failure(Stage.ESTABLISHED, "lost")


class Told:
    """Tells one `Channels` what channels do; the time is `self.now`."""

    def __init__(self):
        self.now = 1000.0
        self.channels = Channels(lambda: self.now)

    def tell(self, kind, channel, target="t", **figures):
        self.channels.note(kind(target="as given", at=-1.0, attempt=1, channel=channel, **figures), target)

    def started(self, channel, target="t"):
        self.tell(events.AttemptStarted, channel, target, limit=20.0)

    def failed(self, channel, retry_in, target="t"):
        self.tell(events.AttemptFailed, channel, target, failure=REFUSED, took=0.0, retry_in=retry_in)

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
    """A fresh one."""
    return Told()


def test_the_wait_runs_down(told):
    """CH-11: the time to the next attempt runs down on a clock of its own, and is gone once that time has come."""
    channel = ChannelKey()
    told.started(channel)
    assert told.both() == ({"t": 0}, {})
    told.failed(channel, 5.0)
    assert told.both() == ({"t": 0}, {"t": 5.0})
    told.now += 4.5
    assert told.both() == ({"t": 0}, {"t": 0.5})
    told.now += 0.5
    assert told.both() == ({"t": 0}, {})


def test_an_attempt_ends_the_wait(told):
    """CH-11: an attempt that begins earlier, after a reset, is not waited for any more."""
    channel = ChannelKey()
    told.failed(channel, 60.0)
    told.reset(channel)
    told.started(channel)
    assert told.both() == ({"t": 0}, {})
    told.connected(channel)
    assert told.both() == ({"t": 1}, {})


@pytest.mark.parametrize(("retry_in", "waits"), [(None, {}), (0.0, {}), (3.0, {"t": 3.0})])
def test_a_lost_connection(told, retry_in, waits):
    """CB-7, CB-8: a lost connection does not stand any more; where its end is followed by a wait, that is known."""
    channel = ChannelKey()
    told.connected(channel)
    told.lost(channel, retry_in)
    assert told.both() == ({"t": 0}, waits)


def test_a_reset_changes_the_wait(told):
    """CB-9: a reset that may not dial at once still shortens the wait."""
    channel = ChannelKey()
    told.failed(channel, 60.0)
    told.reset(channel, 0.75)
    assert told.both() == ({"t": 0}, {"t": 0.75})


def test_a_reset_ends_no_connection(told):
    """CB-9: a reset of a channel that is READY changes nothing of what is known."""
    channel = ChannelKey()
    told.connected(channel)
    told.reset(channel)
    assert told.both() == ({"t": 1}, {})


def test_several_channels_to_one_target(told):
    """CH-11: connections to one target add up, and of the waits the nearest counts; targets are kept apart."""
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
    """CB-10: a channel that is closed has neither connection nor wait, however long its key lives."""
    ready, waits = ChannelKey(), ChannelKey()
    told.connected(ready)
    told.failed(waits, 30.0)
    told.closed(ready)
    told.closed(waits)
    assert told.both() == ({}, {})
    assert len(told.channels._known) == 0


def test_a_channel_that_is_gone_is_forgotten(told):
    """CB-10: a channel that was dropped and could not say so is not kept in memory, nor in the figures."""
    channels = [ChannelKey() for _ in range(100)]
    for channel in channels:
        told.connected(channel)
    assert told.both() == ({"t": 100}, {})
    del channels[10:], channel
    gc.collect()
    assert told.both() == ({"t": 10}, {})
    assert len(told.channels._known) == 10


def test_readers_and_loops_side_by_side(told):
    """RT-12: what channels do on their threads, and end, breaks into nobody's reading, and the end of it is right."""
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
