"""Where news comes from: sleep, the network and the program."""

from __future__ import annotations

import logging
import time

import pytest

from grpc_backoff import network_changed
from grpc_backoff.sharing import news
from tests.sync.service import until


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

    def tell_news(self, why):
        self.heard.append(why)

    def hear_news(self, why, *, woke=False):
        self.heard.append((why, woke))


@pytest.mark.parametrize(("late", "suspended", "heard"), [(0, 0, 0), (9, 0, 0), (11, 0, 1), (0, 11, 1)])
def test_a_sleep(monkeypatch, late, suspended, heard):
    """LV-4: a timer that is late by more than 10 s, or a suspended machine, is news; the next tick is planned."""
    loop, pool, now = Loop(), Pool(), time.monotonic()
    monkeypatch.setattr(news.time, "monotonic", lambda: now)
    monkeypatch.setattr(news, "slept", lambda: 5.0)
    sleeper = news.Sleeper(loop)
    sleeper.join(pool)
    now = loop.due + late
    monkeypatch.setattr(news, "slept", lambda: 5.0 + suspended)
    loop.callback()
    assert pool.heard == [(news.WOKE, True)] * heard
    assert loop.due > now
    sleeper.leave(pool)
    assert loop.callback is None, "CB-10: no timer is left"


def test_the_program_says_so():
    """LV-4: `network_changed` tells every open pool."""
    pool = Pool()
    news.NEWS.join(pool, None, network=False)
    network_changed()
    news.NEWS.leave(pool)
    network_changed()
    assert pool.heard == [news.TOLD]


def test_without_netlink(monkeypatch, caplog):
    """LV-4: without netlink, one line at INFO says so, and everything else works."""

    def refuse():
        raise OSError("no netlink here")

    monkeypatch.setattr(news, "open_netlink", refuse)
    pool, other = Pool(), Pool()
    with caplog.at_level(logging.INFO, "grpc_backoff"):
        news.NEWS.join(pool, None, network=True)
        news.NEWS.join(other, None, network=True)
        until(lambda: caplog.records)
    network_changed()
    news.NEWS.leave(pool)
    news.NEWS.leave(other)
    (record,) = caplog.records
    assert record.getMessage() == "changes of the network are not noticed: no netlink here"
    assert pool.heard == other.heard == [news.TOLD]
