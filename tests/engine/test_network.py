"""Changes of the machine's network, as netlink reports them."""

from __future__ import annotations

import contextlib
import logging
import socket
import subprocess
import sys
import threading
from pathlib import Path

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


@pytest.mark.parametrize("lacks", ["a thread", "a file", "a socket"])
def test_that_cannot_start(monkeypatch, caplog, lacks):
    """LV-4: a watch that cannot start says so at INFO, keeps nothing open, and starts with the next pool."""
    pools, desk = [Pool(), Pool()], news.NewsDesk()

    def fail(*_):
        raise RuntimeError("can't start new thread") if lacks == "a thread" else OSError("too many open files")

    def opened():
        """Return what this process has open, by inode; threads of other tests may close theirs meanwhile."""
        links = set()
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                links.add(str(descriptor.readlink()))
        return {link for link in links if link.startswith(("pipe:", "socket:"))}

    before = opened()
    with monkeypatch.context() as patch, caplog.at_level(logging.INFO, "grpc_backoff"):
        what = {"a thread": "grpc_backoff.base.threads.start", "a file": "os.pipe", "a socket": "socket.socket"}
        patch.setattr(what[lacks], fail)
        desk.join(pools[0], None, network=True)
    (record,) = caplog.records
    assert record.getMessage().startswith("changes of the network are not noticed: ")
    assert opened() <= before
    desk.join(pools[1], None, network=True)
    assert desk._network is not None
    desk.leave(pools[0])
    desk.leave(pools[1])


def test_a_log_that_waits_for_another_thread(monkeypatch, caplog):
    """CH-11: what is wrong is logged outside the desk's lock, because a handler may wait for a thread that needs it."""

    def refuse():
        raise OSError("no netlink here")

    desk, pool, other = news.NewsDesk(), Pool(), Pool()
    entered = []

    class Waiting(logging.Handler):
        def emit(self, record):
            thread = threading.Thread(target=desk.join, args=(other, None), kwargs={"network": False}, daemon=True)
            thread.start()
            thread.join(20)
            entered.append(not thread.is_alive())

    monkeypatch.setattr(network, "open_netlink", refuse)
    logger, handler = logging.getLogger("grpc_backoff"), Waiting()
    logger.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, "grpc_backoff"):
            desk.join(pool, None, network=True)
    finally:
        logger.removeHandler(handler)
    assert entered == [True]


@pytest.mark.skipif(sys.platform == "win32", reason="a system without netlink")
def test_many_descriptors(monkeypatch, caplog):
    """LV-4: a change is noticed in a process that has more than a thousand descriptors open."""
    import fcntl
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("the system allows too few descriptors")
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
        ours, kernels = (stack.enter_context(end) for end in socket.socketpair())
        link = socket.socket(fileno=fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD, 1500))
        monkeypatch.setattr(network, "open_netlink", lambda: link)
        pool = Pool()
        news.NEWS.join(pool, None, network=True)
        stack.callback(news.NEWS.leave, pool)
        kernels.send(b"a change")
        until(lambda: pool.heard)
    assert pool.heard == [news.NETWORK]
    until(lambda: link.fileno() == -1)  # its thread has ended
    assert not caplog.records
