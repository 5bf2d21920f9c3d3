"""Many restarts under many workers: no call is lost or executed twice, and no resources leak."""

from __future__ import annotations

import gc
import threading
import time
import uuid
from collections import Counter

import grpc
import psutil
import pytest

from grpc_backoff.testing.front import healthy
from tests.both_apis.api import backoff_ms
from tests.sync.service import Echo, dialled, front, place, until

CODE = grpc.StatusCode
FAST = backoff_ms(20, 40, 2000)
WORKERS = 50
TIMES = 30
SLACK = {"threads": 2, "descriptors": 8}


class Workers:
    """Fifty workers that make calls in a loop. Half of the calls are wait-for-ready; each request has a unique text."""

    def __init__(self, channel):
        self.outcomes = []  # lists, since `+= 1` on the items of a Counter is not atomic
        self.made = []
        self.stopping = False
        self.join = channel.start([self.work(number % 2 == 0) for number in range(WORKERS)])

    def work(self, wait_for_ready):
        while not self.stopping:
            text = uuid.uuid4().hex
            self.made.append(text)
            outcome = yield text, {"wait_for_ready": wait_for_ready, "timeout": 30}
            assert outcome.texts in (None, [text])
            self.outcomes.append(outcome.code)
            if outcome.texts is None:
                yield 0.002

    def cycle(self, peer, times):
        """Break and restore the connection this many times, each time after 20 more answers."""
        for _ in range(times):
            self.answered(20)
            peer.refuse()
            peer.break_all()
            time.sleep(0.01)
            peer.listen()

    def answered(self, more):
        goal = self.outcomes.count(CODE.OK) + more
        until(lambda: self.outcomes.count(CODE.OK) >= goal)

    def stop(self):
        self.stopping = True
        self.join()
        assert len(self.outcomes) == len(self.made)
        assert set(self.outcomes) <= {CODE.OK, CODE.UNAVAILABLE}


def resources():
    gc.collect()
    threads = [each for each in threading.enumerate() if not each.name.startswith("ThreadPool")]  # the test's own
    return {"threads": len(threads), "descriptors": psutil.Process().num_fds()}


def back_to(before):
    """Wait until resource usage is back to its old level; the front and the core take a moment to release resources."""
    end = time.monotonic() + 20
    while any((now := resources())[name] > before[name] + SLACK[name] for name in before):
        assert time.monotonic() < end, (before, now)
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_restarts_under_fifty_workers(ours):
    """CH-2, CH-7: over 30 restarts, no call hangs or runs twice, and no threads, descriptors or memory are leaked.

    Takes about five seconds of real time, depending on how fast calls are answered.
    """
    with (
        place(Echo(), threads=WORKERS) as server,
        front(healthy, server.port) as peer,
        ours.channel(peer.target, FAST) as channel,
    ):
        workers = Workers(channel)
        workers.cycle(peer, 10)
        workers.stop()
        time.sleep(0.5)
        before, memory = resources(), psutil.Process().memory_info().rss
        workers = Workers(channel)
        workers.cycle(peer, TIMES)
        workers.answered(100)
        workers.stop()
        grown = psutil.Process().memory_info().rss - memory
        back_to(before)
        assert channel.own.connection_status().made >= TIMES
    executed = Counter(text for (text,) in server.servicer.got)
    assert max(executed.values()) == 1
    assert grown < 16 * 2**20


def test_closed_channels_leave_nothing(ours):
    """CB-10, TH-5: a hundred channels that are used and closed leave no threads or descriptors behind."""
    with place() as server, place(up=False) as dead:

        def use(target):
            with ours.channel(target, FAST) as channel:
                channel.begin(timeout=20).outcome()

        for target in [server.target, dead.target] * 5:
            use(target)
        before = resources()
        for target in [server.target, dead.target] * 50:
            use(target)
        back_to(before)
        until(lambda: dialled() == [])  # one may wait for a next channel (SH-8)
