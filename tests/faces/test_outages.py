"""CB-3 to CB-7, CH-7: both faces against servers that fail, each in its own way, on real sockets and in real time.

Durations are small and the slack is generous: a machine with two busy cores must not make the difference.
"""

from __future__ import annotations

import threading
import time

import grpc
import pytest
import trustme

from grpc_backoff import AttemptFailed, AttemptStarted, Connected, Disconnected, Stage
from grpc_backoff.testing.front import (
    accept_close,
    accept_reset,
    healthy,
    http1_answer,
    silent,
    slow_settings,
)
from tests.faces.log import Log
from tests.sync.service import front, place, until

CODE = grpc.StatusCode
FAST = [
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.min_reconnect_backoff_ms", 1000),
]
BUSY = 0.5  # how late a busy machine may be
WAITS = {"wait_for_ready": True, "timeout": 60}


def opened(face, target, log, options=FAST, **how):
    return face.channel(target, options, listeners=[log.hear], **how)


@pytest.mark.parametrize("behaviour", [None, accept_close, accept_reset, http1_answer])
def test_failing_at_once(ours, behaviour):
    """CB-4, CB-6: refused, closed, reset or answered in HTTP/1.1: never READY, and the starts keep the schedule."""
    log = Log()
    with front(behaviour or silent) as peer, opened(ours, peer.target, log) as channel:
        if behaviour is None:
            peer.refuse()
        call = channel.begin("Down", **WAITS)
        log.until(AttemptFailed, 4)
        assert not call.done()
        call.cancel()
        if behaviour is not None:
            assert len(peer.visits) <= len(log.of(AttemptStarted))
    assert not log.of(Connected)
    for gap, nominal in zip(log.gaps(), (0.2, 0.32, 0.512), strict=False):
        assert 0.8 * nominal - 0.01 <= gap <= 1.2 * nominal + BUSY


def test_silent_peer(ours):
    """CB-3, CB-6: the limit is kept, the socket is gone within 250 ms of it, never READY, and the backoff grows."""
    log = Log()
    options = [*FAST[:1], ("grpc.max_reconnect_backoff_ms", 4000), ("grpc.min_reconnect_backoff_ms", 600)]
    with front(silent) as peer, opened(ours, peer.target, log, options) as channel:
        call = channel.begin("Down", **WAITS)
        log.until(AttemptFailed, 6)
        call.cancel()
        assert not log.of(Connected)
        for failed in log.of(AttemptFailed):
            assert failed.failure.stage is Stage.SETTINGS
        for started, visit in zip(log.of(AttemptStarted)[:5], peer.visits, strict=False):
            assert visit.ended is not None
            lasted = visit.ended - started.at  # by the client's clock: a busy front accepts late
            assert started.limit - 0.05 <= lasted <= started.limit + 0.25 + BUSY
        assert len(log.of(AttemptStarted)) - len(peer.visits) in (0, 1), "the last one may be on its way"
        assert log.of(AttemptStarted)[5].limit > 1.5, "backoff outgrew the timeout, and the limit with it"


def test_settings_late_but_in_time(ours, server):
    """CB-6: READY comes with SETTINGS and not before, and the backoff is back at INITIAL."""
    log = Log()
    with front(accept_close, server.port) as peer, opened(ours, peer.target, log) as channel:
        call = channel.begin(**WAITS)
        log.until(AttemptFailed, 3)
        peer.behave(slow_settings(0.5))
        assert call.outcome().code is CODE.OK
        assert log.of(Connected)[0].took >= 0.45
        time.sleep(0.3)
        peer.behave(accept_close)
        peer.break_all()
        log.until(Disconnected)
        before = len(log.of(AttemptStarted))
        waiting = channel.begin("Down", **WAITS)
        log.until(AttemptFailed, before + 1)
        waiting.cancel()
        assert 0.19 <= log.gaps()[-1] <= 0.2 + BUSY


def test_tls_to_plaintext_and_back(ours, server):
    """CB-6, CH-8: speaking TLS to a plaintext port, or the reverse, fails by schedule, and says where."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    pems = certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes()
    trusting = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    stranger = grpc.ssl_channel_credentials(trustme.CA().cert_pem.bytes())
    with place(credentials=grpc.ssl_server_credentials([pems])) as tls:
        for target, credentials, stage in (
            (server.target, trusting, Stage.TLS),
            (tls.target, stranger, Stage.TLS),
            (tls.target, None, None),
        ):
            log = Log()
            with opened(ours, target, log, credentials=credentials) as channel:
                assert channel.begin(timeout=20).outcome().code is CODE.UNAVAILABLE
                log.until(AttemptStarted, 2)
            assert stage is None or log.of(AttemptFailed)[0].failure.stage is stage
            assert 0.19 <= log.gaps()[0] <= 0.2 + BUSY
        with opened(ours, tls.target, Log(), credentials=trusting) as channel:
            assert channel.unary("hello", timeout=20) == "hello"


def test_an_outage(face, server):
    """CH-3, CH-7: a broken connection fails what runs; what waits is answered when the server is back."""
    with front(healthy, server.port) as peer, face.channel(peer.target, FAST) as channel:
        for _ in range(2):
            assert channel.unary("hello", wait_for_ready=True, timeout=20) == "hello"
            stream = channel.begin("Down", ["then hang"])
            assert stream.read() == "then hang"
            peer.refuse()
            peer.break_all()
            assert stream.outcome().code is CODE.UNAVAILABLE
            # Not before the loss is known: a call that enters the old connection as it breaks fails with it (CH-7).
            until(lambda: "failed to connect to all addresses" in channel.begin(timeout=20).outcome().details)
            waiting = channel.begin("Down", ["hello"], **WAITS)
            assert "failed to connect to all addresses" in channel.begin(timeout=20).outcome().details
            assert not waiting.done()
            peer.listen()
            assert waiting.outcome(30).texts == ["hello"]


def test_reset(ours, server):
    """CB-9: a sleeping channel dials at once, whoever asks, and however often; after `close` nothing happens."""
    log = Log()
    options = [("grpc.initial_reconnect_backoff_ms", 60_000), ("grpc.max_reconnect_backoff_ms", 60_000)]
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
