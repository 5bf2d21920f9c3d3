"""CB-3 to CB-7, CH-7: both APIs against servers that fail in various ways, on real sockets and in real time.

Durations are short and tolerances generous, so the tests pass on a busy machine with two cores.
"""

from __future__ import annotations

import threading
import time

import grpc
import pytest

from grpc_backoff import AttemptFailed, AttemptStarted, Connected, Disconnected, Stage
from grpc_backoff.testing.front import (
    accept_close,
    accept_reset,
    healthy,
    http1_answer,
    silent,
    slow_settings,
)
from tests.both_apis.api import backoff_ms
from tests.both_apis.log import Log
from tests.sync.service import front, until

CODE = grpc.StatusCode
FAST = backoff_ms(200, 1000, 1000)
BUSY = 1.5  # seconds; the lateness of a busy machine
WAITS = {"wait_for_ready": True, "timeout": 60}


def opened(api, target, log, options=FAST, **how):
    return api.channel(target, options, listeners=[log.hear], **how)


@pytest.mark.parametrize("behaviour", [None, accept_close, accept_reset, http1_answer])
def test_failing_at_once(ours, behaviour):
    """CB-4, CB-6: refused, closed, reset and HTTP/1.1 connections never become READY, and are redialled on schedule."""
    log = Log()
    with front(behaviour or silent) as peer, opened(ours, peer.target, log) as channel:
        if behaviour is None:
            peer.refuse()
        call = channel.begin("Down", **WAITS)
        log.until(AttemptFailed, 4)
        assert not call.done()
        call.cancel()
        if behaviour is not None:
            visits = len(peer.visits)
            until(lambda: len(log.of(AttemptStarted)) >= visits)  # on a threaded channel, a thread delivers the events
    assert not log.of(Connected)
    for gap, failed, nominal in zip(log.gaps(), log.of(AttemptFailed), (0.2, 0.32, 0.512), strict=False):
        assert 0.8 * nominal - 0.01 <= gap
        assert failed.retry_in <= 1.2 * nominal


def test_silent_peer(ours):
    """CB-3, CB-6: an attempt to connect to a silent peer ends at its limit, and its socket is closed within 250 ms."""
    log = Log()
    options = backoff_ms(100, 2000, 300)
    with front(silent) as peer, opened(ours, peer.target, log, options) as channel:
        call = channel.begin("Down", **WAITS)
        log.until(AttemptFailed, 6)
        call.cancel()
        assert not log.of(Connected)
        for failed in log.of(AttemptFailed):
            assert failed.failure.stage is Stage.SETTINGS
        for started, visit in zip(log.of(AttemptStarted)[:5], peer.visits, strict=False):
            assert visit.ended is not None
            lasted = visit.ended - started.at  # on the client's clock, because a busy front accepts late
            assert started.limit - 0.05 <= lasted <= started.limit + 0.25 + BUSY
        visits = len(peer.visits)
        until(lambda: len(log.of(AttemptStarted)) >= visits)  # on a threaded channel, a thread delivers the events
        assert len(log.of(AttemptStarted)) <= visits + 1, "the last one may be on its way"
        assert log.of(AttemptStarted)[5].limit > 0.7, "backoff outgrew the timeout, and the limit with it"


def test_settings_late_but_in_time(ours, server):
    """CB-6: a channel is READY when SETTINGS arrive, not before, and its backoff is then reset to INITIAL_BACKOFF."""
    log = Log()
    with front(accept_close, server.port) as peer, opened(ours, peer.target, log) as channel:
        call = channel.begin(**WAITS)
        log.until(AttemptFailed, 3)
        peer.behave(slow_settings(0.5))
        assert call.outcome().code is CODE.OK
        assert log.until(Connected).took >= 0.45
        time.sleep(0.3)
        peer.behave(accept_close)
        peer.break_all()
        log.until(Disconnected)
        before = len(log.of(AttemptStarted))
        waiting = channel.begin("Down", **WAITS)
        log.until(AttemptFailed, before + 1)
        waiting.cancel()
        assert log.gaps()[-1] >= 0.19
        assert log.of(AttemptFailed)[before - 1].retry_in <= 0.2  # all attempts before it failed, except one


def test_an_outage(api, server):
    """CH-3, CH-7: a lost connection fails running calls; pending calls are answered when the server is up again."""
    with front(healthy, server.port) as peer, api.channel(peer.target, FAST) as channel:
        for _ in range(2):
            assert channel.unary("hello", wait_for_ready=True, timeout=20) == "hello"
            stream = channel.begin("Down", ["then hang"])
            assert stream.read() == "then hang"
            peer.refuse()
            peer.break_all()
            assert stream.outcome().code is CODE.UNAVAILABLE
            # Wait until the loss is noticed: a call that is assigned to the breaking connection fails with it (CH-7).
            until(lambda: "failed to connect to all addresses" in channel.begin(timeout=20).outcome().details)
            waiting = channel.begin("Down", ["hello"], **WAITS)
            assert "failed to connect to all addresses" in channel.begin(timeout=20).outcome().details
            assert not waiting.done()
            peer.listen()
            assert waiting.outcome(30).texts == ["hello"]


def test_reset(ours, server):
    """CB-9: several resets make a sleeping channel dial once, immediately; a reset after `close()` does nothing."""
    log = Log()
    options = backoff_ms(60_000, 60_000)
    with front(accept_close, server.port) as peer, opened(ours, peer.target, log, options) as channel:
        call = channel.begin(texts=["x"], **WAITS)
        log.until(AttemptFailed)
        peer.behave(healthy)
        threads = [threading.Thread(target=channel.own.reset_connect_backoff) for _ in range(5)]
        for thread in threads:
            thread.start()
        assert call.outcome(30).texts == ["x"]
        for thread in threads:
            thread.join(20)
        assert len(peer.visits) == 2
    channel.own.reset_connect_backoff()
