"""Threaded calls on a clock that the program supplies."""

from __future__ import annotations

import threading
import time

import grpc
import pytest

import grpc_backoff
from grpc_backoff.decide.connections.slot_events import LivenessAsked
from tests.echo import EchoStub, Message
from tests.sync.service import until

AGAIN = "codes: UNIMPLEMENTED, retry: 1, delay: 60s, backoff: fixed, jitter: none"
FASTER = 100
"""How many of its seconds pass in one second."""


class HurriedClock:
    """A clock that runs faster than the machine's, and calls back on threads of its own."""

    def now(self):
        return time.monotonic() * FASTER

    def call_at(self, when, callback):
        timer = threading.Timer(max(0.0, (when - self.now()) / FASTER), callback)
        timer.daemon = True
        timer.start()
        return timer


def calls(channel):
    """Return functions that make a call of each kind and wait for its end, by name."""
    unary = channel.unary_unary("/test.Absent/Method")
    stream = channel.unary_stream("/test.Absent/Method")
    return {
        "blocking": lambda: unary(b""),
        "future": lambda: unary.future(b"").result(timeout=60),
        "stream": lambda: list(stream(b"")),
        "subscription": lambda: list(grpc_backoff.subscribe(stream, b"", policy=AGAIN)),
    }


@pytest.mark.parametrize("kind", ["blocking", "future", "stream", "subscription"])
def test_waits_between_attempts(server, kind):
    """CB-12: waits between attempts, in whatever thread, are those of the channel's clock."""
    began = time.monotonic()
    made = grpc_backoff.insecure_channel(server.target, clock=HurriedClock(), retry=AGAIN)
    with made as channel, pytest.raises(grpc_backoff.RetriesExhaustedError):
        calls(channel)[kind]()
    assert 0.6 < time.monotonic() - began < 40


@pytest.mark.parametrize("use", [lambda unary: unary, lambda unary: unary.with_call], ids=["call", "with_call"])
def test_the_time_of_use(server, use):
    """CB-14: the channel's clock says when a call last used a connection."""
    clock = HurriedClock()
    with grpc_backoff.insecure_channel(server.target, clock=clock) as channel:
        for _ in range(2):  # the first one waits for the connection, and the second one finds it
            before = clock.now()
            use(EchoStub(channel).Unary)(Message(text="a"))
            assert before <= channel._pool.rules.only.last_used() <= clock.now()


def test_two_deadlines(server):
    """LV-2: the channel's clock says when calls without an answer began, so two in a row are a reason to ask."""
    heard, options = [], [("grpc_backoff.quiet_after", 10_000)]
    made = grpc_backoff.insecure_channel(server.target, options, clock=HurriedClock(), listeners=[heard.append])
    with made as channel:
        unary = EchoStub(channel).Unary
        unary(Message(text="a"))
        for _ in range(2):
            with pytest.raises(grpc.RpcError, match="DEADLINE_EXCEEDED"):
                unary(Message(text="hang"), timeout=0.2)
        until(lambda: any(isinstance(event, LivenessAsked) for event in heard))
