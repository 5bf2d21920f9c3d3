"""SH-8: channels of the core that wait a moment for the next dial."""

from __future__ import annotations

import sys
import time

import pytest

from grpc_backoff.base import threads
from grpc_backoff.decide.connections import dial_times
from grpc_backoff.engine import spares
from grpc_backoff.engine.spares import SpareKey
from tests.sync.service import until

KEY = SpareKey("home", "a server")


class Channel:
    """A spare channel."""

    def __init__(self, *, up=True):
        self.channel, self.made = self, 0.0
        self.up = up
        self.closed = 0

    def is_up(self):
        return self.up

    def close(self):
        self.closed += 1


@pytest.fixture
def kept():
    made = spares.Spares()
    yield made
    made.close()


@pytest.fixture
def unhurried(monkeypatch):
    """Channels are kept for long enough for a slow machine."""
    monkeypatch.setattr(dial_times, "SPARE_FOR", 2.0)


@pytest.mark.usefixtures("unhurried")
def test_the_next_dial_takes_it(kept):
    """SH-8: once, and only a dial of the same kind."""
    one = Channel()
    kept.keep(KEY, one)
    assert kept.take(SpareKey("home", "another server")) is None
    assert kept.take(SpareKey("another home", "a server")) is None
    assert kept.take(KEY) is one
    assert kept.take(KEY) is None
    assert not one.closed


def test_nothing_takes_it(kept):
    """SH-8: it is closed when its time is over, once, and so is one that comes when the thread has ended."""
    for _ in range(3):
        one, begun = Channel(), time.monotonic()
        kept.keep(KEY, one)
        until(lambda one=one: one.closed)
        assert time.monotonic() - begun >= dial_times.SPARE_FOR
        assert kept.take(KEY) is None
        until(lambda: not kept._is_served)
        assert one.closed == 1


@pytest.mark.usefixtures("unhurried")
def test_only_the_latest_is_kept(kept):
    """SH-8: one channel for each kind of dial."""
    one, two = Channel(), Channel()
    kept.keep(KEY, one)
    kept.keep(KEY, two)
    assert one.closed == 1
    assert kept.take(KEY) is two


@pytest.mark.usefixtures("unhurried")
def test_a_thread_closes_many(kept, monkeypatch):
    """SH-8: one thread closes all, each in its time."""
    started, start = [], threads.start
    monkeypatch.setattr(threads, "start", lambda *how: (started.append(how), start(*how)))
    channels = [Channel() for _ in range(20)]
    for number, channel in enumerate(channels):
        kept.keep(SpareKey("home", number), channel)
    until(lambda: all(channel.closed for channel in channels))
    assert len(started) == 1


@pytest.mark.parametrize("found", ["when the next dial asks", "when its time is over"])
def test_a_peer_that_ends_a_connection(kept, monkeypatch, found):
    """SH-8: a spare channel whose peer has ended the connection is closed, and for ten seconds, none is kept."""
    one = Channel(up=False)
    kept.keep(KEY, one)
    if found == "when the next dial asks":
        assert kept.take(KEY) is None
    until(lambda: one.closed)
    assert kept.avoids(KEY.arguments)
    assert not kept.avoids("another server")
    monkeypatch.setattr(kept, "_now", lambda: time.monotonic() + 10.1)
    assert not kept.avoids(KEY.arguments)
    kept.avoid("another server")
    assert list(kept._avoided) == ["another server"]


def test_before_a_fork(kept):
    """SH-8: all are closed before a fork, and what is left belongs to the parent."""
    closed, inherited = Channel(), Channel()
    kept.keep(KEY, closed)
    kept.close()
    assert closed.closed == 1
    kept.keep(KEY, inherited)
    kept.begin_anew()
    assert kept.take(KEY) is None
    time.sleep(2 * dial_times.SPARE_FOR)
    assert not inherited.closed


@pytest.mark.usefixtures("unhurried")
def test_no_thread(kept, monkeypatch):
    """TH-5: where no thread can be started, nothing is kept."""

    def refuse(*_):
        raise RuntimeError("can't start new thread")

    one, two = Channel(), Channel()
    with monkeypatch.context() as patched:
        patched.setattr(threads, "start", refuse)
        kept.keep(KEY, one)
    assert one.closed == 1
    kept.keep(KEY, two)
    assert kept.take(KEY) is two


@pytest.mark.usefixtures("unhurried")
def test_no_modules(kept, monkeypatch):
    """CH-12: where the package is out of reach, as after a change of the root, nothing is kept."""
    one, two = Channel(), Channel()
    with monkeypatch.context() as patched:
        patched.delattr("grpc_backoff.base.threads")
        patched.setitem(sys.modules, "grpc_backoff.base.threads", None)
        kept.keep(KEY, one)
    assert one.closed == 1
    kept.keep(KEY, two)
    assert kept.take(KEY) is two
