"""The watch over the health of one connection, with a keeper that records what it is asked for."""

from __future__ import annotations

import math
import random

from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.pool.health import Answered, Ended, Unwatched, WatchMachine
from grpc_backoff.sharing.health import HealthWatch

SAYS_NO = "the server reports NOT_SERVING"


class Keeper:
    """A keeper of one connection, which is also that connection."""

    def __init__(self):
        self.time, self.up, self.used, self.done, self.timers, self.hear = 100.0, True, -math.inf, [], [], None

    def alive(self):
        return self.up

    def last_used(self):
        return self.used

    def at(self, when, callback):
        self.timers.append((when, callback))
        return self

    def cancel(self):
        self.timers.clear()

    def now(self):
        return self.time

    def listen(self, connection, request, hear):
        assert connection is self
        self.done.append(request)
        self.hear = hear
        return lambda: self.done.append("cancelled")

    def rest(self, number, connection):
        assert (number, connection) == (7, self)
        self.done.append("idle")

    def wake(self):
        (self.time, callback), *self.timers = self.timers
        callback()


def watch(keeper, service="a", prove_within=math.inf):
    made = HealthWatch(
        keeper, 7, keeper, WatchMachine(CONNECT), service, random.Random(1), keeper.done.append, prove_within
    )
    made.look()
    return made


def test_a_stream():
    """RO-1: a stream is begun for the service, each change of its answer is told, and the end cancels it."""
    keeper = Keeper()
    made = watch(keeper)
    assert keeper.done == [b"\x0a\x01a"]
    for message in (b"\x08\x01", b"\x08\x02", b"\x08\x02"):
        keeper.hear(Answered(message))
    assert keeper.done[1:] == ["", SAYS_NO]
    made.feed(Unwatched())
    assert keeper.done[3:] == ["cancelled"]
    assert keeper.timers == [], "its timer is cancelled"


def test_a_stream_that_ends():
    """RO-1: the next one is begun after a pause, unless the connection has ended as well."""
    keeper = Keeper()
    watch(keeper, "")
    keeper.hear(Answered(b"\x08\x01"))
    keeper.hear(Ended("OK"))
    keeper.wake()
    assert keeper.done == [b"", "", b""]
    keeper.up = False
    keeper.hear(Ended("UNAVAILABLE"))
    assert keeper.timers == []
    assert keeper.done[3:] == ["cancelled"]


def test_the_idle_timeout():
    """CB-14: the connection is closed when no call has used it for that long, and the stream ends."""
    keeper = Keeper()
    watch(keeper)
    keeper.used = 200.0
    keeper.wake()
    assert keeper.timers[0][0] == 200.0 + CONNECT.idle_timeout
    keeper.wake()
    assert keeper.done[1:] == ["cancelled", "idle"]


def test_a_replacement_that_nobody_vouches_for():
    """RO-1: if the server does not answer in time, the connection is taken to be healthy."""
    keeper = Keeper()
    watch(keeper, prove_within=5.0)
    keeper.wake()
    assert (keeper.time, keeper.done[1:]) == (105.0, [""])
