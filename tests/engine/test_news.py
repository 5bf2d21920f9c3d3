"""Where news comes from: sleep, the network and the program."""

from __future__ import annotations

import gc
import time

import pytest

from grpc_backoff import network_changed
from grpc_backoff.decide.connections.liveness_machine import WOKE
from grpc_backoff.engine import news


class Loop:
    """A loop whose timer the test fires."""

    def __init__(self):
        self.due = self.callback = None

    def call_at(self, when, callback):
        self.due, self.callback = when, callback
        return self

    def cancel(self):
        self.callback = None


class Pool:
    """A pool that keeps the news that it hears."""

    def __init__(self):
        self.heard = []

    def tell_news(self, why, spot=None):
        self.heard.append(why if spot is None else (why, spot))

    def hear_news(self, why, spot=None, *, woke=False):
        self.heard.append((why, woke))


@pytest.mark.parametrize(("late", "suspended", "heard"), [(0, 0, 0), (9, 0, 0), (11, 0, 1), (0, 11, 1)])
def test_a_sleep(monkeypatch, late, suspended, heard):
    """LV-4: a timer that is late by more than 10 s, or a suspended machine, is news; the next tick is planned."""
    loop, pool, now = Loop(), Pool(), time.monotonic()
    monkeypatch.setattr(news, "monotonic", lambda: now)
    monkeypatch.setattr(news, "slept", lambda: 5.0)
    sleeper = news.SleepWatch(loop)
    sleeper.join(pool)
    now = loop.due + late
    monkeypatch.setattr(news, "slept", lambda: 5.0 + suspended)
    loop.callback()
    assert pool.heard == [(WOKE, True)] * heard
    assert loop.due > now
    sleeper.leave(pool)
    assert loop.callback is None, "CB-10: no timer is left"


@pytest.mark.parametrize("error", [OSError("too many open files"), ImportError("no such module")], ids=repr)
def test_no_modules(monkeypatch, error):
    """CH-12: where what a sleep needs cannot be imported, the next tick tries again, and none raises."""
    loop, pool, now = Loop(), Pool(), time.monotonic()

    def refuse():
        raise error

    monkeypatch.setattr(news, "monotonic", lambda: now)
    sleeper = news.SleepWatch(loop)
    sleeper.join(pool)
    with monkeypatch.context() as patched:
        patched.setattr(news, "load_liveness", refuse)
        now = loop.due + 11
        loop.callback()
    assert pool.heard == []
    now = loop.due + 11
    loop.callback()
    assert pool.heard == [(WOKE, True)]


def test_a_stopped_clock(monkeypatch):
    """CB-12: no tick follows one that comes at once, as while a library for tests has stopped the loop's clock."""
    loop, now = Loop(), time.monotonic()
    monkeypatch.setattr(news, "monotonic", lambda: now)
    sleeper, pools = news.SleepWatch(loop), [Pool(), Pool()]
    sleeper.join(pools[0])
    tick, loop.callback = loop.callback, None
    tick()
    assert loop.callback is None
    sleeper.join(pools[1])
    assert loop.callback is not None, "the next channel starts it again"
    now = loop.due + 11
    loop.callback()
    assert [pool.heard for pool in pools] == [[(WOKE, True)]] * 2


def test_the_program_says_so():
    """LV-4: `network_changed` tells every open pool."""
    pool = Pool()
    news.NEWS.join(pool, None, network=False)
    network_changed()
    news.NEWS.leave(pool)
    network_changed()
    assert pool.heard == [news.TOLD]


SPELLINGS = [
    ("shop:443", "dns:///Shop", True),
    ("10.0.0.1:80", "ipv4:10.0.0.1:80", True),
    ("[::1]:80", "ipv6:[::1]:80", True),
    ("unix:/a", "unix:///a", True),
    ("unix:/a", "unix:/b", False),
    ("shop:443", "shop:80", False),
    ("shop:443", "xds:///shop", False),
    ("10.0.0.1:80", "10.0.0.2:80", False),
]


@pytest.mark.parametrize(("one", "other", "same"), SPELLINGS)
def test_spots(one, other, same):
    """LV-4: a host and port are the same in every spelling of a target."""
    assert (news.spot_of(one) == news.spot_of(other)) is same


def test_another_channel_gets_there():
    """LV-4: whoever seeks a spot is told once when another pool has reached it, but not of its own success."""
    desk, pools = news.NewsDesk(), [Pool() for _ in range(4)]
    sleeper, twice, elsewhere, closed = pools
    for pool, *spots in ((sleeper, "a"), (twice, "a", "b"), (elsewhere, "c"), (closed, "a")):
        for spot in [*spots, *spots]:
            desk.seeks(pool, spot)
    desk.leave(closed)
    reacher = Pool()
    desk.seeks(reacher, "a")
    for _ in range(2):
        desk.reached(reacher, "a", "b")
    assert [sorted(pool.heard) for pool in [*pools, reacher]] == [
        [(news.REACHED, "a")],
        [(news.REACHED, "a"), (news.REACHED, "b")],
        [],
        [],
        [],
    ]
    desk.seeks(sleeper, "a")
    desk.reached(reacher, "a")
    assert len(sleeper.heard) == 2, "it has failed again"


def test_who_seeks_is_not_kept():
    """LV-4: seeking keeps no pool alive, and nothing of a pool that is gone; the child of a fork begins anew."""
    desk = news.NewsDesk()
    for number in range(100):
        desk.seeks(Pool(), number)
    gc.collect()
    assert not desk._seeking
    pool = Pool()
    desk.seeks(pool, "a")
    desk.begin_anew()
    desk.reached(Pool(), "a")
    assert pool.heard == []
