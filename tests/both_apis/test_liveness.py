"""Liveness by a call: peers that are dead, slow or strange. Runs in real time, with generous slack."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
import time
from functools import partial

import grpc
import pytest

import grpc_backoff
from grpc_backoff import AttemptFailed, AttemptStarted, Disconnected, network_changed
from grpc_backoff.aio import core_channel
from grpc_backoff.decide.connections.events import Failure, Stage
from grpc_backoff.decide.connections.liveness_machine import WOKE, LivenessPhase
from grpc_backoff.decide.connections.slot_events import LivenessAnswered, LivenessAsked, NameResolution, SlotCondemned
from grpc_backoff.engine import resolver
from tests.both_apis.api import backoff_ms
from tests.both_apis.relay import relay
from tests.both_apis.test_health import served
from tests.both_apis.test_pool import post
from tests.certificates import client_credentials
from tests.sync.service import Echo, dialled, elsewhere, place, until

CODE = grpc.StatusCode
FAST = backoff_ms(50, 100)
TWICE = "hedge: 50ms, attempts: 2"


def options(quiet, within=0.5):
    return [*FAST, ("grpc_backoff.quiet_after", quiet), ("grpc_backoff.answer_within", within)]


def is_paused(channel):
    """Return whether calls on the channel's only connection have to wait for an answer, because of a pause."""
    pool = channel.own._pool
    paused = [watch.state.phase for watch in tuple(pool.liveness.values())] == [LivenessPhase.PAUSED]
    return paused and not pool.takes_calls  # which is False for a moment before the first call, too


@contextlib.contextmanager
def relayed():
    """Run a server behind a relay; yield both."""
    with place() as server, relay(server.port) as between:
        yield server, between


@pytest.mark.parametrize("directions", [("up", "down"), ("up",), ("down",)], ids=["both", "up", "down"])
def test_a_dead_peer_under_an_open_stream(ready, log, directions):
    """LV-1: when all packets, or those of one direction, are lost, streams fail soon, and the next call is answered."""
    with relayed() as (_, between), ready(between.target, options(0.2)) as channel:
        stream = channel.begin("Both", iter(["a", threading.Event()]), timeout=60)
        assert stream.read() == "a"
        between.lose(*directions)
        lost = time.monotonic()
        outcome = stream.outcome(30)
        assert outcome.code is CODE.UNAVAILABLE
        assert "no answer for 0.5 s" in outcome.details
        assert channel.unary(timeout=20) == "a"
        assert time.monotonic() - lost < 15, "0.2 s and 0.5 s, and a handshake"
        assert between.connections == 2
        assert [event.why for event in log.of(SlotCondemned)] == ["no answer for 0.5 s"]
        log.until(LivenessAnswered)  # LV-3: the new connection serves after an answer
        asked = log.of(LivenessAsked)
        assert any(event.why == "nothing has arrived on it for 0.2 s" for event in asked)
        assert any(event.why == "it replaces a connection whose peer may be dead" for event in asked), "LV-3"
        assert "no answer for 0.5 s" in str(log.of(Disconnected)[0].failure)
        until(lambda: [slot.role.value for slot in channel.own.connection_status().connections] == ["serving"])


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGSTOP")
def test_a_frozen_server_under_an_open_stream(ready, log, nowhere):
    """LV-1: when a server is stopped by SIGSTOP, a stream without a deadline fails soon, and calls go to the next one.

    Soon is 0.2 s without a call, 0.5 s for an answer, and slack for a slow machine.
    """
    with elsewhere(nowhere) as process, ready(nowhere.target, options(0.2)) as channel:
        stream = channel.begin("Both", iter(["a", threading.Event()]))
        assert stream.read() == "a"
        process.send_signal(signal.SIGSTOP)
        frozen = time.monotonic()
        outcome = stream.outcome(30)
        assert outcome.code is CODE.UNAVAILABLE
        assert "no answer for 0.5 s" in outcome.details
        assert time.monotonic() - frozen < 15
        log.exactly(SlotCondemned, 1)
        process.kill()
        process.wait()
        nowhere.start()
        assert channel.unary(timeout=20, wait_for_ready=True) == "a"


def test_a_dead_peer_after_a_pause(ready, log):
    """LV-1: calls after a pause wait for the answer, one liveness call for all, and use the new connection if none."""
    with relayed() as (server, between), ready(between.target, options(0.2)) as channel:
        assert channel.unary(timeout=20) == "a"
        until(lambda: is_paused(channel))
        between.lose()
        calls = [channel.begin(timeout=20) for _ in range(10)]
        assert [call.outcome().code for call in calls] == [CODE.OK] * 10
        condemned = log.of(SlotCondemned)[0]
        assert len([event for event in log.of(LivenessAsked) if event.at < condemned.at]) == 1
        assert between.connections == 2
        assert len(server.servicer.got) == 11, "no call was sent twice"


@pytest.mark.parametrize("connections", [1, 2])
def test_the_deadline_of_a_call_that_waits_for_the_answer(ready, connections):
    """LV-1, CH-4: a call after a pause whose deadline is sooner than the answer says what it has waited for."""
    several = [("grpc_backoff.max_connections", connections)]
    with relayed() as (_, between), ready(between.target, [*options(0.2, within=20), *several]) as channel:
        assert channel.unary(timeout=20) == "a"
        until(lambda: is_paused(channel))
        between.lose()
        outcome = channel.begin(timeout=0.1).outcome()
        assert outcome.code is CODE.DEADLINE_EXCEEDED
        waiting = "Deadline Exceeded while waiting"
        assert outcome.details == f"{waiting}: {between.target} was asked whether it is alive and has not answered yet"


def test_a_pause_with_a_peer_that_lives(ready, log):
    """LV-1, LV-5: after a pause, one liveness call; the connection stays, and the status says why it was asked."""
    with place() as server, ready(server.target, options(0.5)) as channel:
        for number in range(3):
            until(lambda: is_paused(channel))
            time.sleep(0.1)
            assert len(log.of(LivenessAsked)) == number, "a connection without calls is not asked"
            assert channel.unary(timeout=20) == "a"
            until(lambda number=number: len(log.of(LivenessAnswered)) == number + 1)
        (slot,) = channel.own.connection_status().connections
        assert (slot.suspected, slot.answered) == ("no call has used it for 0.5 s", True)
        log.exactly(AttemptStarted, 1)


def test_the_own_deadline_of_a_call_that_waits(ready):
    """LV-1: the deadline of a call that waits for the answer to a liveness call is its own."""
    with relayed() as (_, between), ready(between.target, options(0.1, 20)) as channel:
        until(lambda: is_paused(channel))
        between.lose()
        began = time.monotonic()
        assert channel.begin(timeout=0.3).outcome().code is CODE.DEADLINE_EXCEEDED
        assert time.monotonic() - began < 10


ANSWERS = {
    "serving": lambda context: b"\x08\x01",
    "garbage": lambda context: b"\xff\xff\xff",
    "empty": lambda context: b"",
    "refuses": lambda context: context.abort(CODE.PERMISSION_DENIED, "no"),
    "unauthenticated": lambda context: context.abort(CODE.UNAUTHENTICATED, "no"),
    "unavailable": lambda context: context.abort(CODE.UNAVAILABLE, "the upstream is down"),
    "raises": lambda context: 1 / 0,
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_any_answer_is_life(ready, log, answer):
    """LV-1: any answer to the liveness call shows that the peer is alive; the call has no metadata of the user."""
    with served(check=ANSWERS[answer]) as server, ready(server.target, options(0.1, 5)) as channel:
        stream = channel.begin("Both", iter(["a", threading.Event()]), metadata=(("token", "secret"),), timeout=60)
        assert stream.read() == "a"
        log.until(LivenessAnswered, 3)
        assert not stream.done()
        assert not log.of(SlotCondemned)
        assert [slot.calls for slot in channel.own.connection_status().connections] == [1], "it is no running call"
        assert not any(key == "token" for each in server.health.metadata for key, _ in each)
        stream.cancel()


def test_a_health_service_that_never_answers(ready, log):
    """LV-1: a health service that hangs is a dead peer; replacements are made no faster than the backoff allows."""
    over = threading.Event()
    with served(check=lambda context: over.wait(20)) as server:
        try:
            with ready(server.target, options(0.1, 0.2)) as channel:
                call = channel.begin(texts=["hang"], timeout=20)
                assert call.outcome().code is CODE.UNAVAILABLE
                log.until(SlotCondemned, 3)
                assert channel.begin(timeout=0.5).outcome().code is CODE.DEADLINE_EXCEEDED, "LV-3: nothing serves"
            assert min(log.gaps()) >= 0.049  # uvloop counts milliseconds
        finally:
            over.set()


def test_close_while_the_peer_is_asked(ready, monkeypatch):
    """LV-1, CB-10: `close` does not wait for the answer to a liveness call; no core channel is left."""
    monkeypatch.setattr(core_channel, "_LAST_NOTICE", 30.0)
    asked, over = threading.Event(), threading.Event()

    def check(_context):
        asked.set()
        over.wait(20)

    with served(check=check) as server:
        try:
            with ready(server.target, options(0.1, 20)) as channel:
                call = channel.begin(texts=["hang"], timeout=20)
                assert asked.wait(20)
                began = time.monotonic()
                channel.close()
                assert time.monotonic() - began < 15
                assert call.outcome().code is CODE.CANCELLED
                until(lambda: dialled() == [])
        finally:
            over.set()


def test_a_slow_server(ready, log):
    """LV-2: a server that is only slow costs a liveness call; no call fails that would not, and nothing is replaced."""

    class Slow(Echo):
        def Unary(self, request, context):  # noqa: N802
            time.sleep(0.5)
            return request

    with served(check=ANSWERS["empty"], servicer=Slow()) as server, ready(server.target, options(60, 20)) as channel:
        codes = [channel.begin(timeout=0.1).outcome().code for _ in range(6)]
        assert codes == [CODE.DEADLINE_EXCEEDED] * 6
        log.until(LivenessAnswered)
        assert {event.why for event in log.of(LivenessAsked)} == {"two calls in a row have ended without an answer"}
        assert len(log.of(LivenessAsked)) <= 3
        assert channel.unary(timeout=20) == "a"
        log.exactly(AttemptStarted, 1)


def test_a_loop_that_is_blocked_while_the_peer_is_asked(ours):
    """LV-4: a loop, or a conductor, blocked just after the peer is asked condemns no connection to a living peer.

    It is blocked for 0.9 s with 0.5 s for an answer, in the turns after the question, so in one of them before grpcio
    has sent it.
    """
    seen = []

    def block(turns):
        if not turns:
            time.sleep(0.9)
        elif ours.name == "threads":
            post(ours, channel, partial(block, turns - 1))
        else:
            asyncio.get_running_loop().call_soon(block, turns - 1)

    def hear(event):
        seen.append(type(event))
        if type(event) is LivenessAsked and seen.count(LivenessAsked) == 1:
            block(turns) if ours.name == "asyncio" else post(ours, channel, partial(block, turns))

    with place() as server:
        for turns in range(5):
            seen.clear()
            with ours.channel(server.target, options(0.1), listeners=[hear]) as channel:
                channel.ready()
                until(lambda channel=channel: is_paused(channel))
                assert channel.unary(timeout=20) == "a"
                until(lambda: LivenessAnswered in seen)
                assert SlotCondemned not in seen, turns
                assert seen.count(AttemptStarted) == 1


def test_two_deadlines_with_a_dead_peer(ready, log):
    """LV-2: two calls in a row that reach their deadlines are a reason to ask, long before `quiet_after`."""
    with relayed() as (_, between), ready(between.target, options(600, 0.3)) as channel:
        assert channel.unary(timeout=20) == "a"
        between.lose()
        for _ in range(2):
            assert channel.begin(timeout=0.1).outcome().code is CODE.DEADLINE_EXCEEDED
        log.until(SlotCondemned)
        assert channel.unary(timeout=20) == "a"
        assert between.connections == 2


def test_calls_that_are_cancelled(ours, ready, log):
    """LV-2: two calls in a row that this side cancels are a reason to ask, as two that reach their deadlines are."""
    way = "Unary" if ours.name == "asyncio" else "Unary.future"
    with relayed() as (_, between), ready(between.target, options(600)) as channel:
        assert channel.unary(timeout=20) == "a"
        between.lose()

        def condemned():
            call = channel.begin(way, ["hang"])
            time.sleep(0.1)
            call.cancel()
            return log.of(SlotCondemned)

        until(condemned)
        assert channel.unary(timeout=20) == "a"


def test_cancelled_calls_show_no_life(ours, ready, log):
    """LV-1: for `quiet_after`, only what arrives counts: one call after another that is cancelled changes nothing."""
    way = "Unary" if ours.name == "asyncio" else "Unary.future"
    with place() as server, ready(server.target, options(60)) as channel:
        assert channel.unary(timeout=20) == "a"
        (watch,) = channel.own._pool.liveness.values()
        heard = time.monotonic() - watch.connection.quiet()
        call = channel.begin(way, ["hang"])
        assert server.servicer.hanging.wait(20)
        time.sleep(0.5)
        call.cancel()
        until(lambda: watch.connection.running == 0)
        assert time.monotonic() - watch.connection.quiet() == pytest.approx(heard, abs=0.2)


def test_hedged_calls_past_a_dead_peer(ours, log):
    """LV-1, LV-2: the copies that lose are cancelled, so the peer that answers none of them is asked."""
    with relayed() as (_, between), place() as other:
        target, policy = f"ipv4:{between.target},{other.target}", [("grpc.lb_policy_name", "round_robin")]
        with ours.channel(target, [*options(0.3), *policy], listeners=[log.hear], retry=TWICE) as channel:
            channel.ready()
            until(lambda: len(channel.own._pool.liveness) == 2)
            between.lose()
            until(lambda: channel.unary(timeout=20) == "a" and log.of(SlotCondemned))
            assert log.of(SlotCondemned)[0].endpoint == between.target


LIMIT = [("grpc.max_concurrent_streams", 2)]


def test_a_question_behind_the_limit_of_streams(ready, log):
    """LV-1: a peer whose limit of streams keeps the liveness call from being sent is not condemned.

    Two calls are at work, and others wait behind them and reach their deadlines.
    """
    with place(options=LIMIT) as server, ready(server.target, options(0.2, 0.3)) as channel:
        working = [channel.begin(texts=["hang"]) for _ in range(2)]
        until(lambda: len(server.servicer.hung) == 2)
        for _ in range(3):
            queued = [channel.begin(timeout=0.2) for _ in range(2)]
            assert [call.outcome().code for call in queued] == [CODE.DEADLINE_EXCEEDED] * 2
        log.until(LivenessAsked, 2)
        time.sleep(0.4)
        assert not log.of(SlotCondemned)
        assert not any(call.done() for call in working)
        server.servicer.end()
        assert [call.outcome().code for call in working] == [CODE.OK] * 2
        assert channel.unary(timeout=20) == "a"
        log.exactly(AttemptStarted, 1)


def test_messages_are_life(ready, log):
    """LV-1: streams whose messages arrive need no liveness call, and none could be sent."""
    steady, end = 0.05, time.monotonic() + 3.0

    class Ticking(Echo):
        def Down(self, request, context):  # noqa: N802
            while time.monotonic() < end:
                yield request
                time.sleep(steady)

    with place(Ticking(), options=LIMIT) as server, ready(server.target, options(1.0, 0.2)) as channel:
        streams = [channel.begin("Down", timeout=20) for _ in range(2)]
        outcomes = [stream.outcome() for stream in streams]
        assert [outcome.code for outcome in outcomes] == [CODE.OK] * 2
        assert min(len(outcome.texts) for outcome in outcomes) > 3, "they outlasted several times that an idle one has"
        assert not log.of(LivenessAsked)


def test_a_dead_peer_below_its_limit_of_streams(ready, log):
    """LV-1: a peer that can be asked, and is dead, is condemned, although its limit of streams is known to be low."""
    with (
        place(options=LIMIT) as server,
        relay(server.port) as between,
        ready(between.target, options(0.2)) as channel,
    ):
        call = channel.begin(texts=["hang"], timeout=20)
        assert server.servicer.hanging.wait(20)
        between.lose()
        assert call.outcome().code is CODE.UNAVAILABLE
        assert log.of(SlotCondemned)


PROXIED = {
    "envoy": lambda context: context.send_initial_metadata((("server", "envoy"),)) or b"",
    "via": lambda context: (
        context.set_trailing_metadata((("via", "1.1 x"),)) or context.abort(CODE.UNIMPLEMENTED, "no")
    ),
}


@pytest.mark.parametrize("answer", PROXIED)
def test_an_answer_through_a_proxy(ready, log, caplog, answer):
    """LV-1: one warning for each channel says that a proxy answers, or passes the question to any server."""
    with caplog.at_level("WARNING", "grpc_backoff"), served(check=PROXIED[answer]) as server:
        with ready(server.target, options(0.1, 5)) as channel:
            stream = channel.begin("Both", iter(["a", threading.Event()]), timeout=60)
            assert stream.read() == "a"
            log.until(LivenessAnswered, 3)
            stream.cancel()
        (record,) = [each for each in caplog.records if "proxy" in each.getMessage()]
        header = "via" if answer == "via" else "server"
        assert record.getMessage().startswith(f"{server.target}: ")
        assert f"(header {header})" in record.getMessage()


def test_off_by_default(ready, log):
    """LV-1: without `quiet_after`, no liveness call is made, and a connection has no watch."""
    with served(check=ANSWERS["empty"]) as server, ready(server.target, FAST) as channel:
        assert channel.unary(timeout=20) == "a"
        for _ in range(3):
            assert channel.begin(texts=["hang"], timeout=0.1).outcome().code is CODE.DEADLINE_EXCEEDED
        assert channel.own._pool.liveness == {}
        assert not log.of(LivenessAsked)
        assert server.health.metadata == []


@pytest.mark.parametrize("woken", [False, True])
def test_news_on_a_ready_connection(ours, ready, log, woken):
    """LV-4: news makes a channel ask its peer, and a dead one is replaced after 2 s.

    `network_changed` does so with `quiet_after`, and the end of a sleep without it as well.
    """

    def tell():
        post(ours, channel, partial(channel.own._pool.hear_news, WOKE, woke=True)) if woken else network_changed()

    with relayed() as (_, between), ready(between.target, FAST if woken else options(600, 60)) as channel:
        tell()
        log.until(LivenessAnswered)
        between.lose()
        tell()
        assert log.until(SlotCondemned).why == "no answer for 2 s"
        assert channel.unary(timeout=20) == "a"
        assert between.connections == 2


POLICIES = pytest.mark.parametrize(
    "policy", [[], [("grpc.lb_policy_name", "round_robin")]], ids=["pick_first", "round_robin"]
)


@contextlib.contextmanager
def asleep(api, log, target, options=(), **how):
    """Yield a channel whose next attempt is planned for more than 10 s later, and a call that waits for it."""
    slow = backoff_ms(200, 60_000)
    slow += [("grpc_backoff.multiplier", 100), *options]
    with api.channel(target, slow, listeners=[log.hear], **how) as channel:
        call = channel.begin(wait_for_ready=True, timeout=60)
        assert log.until(AttemptFailed, 2).retry_in > 10
        yield channel, call


def test_news_in_backoff(ours, log, nowhere):
    """LV-4: news makes a sleeping channel dial soon, once in each planned gap, and never resets its schedule."""
    with asleep(ours, log, nowhere.target) as (channel, call):
        for _ in range(20):
            network_changed()
            time.sleep(0.05)
        log.until(AttemptFailed, 3)
        assert [event.attempt for event in log.of(AttemptStarted)] == [1, 2, 2], "only one for the gap"
        assert log.of(AttemptFailed)[2].retry_in > 10, "the plan has not changed"
        nowhere.start()
        channel.own.reset_connect_backoff()
        assert call.outcome().code is CODE.OK


@POLICIES
@pytest.mark.parametrize("other", ["same API", "plain thread"])
def test_another_channel_reaches_the_server(ours, log, nowhere, policy, other):
    """LV-4: a sleeping channel dials soon when another one, with other options, has reached the same host and port.

    Its next attempt is planned for more than 10 s later. Whoever connects may be on another loop or thread.
    """
    with asleep(ours, log, f"ipv4:{nowhere.target}", policy) as (_, call):
        nowhere.start()
        reached = time.monotonic()
        if other == "same API":
            with ours.channel(nowhere.target, FAST) as another:
                another.ready()
                assert call.outcome().code is CODE.OK
        else:
            with grpc_backoff.insecure_channel(nowhere.target) as another:
                grpc.channel_ready_future(another).result(20)
                assert call.outcome().code is CODE.OK
        assert time.monotonic() - reached < 8, "0.2 s for the attempt"
        log.exactly(AttemptStarted, 3)


def test_another_channel_reaches_a_server_that_this_one_cannot_use(ours, log):
    """LV-4: a channel whose attempts fail, however often others connect, has one attempt more for the gap."""
    with place() as server, asleep(ours, log, server.target, credentials=client_credentials()):
        for _ in range(10):
            with ours.channel(server.target, FAST) as another:
                another.ready()
            time.sleep(0.05)
        log.until(AttemptFailed, 3)
        assert [event.attempt for event in log.of(AttemptStarted)] == [1, 2, 2]
        assert log.of(AttemptFailed)[2].retry_in > 10, "the plan has not changed"


@POLICIES
def test_a_name_whose_addresses_are_back(ours, log, nowhere, monkeypatch, policy):
    """LV-4, PO-7: with `resolve_every`, a sleeping channel dials soon when its name has addresses again.

    The name is looked up once a second, and the next attempt is planned for more than 10 s later.
    """
    there, gone = (nowhere.target,), Failure(Stage.RESOLVE, "it is gone")
    found = [there]
    monkeypatch.setattr(resolver, "look_up", lambda _host, _port: found[0])
    resolving = [("grpc_backoff.resolve_every", 1), *policy]
    with asleep(ours, log, f"localhost:{nowhere.port}", resolving) as (_, call):
        found[0] = gone
        until(lambda: any(event.failure for event in log.of(NameResolution)))
        tried = len(log.of(AttemptStarted))
        time.sleep(1.2)
        assert len(log.of(AttemptStarted)) == tried, "a name without addresses causes no attempt"
        nowhere.start()
        back = time.monotonic()
        found[0] = there
        assert call.outcome().code is CODE.OK
        assert time.monotonic() - back < 8, "1 s for the name and 0.2 s for the attempt"
        log.exactly(AttemptStarted, tried + 1)


@pytest.mark.parametrize("error", [OSError("too many open files"), RuntimeError("can't start new thread")], ids=repr)
def test_a_network_that_cannot_be_watched(ours, monkeypatch, error):
    """LV-4: the first call of a channel whose watch cannot start dials all the same."""

    def refuse(_tell):
        raise error

    monkeypatch.setattr("grpc_backoff.engine.network.NetworkWatcher", refuse)
    with place() as server, ours.channel(server.target, [("grpc_backoff.watch_network", True)]) as channel:
        assert channel.unary(timeout=20) == "a"
