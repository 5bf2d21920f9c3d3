"""RO-1: channels that watch the health of their servers. Runs in real time, with generous slack."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
import warnings

import grpc
import pytest

from grpc_backoff import AttemptFailed, AttemptStarted, Closed, Connected, PolicyWarning
from grpc_backoff.aio import core_channel
from grpc_backoff.decide.connections.slot_events import SlotOpened, SlotRetiring, SlotServing, SlotUnhealthy
from grpc_backoff.engine.slot import OnlySlot
from tests.both_apis.api import backoff_ms
from tests.both_apis.relay import relay
from tests.both_apis.test_pool import calls, drop, roles
from tests.sync.service import dialled, place, until

CODE = grpc.StatusCode
UNKNOWN, SERVING, NOT_SERVING = range(3)
INITIAL = 0.05
FAST = backoff_ms(round(INITIAL * 1000), 400)
AROUND = {"loadBalancingConfig": [{"round_robin": {}}]}
SAYS_NO = "health: the server reports NOT_SERVING"


def options(config=None, service="", **more):
    """Return options that ask for health checks, with this service config beside them."""
    asked = {**(config or {}), "healthCheckConfig": {"serviceName": service}}
    return [*FAST, ("grpc.service_config", json.dumps(asked)), *more.items()]


class Health(grpc.GenericRpcHandler):
    """A health service whose status the test sets, or whose Watch or Check does what the test says."""

    def __init__(self, behave, check):
        self.status = SERVING
        self.behave, self._check = behave, check
        self.requests, self.metadata = [], []
        self.running = 0

    def service(self, details):
        if details.method == "/grpc.health.v1.Health/Watch":
            return grpc.unary_stream_rpc_method_handler(self._watch)
        if details.method == "/grpc.health.v1.Health/Check" and self._check is not None:
            return grpc.unary_unary_rpc_method_handler(self._answer)
        return None

    def _answer(self, _request, context):
        self.metadata.append(context.invocation_metadata())
        return self._check(context)

    def _watch(self, request, context):
        self.requests.append(request)
        self.metadata.append(context.invocation_metadata())
        over, told = threading.Event(), None
        self.running += 1
        if not context.add_callback(over.set):
            over.set()
        try:
            while not over.wait(0.005):
                if self.behave is not None:
                    yield from self.behave(context, over)
                    return
                if self.status != told:
                    told = self.status
                    yield b"\x08" + bytes([told])
        finally:
            self.running -= 1


@contextlib.contextmanager
def served(behave=None, *, check=None, servicer=None):
    """Run an Echo server with a health service; it can be stopped and started again on its port."""
    health = Health(behave, check)
    with place(servicer, handlers=[health]) as server:
        server.health = health
        yield server


def state(channel):
    return channel.own.connection_status().state.name


def unhealthy_calls(channel):
    slots = channel.own.connection_status().connections
    return sum(slot.calls for slot in slots if slot.role.value == "unhealthy")


def test_a_rolling_restart(ours):
    """RO-1, CH-6: servers that say NOT_SERVING before they stop cost no call with round_robin; it stays READY."""
    codes, stop, states = [], threading.Event(), set()
    with (
        served() as one,
        served() as two,
        ours.channel(f"ipv4:{one.target},{two.target}", options(AROUND)) as channel,
    ):
        channel.ready()
        until(lambda: roles(channel) == ["serving"] * 2)
        join = channel.start([calls(stop, codes) for _ in range(4)])
        for server in (one, two, one, two):
            server.health.status = NOT_SERVING
            until(lambda: "unhealthy" in roles(channel))
            states.add(state(channel))
            until(lambda: not unhealthy_calls(channel))  # those that it has not accepted when it stops are cancelled
            server.kill(30)  # within 20 s, because the Watch ends with the GOAWAY
            server.health.status = SERVING
            server.start()
            until(lambda: one.health.running == two.health.running == 1)
            until(lambda: roles(channel) == ["serving"] * 2)
        stop.set()
        join()
    assert set(codes) == {CODE.OK}
    assert states == {"READY"}
    until(lambda: dialled() == [])


def test_pick_first_behind_an_address(ready, log):
    """RO-1: with pick_first, new calls go to another server behind the same address; a stream goes on."""
    codes, stop, end = [], threading.Event(), threading.Event()
    with (
        served() as one,
        served() as two,
        relay(one.port) as between,
        ready(between.target, options()) as channel,
    ):
        stream = channel.begin("Both", iter(["a", end]), timeout=60)
        assert stream.read() == "a"
        join = channel.start([calls(stop, codes) for _ in range(4)])
        between.turn(two.port)
        one.health.status = NOT_SERVING
        until(lambda: roles(channel) == ["retiring", "serving"])
        before = len(one.servicer.got)
        until(lambda: len(two.servicer.got) > 20)
        stop.set()
        join()
        assert len(one.servicer.got) <= before + 4, "those that were on their way"
        assert not stream.done()
        assert one.health.running == 0, "a retiring slot has no Watch"
        end.set()
        assert stream.outcome().code is CODE.OK
        until(lambda: roles(channel) == ["serving"])
    assert set(codes) == {CODE.OK}
    assert log.of(SlotUnhealthy)[0].why == "the server reports NOT_SERVING"
    assert min(log.gaps()) >= INITIAL - 1e-6  # rounding


def test_the_state_while_a_replacement_is_opened(ours):
    """RO-1, PO-4: from the moment at which a server is unhealthy, the channel is CONNECTING, so no call fails."""
    shown = []

    def look(event):
        if isinstance(event, SlotUnhealthy | SlotOpened) and event.slot in (0, 1):
            shown.append(state(channel))

    with (
        served() as one,
        served() as two,
        relay(one.port) as between,
        ours.channel(between.target, options(), listeners=[look]) as channel,
    ):
        channel.ready()
        until(lambda: one.health.running == 1)
        between.turn(two.port)
        one.health.status = NOT_SERVING
        until(lambda: roles(channel) == ["serving"] and two.health.running == 1)
    assert shown == ["CONNECTING"] * 2


@pytest.mark.parametrize("config", [{}, AROUND], ids=["pick_first", "round_robin"])
def test_nothing_serves(ready, log, config):
    """RO-1: the channel shows TRANSIENT_FAILURE, errors name the health, replacements back off, and it ends at once."""
    with served() as server, ready(f"ipv4:{server.target}", options(config)) as channel:
        stream = channel.begin("Both", iter(["a", threading.Event()]), timeout=60)
        assert stream.read() == "a"
        assert channel.unary(timeout=20) == "a", "its method remembers the connection"
        server.health.status = NOT_SERVING
        log.until(SlotUnhealthy)
        waits = channel.begin(wait_for_ready=True, timeout=60)
        log.until(AttemptFailed, 5)
        assert state(channel) == "TRANSIENT_FAILURE"
        outcome = channel.begin(timeout=20).outcome()
        assert (outcome.code, SAYS_NO in outcome.details) == (CODE.UNAVAILABLE, True)
        status = channel.own.connection_status()
        assert str(status.last_error) == SAYS_NO
        assert [str(slot.last_error) for slot in status.connections] == [SAYS_NO] * 2
        assert [slot.role.value for slot in status.connections] == ["unhealthy", "coming"]
        assert [event.attempt for event in log.of(AttemptFailed)[:5]] == [1, 2, 3, 4, 5]
        assert min(log.gaps()) >= 0.8 * INITIAL
        assert not waits.done()
        assert not stream.done()
        server.health.status = SERVING
        assert waits.outcome().code is CODE.OK
        assert channel.unary(timeout=20, wait_for_ready=True) == "a"
        stream.cancel()


def test_an_unhealthy_server_from_the_start(ours, log):
    """RO-1, CB-6: SETTINGS make the channel READY, and what the server then says counts; calls wait meanwhile."""
    with served() as server, ours.channel(server.target, options(), listeners=[log.hear]) as channel:
        server.health.status = NOT_SERVING
        channel.ready()
        log.until(Connected)
        log.until(AttemptFailed)
        assert channel.begin(timeout=20).outcome().code is CODE.UNAVAILABLE
        server.health.status = SERVING
        assert channel.unary(timeout=20, wait_for_ready=True) == "a"


def test_a_server_without_a_health_service(ready, log):
    """RO-1: UNIMPLEMENTED means serving; also for a replacement."""
    with place() as server, ready(server.target, options()) as channel:
        assert channel.unary(timeout=20) == "a"
        channel.own.refresh_connection()
        log.until(SlotRetiring)
        assert channel.unary(timeout=20) == "a"
        assert not log.of(SlotUnhealthy)
        assert not log.of(AttemptFailed)


def hangs(_context, over):
    over.wait(60)
    yield from ()


def garbage(_context, over):
    yield b"\xff\xff\xff"
    over.wait(60)


def refuses(context, _over):
    context.abort(CODE.PERMISSION_DENIED, "not for you")
    yield b""


def ends(_context, _over):
    yield from ()


def raises(_context, _over):
    yield 1 / 0


def test_a_health_service_that_never_answers(ready, log):
    """RO-1, CB-6: it is serving; a replacement waits half of what its limit leaves, and serves then."""
    limit = {"grpc.min_reconnect_backoff_ms": 1000}
    with served(hangs) as server, ready(server.target, options(**limit)) as channel:
        assert channel.unary(timeout=20) == "a"
        channel.own.refresh_connection()
        retiring = log.until(SlotRetiring)
        assert retiring.at - log.of(AttemptStarted)[-1].at >= 0.4
        assert channel.unary(timeout=20) == "a"
        assert not log.of(SlotUnhealthy)
        assert not log.of(AttemptFailed)


@pytest.mark.parametrize(
    ("behave", "reason"),
    [
        (garbage, "its health service sent no HealthCheckResponse"),
        (refuses, "its health service ended the call with PERMISSION_DENIED: not for you"),
        (ends, "its health service ended the call with OK"),
        (raises, "its health service ended the call with UNKNOWN"),
    ],
)
def test_a_health_service_that_is_broken(ready, log, behave, reason):
    """RO-1: a server whose health service answers with garbage, or refuses, is not serving, and its Watch backs off."""
    with served(behave) as server, ready(server.target, options()) as channel:
        log.until(AttemptFailed, 2)
        assert log.of(SlotUnhealthy)[0].why.startswith(reason)
        outcome = channel.begin(timeout=20).outcome()
        assert (outcome.code, f"health: {reason}" in outcome.details) == (CODE.UNAVAILABLE, True)
        assert min(log.gaps()) >= 0.8 * INITIAL
        server.health.behave = None
        assert channel.unary(timeout=20, wait_for_ready=True) == "a"


def test_a_stream_that_ends_after_each_answer(ready, log):
    """RO-1: what the server said last holds until the next stream, at most one per INITIAL_BACKOFF."""

    def answers(_context, _over):
        yield b"\x08\x01"

    with served(answers) as server, ready(server.target, options()) as channel:
        began = time.monotonic()
        until(lambda: len(server.health.requests) >= 5)
        assert time.monotonic() - began >= 3 * 0.1
        assert channel.unary(timeout=20) == "a"
        assert not log.of(SlotUnhealthy)


def test_what_is_asked(ours):
    """RO-1: one Watch for each connection, by us and not by the core, for the service, without the user's metadata."""
    config = {**AROUND, "methodConfig": [{"name": [{}], "waitForReady": True}]}
    with served() as server, ours.channel(f"ipv4:{server.target}", options(config, "shop.Orders")) as channel:
        assert channel.unary(timeout=20, metadata=(("token", "secret"),)) == "a"
        until(lambda: server.health.running == 1)
        time.sleep(0.3)
        assert server.health.requests == [b"\x0a\x0bshop.Orders"]
        assert not any(key == "token" for each in server.health.metadata for key, _ in each)
        assert [slot.calls for slot in channel.own.connection_status().connections] == [0], "it is no running call"


@pytest.mark.parametrize("config", [{}, AROUND], ids=["pick_first", "round_robin"])
def test_an_unused_channel_goes_idle(ready, log, config):
    """RO-1, CB-14: a Watch is no use of the channel: an unused connection closes, and a call makes a new one."""
    idle = {"grpc.client_idle_timeout_ms": 1000}
    with served() as server, ready(f"ipv4:{server.target}", options(config, **idle)) as channel:
        assert channel.unary(timeout=20) == "a"
        until(lambda: state(channel) == "IDLE")
        made = len(log.of(AttemptStarted))  # more than one if this machine stalls before the call
        until(lambda: server.health.running == 0)
        until(lambda: dialled() == [])
        log.exactly(AttemptStarted, made)
        assert channel.unary(timeout=20) == "a"
        until(lambda: server.health.running == 1)


@pytest.mark.parametrize("status", [SERVING, NOT_SERVING])
def test_close(ready, monkeypatch, log, status):
    """RO-1, CB-10: `close` ends the Watch at once, whatever it has said; no thread, task or core channel is left."""
    monkeypatch.setattr(core_channel, "_LAST_NOTICE", 30.0)
    with served() as server:
        server.health.status = status
        with ready(server.target, options()) as channel:
            until(lambda: server.health.running >= 1)
            if status == NOT_SERVING:
                log.until(AttemptFailed, 2)
            began = time.monotonic()
            channel.close()
            assert time.monotonic() - began < 15
        heard = len(log)
        until(lambda: server.health.running == 0)
        until(lambda: dialled() == [])
        time.sleep(0.3)
        assert len(log) == heard
        assert type(log[-1]) is Closed


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_dropped_channel(ours):
    """RO-1, CB-10: a channel that is dropped leaves no Watch behind."""
    with served() as server:
        drop(ours, server.target, options(), lambda: server.health.running == 1)
        until(lambda: server.health.running == 0)
        until(lambda: dialled() == [])


def test_a_replaced_connection(ready, log):
    """RO-1, PO-3: a retiring slot without calls closes, although it had a Watch; the new one has its own."""
    with served() as server, ready(server.target, options()) as channel:
        for number in range(5):
            channel.own.refresh_connection()
            log.until(SlotRetiring, number + 1)
            until(lambda: roles(channel) == ["serving"])
        until(lambda: server.health.running == 1)
        assert len(server.health.requests) == 6
        assert channel.unary(timeout=20) == "a"


def test_flapping_health(ready, log):
    """RO-1, PO-3: a server whose health changes all the time is dialled once per INITIAL_BACKOFF; its calls wait."""

    def flaps(_context, over):
        while not over.wait(0.002):
            yield b"\x08\x02"
            yield b"\x08\x01"

    slow = [("grpc.initial_reconnect_backoff_ms", 500), *options()[len(FAST) :]]
    with served(flaps) as server, ready(server.target, slow) as channel:
        codes = {channel.begin(wait_for_ready=True, timeout=30).outcome().code for _ in range(50)}
        assert codes == {CODE.OK}
        time.sleep(1)
        assert min(log.gaps(), default=1) >= 0.8 * 0.5
        assert log.of(SlotServing)


def test_off_by_default(ours):
    """RO-1: without a `healthCheckConfig`, and where the options inhibit it, no Watch is made."""
    with served() as server:
        for given in (FAST, options(**{"grpc.inhibit_health_checking": 1})):
            with ours.channel(server.target, given) as channel:
                server.health.status = NOT_SERVING
                assert channel.unary(timeout=20) == "a"
                time.sleep(0.1)
                assert server.health.requests == []
                assert isinstance(channel.own._pool.rules, OnlySlot)


def test_without_the_package(ours, monkeypatch):
    """RO-1: without grpcio-health-checking, grpc's core watches, with round_robin, and a warning says so."""
    monkeypatch.setitem(sys.modules, "grpc_health", None)
    with served() as server, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with ours.channel(f"ipv4:{server.target}", options(AROUND, "watched.by.the.core")) as channel:
            assert channel.unary(timeout=20, wait_for_ready=True) == "a"
            until(lambda: server.health.requests)
            assert [slot.spreads for slot in channel.own.connection_status().connections] == [True]
    (warned,) = [str(each.message) for each in caught if each.category is PolicyWarning]
    assert warned.startswith("healthCheckConfig: expected grpcio-health-checking to be installed (the extra 'health')")
