"""What this library's channels add on both APIs: closing, status, listeners, and one schedule per key (SH-3)."""

from __future__ import annotations

import copy
import gc
import logging
import math
import random
import re
import time
from itertools import pairwise
from types import SimpleNamespace

import grpc
import pytest

import grpc_backoff
from grpc_backoff import (
    AttemptFailed,
    AttemptStarted,
    BackoffReset,
    Closed,
    Connected,
    ConnectionStatus,
    Disconnected,
    NoConnectionError,
    OptionError,
    Stage,
    State,
)
from grpc_backoff.aio.loops import LoopClock
from grpc_backoff.decide.connections import dial_times
from grpc_backoff.testing.front import accept_close, healthy, settings_then_close, silent
from tests.aio.retry_service import Breaking
from tests.both_apis.api import backoff_ms
from tests.both_apis.log import Log
from tests.certificates import client_credentials, server_credentials
from tests.sync.service import dialled, front, place, until

CODE = grpc.StatusCode
FAST = [("grpc.initial_reconnect_backoff_ms", 500), ("grpc_backoff.jitter", 0.0)]
QUICK = backoff_ms(100, 100)
SLOW = backoff_ms(600_000, 600_000)


# Closing.


@pytest.mark.parametrize("during", ["idle", "connecting", "backoff", "ready", "waiting", "running"])
def test_close_in_every_phase(ours, server, during):
    """CB-10, TH-5: `close()` ends all calls in any phase; `Closed` is the last event, and no core channel remains."""
    log, call = Log(), None
    with front(healthy if during in ("ready", "running") else silent, server.port) as peer:
        if during == "backoff":
            peer.refuse()
        with ours.channel(peer.target, listeners=[log.hear]) as channel:
            if during == "ready":
                channel.unary()
            elif during == "backoff":
                assert channel.begin().outcome().code is CODE.UNAVAILABLE
            elif during != "idle":
                call = channel.begin(texts=["hang"], wait_for_ready=during == "waiting")
                until(lambda: server.servicer.hanging.is_set() if during == "running" else peer.visits)
            began = time.monotonic()
            channel.close()
            took = time.monotonic() - began
            if call is not None:
                assert call.outcome().code is CODE.CANCELLED
            until(lambda: log.of(Closed))
            channel.close()
            assert took < 20  # only a loose bound; see TH-5
            said = len(log)
            until(lambda: dialled() == [])
            time.sleep(0.2)
    assert len(log) == said
    assert isinstance(log[-1], Closed)


def test_a_copy(ours, server):
    """CB-10, TH-1: a channel outlives its copies, as grpc's threaded one does."""
    with ours.channel(server.target) as channel:
        own = channel.own
        assert channel.unary("first", timeout=20) == "first"
        copy.copy(own)
        gc.collect()
        assert channel.unary("second", timeout=20) == "second"


# Status and listeners.


def test_status_and_listeners(ours, server):
    """CH-11: the status follows the connection, and listeners receive every event even if another listener raises."""
    log = Log()

    def raises(_event):
        raise ZeroDivisionError

    with front(healthy, server.port) as peer, ours.channel(peer.target, QUICK, listeners=[raises]) as channel:
        own = channel.own
        peer.refuse()
        own.add_listener(log.hear)
        with pytest.raises(OptionError):
            own.add_listener(None)
        assert own.connection_status() == ConnectionStatus(
            state=State.IDLE,
            attempt=0,
            in_flight=False,
            last_error=None,
            next_attempt_in=None,
            ready_since=None,
            made=0,
        )
        assert isinstance(channel.begin().outcome().error, NoConnectionError)
        status = own.connection_status()
        assert (status.state, status.last_error.stage) == (State.TRANSIENT_FAILURE, Stage.TCP)
        peer.listen()
        channel.ready()
        status = own.connection_status()
        assert (status.state, status.made, status.last_error) == (State.READY, 1, None)
        assert status.ready_since == log.until(Connected).at <= time.monotonic()
        peer.break_all()
        log.until(Disconnected)
        assert own.connection_status().state is State.IDLE
        own.remove_listener(log.hear)
        with pytest.raises(ValueError, match=r"^this listener is not registered: "):
            own.remove_listener(log.hear)
        own.reset_connect_backoff()
    kinds = [type(event) for event in log]
    assert kinds[:2] == [AttemptStarted, AttemptFailed]
    assert kinds[-2:] == [Connected, Disconnected]
    assert BackoffReset not in kinds


def test_status_at_the_first_event(ours):
    """CH-11: a listener that hears of the first attempt finds it in the channel's status."""
    with front(silent) as peer, ours.channel(peer.target) as channel:
        found = []
        channel.own.add_listener(lambda _event: found.append(channel.own.connection_status()))
        assert channel.begin(timeout=0.3).outcome().code is CODE.DEADLINE_EXCEEDED
        until(lambda: found)
    assert (found[0].state, found[0].attempt, found[0].in_flight) == (State.CONNECTING, 1, True)


def test_a_generator_that_raises(ours, server, caplog):
    """CB-11: where the program's `rng` raises, jitter comes from the default, so the channel goes on connecting."""
    rng = Breaking()
    rng.broken = True
    with front(healthy, server.port) as peer:
        peer.refuse()
        with ours.channel(peer.target, QUICK, rng=rng) as channel:
            assert channel.begin(timeout=20).outcome().code is CODE.UNAVAILABLE
            peer.listen()
            assert channel.unary(timeout=20, wait_for_ready=True) == "a"
    assert "the channel's `rng` raised" in caplog.text


@pytest.mark.parametrize("drawn", [None, "0.5", math.nan, -0.5, 1.5])
def test_a_generator_that_draws_no_fraction(ours, server, caplog, drawn):
    """CB-11: so does it where `rng` draws what is no number from 0 to 1."""
    with front(healthy, server.port) as peer:
        peer.refuse()
        with ours.channel(peer.target, QUICK, rng=SimpleNamespace(random=lambda: drawn)) as channel:
            assert channel.begin(timeout=20).outcome().code is CODE.UNAVAILABLE
            peer.listen()
            assert channel.unary(timeout=20, wait_for_ready=True) == "a"
    assert "the channel's `rng` raised" in caplog.text


def test_a_listener_and_a_handler_that_raise(ours, server):
    """CH-11: neither a listener that raises, nor a logging handler that does so too, keeps events from another one."""
    handler, heard = logging.Handler(), []
    handler.emit = lambda _record: 1 / 0
    logging.getLogger("grpc_backoff").addHandler(handler)
    try:
        with ours.channel(server.target, listeners=[lambda _event: 1 / 0, heard.append]) as channel:
            assert channel.unary(timeout=20, wait_for_ready=True) == "a"
            until(lambda: Connected in map(type, heard))
    finally:
        logging.getLogger("grpc_backoff").removeHandler(handler)


class NoClock:
    def now(self):
        return 0.0


async def listens(event):
    """Do nothing; as a coroutine function, this is not a valid listener."""


FUNCTION = "a function that takes one event, and not a coroutine function"
RNG = "a source of random numbers such as random.Random(1)"
CLOCK = "a Clock, with now() and call_at()"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"options": [("grpc_backoff.jitter", 7)]}, "grpc_backoff.jitter=7: expected"),
        ({"options": [("grpc_backoff.max_connections", "4")]}, "grpc_backoff.max_connections='4': expected"),
        *(({"listeners": given}, "listeners=.*: expected a list of functions") for given in (3, print)),
        ({"listeners": [print, "print"]}, rf"listeners\[1\]='print': expected {FUNCTION}"),
        *(({"listeners": [given]}, rf"listeners\[0\]=.*: expected {FUNCTION}") for given in (None, listens)),
        *(({"rng": given}, f"rng=.*: expected {re.escape(RNG)}") for given in (42, random.random, random.Random)),
        *(
            ({"clock": given}, f"clock=.*: expected {re.escape(CLOCK)}")
            for given in (time.monotonic, NoClock(), LoopClock)
        ),
        ({"retry_hooks": 3}, "retry_hooks=3: expected"),
        ({"retry": "hedge: 50ms, attempts: 3, delay: 1s"}, "either retried or hedged"),
        ({"retry": "hedge: 50ms"}, "requires 'max_attempts'"),
        ({"retry": "hedge: 50ms, attempts: 6"}, "attempts=6: expected a whole number from 2 to 5"),
        ({"retry": "hedge: soon, attempts: 3"}, "hedge='soon': expected"),
    ],
)
def test_bad_arguments(ours, settings, words):
    """CH-10, HG-9: creating a channel with a bad argument raises an error that names the argument."""
    with pytest.raises(OptionError, match=words), ours.channel("localhost:1", **settings):
        pytest.fail("it was made")


def test_an_argument_that_does_not_exist(ours):
    """CH-10: a misspelt argument is refused."""
    with pytest.raises(TypeError, match="lisstener"), ours.channel("localhost:1", lisstener=[]):
        pytest.fail("it was made")


@pytest.mark.parametrize("target", ["", b""])
def test_no_target(api, target):
    """CH-10: a channel without a target can be made, as on plain grpc; its first call fails."""
    with api.channel(target) as channel:
        outcome = channel.begin(timeout=20).outcome()
    assert outcome.code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNKNOWN)
    told = ("''", "Failed to create secure client channel")  # the last is what plain grpcio 1.63 says
    assert any(text in outcome.details for text in told)


@pytest.mark.parametrize("target", [":1", "http://localhost:1", "localhost:99999", "dns:///", None])
def test_targets_that_nobody_can_dial(ours, target):
    """CH-10: a target that cannot be dialled is rejected when the channel is created."""
    with pytest.raises(OptionError, match=r"^target="), ours.channel(target):
        pytest.fail("it was made")


def test_secure_means_secure(ours):
    """CH-8: `secure_channel` rejects missing credentials; it never falls back to an insecure channel."""
    with pytest.raises(TypeError, match="credentials"):
        ours.module.secure_channel("127.0.0.1:1", None)


def test_retrying(ours, server):
    """BP-2: `retrying` changes the policy of one call and accepts only methods of stubs on this library's channels."""
    with ours.channel(server.target) as channel:
        server.servicer.fails = 1
        assert channel.begin().outcome().code is CODE.UNAVAILABLE
        server.servicer.fails = 2
        assert channel.begin(retry="retry: 3, delay: 10ms").outcome().texts == ["a"]
    with pytest.raises(TypeError, match="expected a method of a stub on a grpc_backoff"):
        grpc_backoff.retrying(len, "retry: 1")


# One schedule per key.


def test_who_asks_in_backoff_fails_with_the_others(ours):
    """SH-3: in a key's backoff, a new channel's fail-fast calls fail with the last error, and its other calls wait."""
    log = Log()
    with (
        front(accept_close) as peer,
        ours.channel(peer.target, SLOW) as first,
        ours.channel(peer.target, SLOW, listeners=[log.hear]) as second,
    ):
        errors = [channel.begin().outcome().error for channel in (first, second)]
        assert [type(error) for error in errors] == [type(errors[0])] * 2
        assert isinstance(errors[0], NoConnectionError)
        assert errors[0].details() == errors[1].details()
        assert errors[1].status.last_error.stage is Stage.SETTINGS
        waiting = second.begin("Down", wait_for_ready=True)
        time.sleep(0.1)
        assert not waiting.done()
        waiting.cancel()
        assert len(peer.visits) == 1


def test_who_asks_beside_a_connection_dials(ours):
    """SH-3: in a key's backoff, a new channel's call waits for a dial of its own if another channel is READY."""
    with (
        place(credentials=server_credentials()) as server,
        front(healthy, server.port) as peer,
        ours.channel(peer.target, FAST, credentials=client_credentials()) as ready,
        ours.channel(peer.target, FAST, credentials=client_credentials()) as failing,
        ours.channel(peer.target, FAST, credentials=client_credentials()) as fresh,
    ):
        ready.ready()
        peer.behave(accept_close)
        until(lambda: failing.begin().outcome().code is CODE.UNAVAILABLE)
        peer.behave(healthy)
        assert fresh.begin(timeout=20).outcome().texts == ["a"]
        assert ready.begin(timeout=20).outcome().texts == ["a"]


def test_a_channel_for_each_request(ours):
    """SH-5: a client that creates a channel per request dials a failing server once per INITIAL_BACKOFF."""
    log = Log()
    with front(accept_close) as peer:
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            with ours.channel(peer.target, FAST, listeners=[log.hear]) as channel:
                assert channel.begin(timeout=20).outcome().code is CODE.UNAVAILABLE
        until(lambda: len(log.of(AttemptStarted)) >= len(peer.visits))
        times = [event.at for event in log.of(AttemptStarted) if not event.elsewhere]
        assert len(times) >= 2
        assert all(later - earlier >= 0.499 for earlier, later in pairwise(times))  # uvloop counts milliseconds


def test_a_peer_that_hangs_up_is_remembered(ours):
    """SH-5: a peer that hangs up after SETTINGS is not dialled more often if each call has a channel of its own."""
    times = []
    with front(settings_then_close(0)) as peer:
        for _ in range(4):
            log = Log()
            with ours.channel(peer.target, FAST, listeners=[log.hear]) as channel:
                call = channel.begin("Down", wait_for_ready=True, timeout=60)
                log.until((Disconnected, AttemptFailed))
                call.cancel()
            times += [event.at for event in log.of(AttemptStarted)]
        assert len(times) >= 4
        assert all(later - earlier >= 0.499 for earlier, later in pairwise(times))  # uvloop counts milliseconds
        assert len(peer.visits) <= 2 * len(times), "the core may redial once for each attempt"


def test_a_healthy_client_is_not_slowed(ours, server, monkeypatch):
    """SH-5: closing a connection on this side does not delay later channels, however long INITIAL_BACKOFF is."""
    monkeypatch.setattr(dial_times, "SPARE_UNTIL", 0.0)  # no connection waits for the next channel (SH-8)
    with front(healthy, server.port) as peer:
        for _ in range(20):
            with ours.channel(peer.target, SLOW) as channel:
                assert channel.begin(timeout=20).outcome().texts == ["a"]
        assert len(peer.visits) == 20


def test_a_server_that_starts_behind_the_failure(ours, nowhere):
    """SH-5: after a failure, a channel created once the server is up waits at most INITIAL_BACKOFF."""
    with ours.channel(nowhere.target) as channel:
        assert channel.begin().outcome().code is CODE.UNAVAILABLE
    nowhere.start()
    with ours.channel(nowhere.target) as channel:
        assert channel.begin(timeout=20).outcome().texts == ["a"]


def test_a_reset_reaches_other_channels(ours, server):
    """SH-6, CB-9: resetting one channel ends the backoff of every channel with the same key."""
    log = Log()
    with (
        front(accept_close, server.port) as peer,
        ours.channel(peer.target, SLOW) as first,
        ours.channel(peer.target, SLOW, listeners=[log.hear]) as second,
    ):
        first.begin().outcome()
        waiting = second.begin(wait_for_ready=True, timeout=60)
        until(lambda: second.own.connection_status().last_error)
        peer.behave(healthy)
        first.own.reset_connect_backoff()
        assert waiting.outcome(30).texts == ["a"]
        until(lambda: log.of(BackoffReset))
