"""Changes of the machine's network, as netlink reports them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys

import pytest

from grpc_backoff import network_changed
from grpc_backoff.engine import network, news
from tests.engine.test_news import Pool
from tests.sync.service import until

MADE = """
import sys
from grpc_backoff import sync

sync.insecure_channel("localhost:1", options={options}).close()
print("grpc_backoff.engine.network" in sys.modules)
"""


@pytest.mark.parametrize(("options", "loaded"), [([], False), ([("grpc_backoff.watch_network", True)], True)])
def test_only_its_option_loads_it(options, loaded):
    """CH-12, LV-4: a channel loads the watcher when it is made, and only with `grpc_backoff.watch_network`."""
    command = [sys.executable, "-c", MADE.format(options=options)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == [str(loaded)]


def test_without_netlink(monkeypatch, caplog):
    """LV-4: without netlink, one line at INFO says so, and everything else works."""

    def refuse():
        raise OSError("no netlink here")

    monkeypatch.setattr(network, "open_netlink", refuse)
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


def test_without_a_thread(monkeypatch):
    """LV-4: a watch that cannot start its thread raises, keeps nothing open, and can be tried again."""
    pool, desk = Pool(), news.NewsDesk()

    def fail(_work, _name):
        raise RuntimeError("can't start new thread")

    def lowest_free():
        descriptor = os.open(os.devnull, os.O_RDONLY)
        os.close(descriptor)
        return descriptor

    before = lowest_free()
    with monkeypatch.context() as patch:
        patch.setattr("grpc_backoff.base.threads.start", fail)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            desk.join(pool, None, network=True)
    assert lowest_free() == before
    desk.join(pool, None, network=True)
    desk.leave(pool)
