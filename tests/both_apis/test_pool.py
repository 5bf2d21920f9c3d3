"""Channels with several connections: replacement, round_robin, stream limits and their end. Runs in real time."""

from __future__ import annotations

import gc
import json
import socket
import threading
import time
import weakref
from collections import Counter
from contextlib import ExitStack
from functools import partial
from itertools import pairwise, repeat

import pytest

from grpc_backoff import AttemptFailed, AttemptStarted, Closed, Connected, Disconnected, Stage, State
from grpc_backoff.decide.connections.dial_machine import SHUTDOWN
from grpc_backoff.decide.connections.pool_records import Condemned, NameResolved
from grpc_backoff.decide.connections.slot_events import (
    NameResolution,
    SlotClosed,
    SlotOpened,
    SlotRetiring,
    SlotServing,
)
from grpc_backoff.engine.news import NEWS
from grpc_backoff.testing.front import accept_close, healthy, settings_then_close
from tests.both_apis.api import ThreadedApi, backoff_ms
from tests.both_apis.log import Log
from tests.both_apis.relay import relay
from tests.both_apis.test_restarts import CODE
from tests.certificates import client_credentials, server_credentials
from tests.echo import Message
from tests.ports import port_of_localhost
from tests.sync.service import Echo, dialled, front, place, until

INITIAL = 0.05
FAST = backoff_ms(round(INITIAL * 1000), 100)
ROUND_ROBIN = [("grpc.lb_policy_name", "round_robin")]
IN_CONFIG = [("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]}))]


def calls(stop, codes, pause=0.005, **how):
    """Make calls until `stop` is set; append their status codes to `codes`, from several threads at once."""
    while not stop.is_set():
        outcome = yield "a", {"timeout": 20, **how}
        codes.append(outcome.code)
        yield pause


def run(api, work):
    """Run a function where the API's channels belong."""
    return work() if api.name == "threads" else api._loop.do(work)


def post(api, channel, work):
    """Run a function where the channel's connections belong."""
    channel.own._conductor.post(work) if api.name == "threads" else run(api, work)


def roles(channel):
    return [slot.role.value for slot in channel.own.connection_status().connections]


class Counting(Echo):
    """A server that counts its calls."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def Unary(self, request, context):  # noqa: N802
        self.count += 1
        return request


# Replacement (PO-3, PO-9).


def test_replaced_under_load(ours):
    """PO-3, PO-9: with calls and open streams, no replacement loses, repeats or hangs a call; nothing accumulates.

    `make endurance` does the same 1,000 times.
    """
    replace_under_load(ours, 20)


def replace_under_load(ours, times):
    """Replace a channel's connection so many times under load; return the number of calls by code."""
    log, codes, stop, end = Log(), [], threading.Event(), threading.Event()

    def requests():
        yield "a"
        yield from repeat(end, 30)  # a threaded stream waits 20 seconds for each

    service = Echo()
    with place(service, threads=64) as server, ours.channel(server.target, FAST, listeners=[log.hear]) as channel:
        channel.ready()
        streams = [channel.begin("Both", requests(), timeout=600) for _ in range(20)]
        assert [stream.read() for stream in streams] == ["a"] * 20
        join = channel.start([calls(stop, codes) for _ in range(4)])
        for number in range(times):
            channel.own.refresh_connection()
            until(lambda number=number: len(log.of(SlotRetiring)) > number)
        stop.set()
        join()
        assert not any(stream.done() for stream in streams), "each goes on to its own end"
        until(lambda: len(roles(channel)) == 2)  # one with the streams, one for new calls
        end.set()
        assert {stream.outcome().code for stream in streams} == {CODE.OK}
        until(lambda: roles(channel) == ["serving"])
        starts = [event.at for event in log.of(AttemptStarted)]
        assert set(codes) == {CODE.OK}
        assert len(service.got) == len(codes) + 20, "nothing was sent twice"
    assert min(later - earlier for earlier, later in pairwise(starts)) >= INITIAL - 1e-6  # rounding
    assert len(starts) == times + 1
    until(lambda: not dialled())  # a retired connection is closed by a thread of its own
    return Counter(codes)


def test_a_replacement(ready, log):
    """PO-3, PO-9: running calls end on the old connection, new ones use the new one, and nothing of the old is left."""
    with place() as server, ready(server.target, FAST) as channel:
        stream = channel.begin("Down", ["then hang"], timeout=20)
        stream.read()
        channel.own.refresh_connection()
        until(lambda: roles(channel) == ["retiring", "serving"])
        assert [slot.calls for slot in channel.own.connection_status().connections] == [1, 0]
        assert channel.unary(timeout=20) == "a"
        stream.cancel()
        until(lambda: roles(channel) == ["serving"])
        until(lambda: log.of(SlotClosed))
    slots = log.of((SlotOpened, SlotServing, SlotRetiring, SlotClosed))
    assert [type(event) for event in slots] == [SlotOpened, SlotServing, SlotRetiring, SlotClosed]


@pytest.fixture
def replacing(ready, log):
    """A channel whose replacement backs off, because the front that it dials hangs up; and that front."""
    with place() as server, front(healthy, server.port) as peer, ready(peer.target, FAST) as channel:
        peer.behave(accept_close)
        channel.own.refresh_connection()
        log.until(AttemptStarted, 4)
        yield channel, peer


def test_a_replacement_that_cannot_connect(replacing, log):
    """PO-3: while the replacement backs off, the old connection serves; then the replacement takes over."""
    channel, peer = replacing
    assert channel.unary(timeout=20) == "a"
    assert channel.own.connection_status().state.name == "READY"
    peer.behave(healthy)
    log.until(SlotRetiring)
    assert channel.unary(timeout=20) == "a"
    until(lambda: roles(channel) == ["serving"])


def test_the_old_connection_breaks(replacing, log):
    """PO-3: if the old connection breaks while its replacement backs off, calls wait for the replacement."""
    channel, peer = replacing
    peer.break_all()
    log.until(Disconnected)  # a call before that may be sent on the broken connection (CH-7)
    call = channel.begin(wait_for_ready=True, timeout=20)
    peer.behave(healthy)
    assert call.outcome().code is CODE.OK
    until(lambda: roles(channel) == ["serving"])
    assert {event.slot for event in log.of(AttemptStarted)} == {0, 1}, "the old slot has not dialled again"


def test_a_request_during_an_attempt_in_backoff(ours, log):
    """PO-9, PO-10: a connection whose attempt, in backoff, began before a request to replace it is replaced.

    Its credentials were read before the request. An attempt that begins after it is not.
    """
    wait, waits, go_on = threading.Event(), threading.Event(), threading.Event()

    def read():
        if wait.is_set():
            waits.set()
            assert go_on.wait(20)
        return client_credentials()

    with place(credentials=server_credentials(), up=False) as server:
        slow = backoff_ms(50, 50, 20_000)
        with ours.channel(server.target, slow, listeners=[log.hear], credentials=read) as channel:
            call = channel.begin(wait_for_ready=True, timeout=30)
            log.until(AttemptFailed)
            channel.own.refresh_connection()  # no attempt is in flight, or one that fails
            wait.set()
            assert waits.wait(20)
            server.start()
            channel.own.refresh_connection()
            post(ours, channel, go_on.set)  # after the request
            assert call.outcome().code is CODE.OK
            assert log.until(SlotOpened).why == "refresh_connection() was called"
            log.until(SlotRetiring)
            until(lambda: roles(channel) == ["serving"])
            log.exactly(Connected, 2)
            log.exactly(SlotOpened, 1)


# round_robin (PO-6).


def test_a_good_backend_is_cut_beside_a_bad_one(ready, nowhere):
    """PO-4: the channel is never in TRANSIENT_FAILURE, so fail-fast calls wait for the good backend's next connection.

    Its slot is IDLE for a moment, and the other one fails.
    """
    shown = []
    with place() as good, relay(good.port) as between:
        target = f"ipv4:{between.target},{nowhere.target}"
        with ready(target, [*FAST, *ROUND_ROBIN]) as channel:
            pool = channel.own._pool
            show = pool.show
            pool.show = lambda state: (shown.append(state), show(state))
            until(lambda: {slot.state for slot in pool.slots()} == {State.READY, State.TRANSIENT_FAILURE})
            for number in range(3):
                between.cut()
                until(lambda number=number: between.connections == 2 + number)
                until(lambda: pool.state is State.READY)
                assert channel.unary(timeout=20) == "a"
    assert State.TRANSIENT_FAILURE not in shown[:-1]
    assert State.CONNECTING in shown


IDLE = [*FAST, *ROUND_ROBIN, ("grpc.client_idle_timeout_ms", 3000)]


@pytest.mark.parametrize("used", [3, 1])
def test_round_robin_becomes_idle(ready, log, used):
    """CB-14, PO-6: a channel whose slots were used one after the other becomes IDLE, and dials nothing for that.

    So does one with slots that no call has used.
    """
    with ExitStack() as stack:
        servers = [stack.enter_context(place()) for _ in range(3)]
        channel = stack.enter_context(ready("ipv4:" + ",".join(each.target for each in servers), IDLE))
        until(lambda: roles(channel) == ["serving"] * 3)
        for _ in range(used):
            assert channel.unary(timeout=20, wait_for_ready=True) == "a"
            time.sleep(0.2)
        until(lambda: channel.own._pool.state is State.IDLE)
        log.exactly(AttemptStarted, 3)
        assert channel.unary(timeout=20) == "a"
        until(lambda: roles(channel) == ["serving"] * 3)
        log.exactly(AttemptStarted, 6)


def test_a_slot_that_dozes(ready, log):
    """CB-14, PO-6: the next call of the channel wakes a slot that no call has used within the idle timeout."""
    with ExitStack() as stack:
        servers = [stack.enter_context(place()) for _ in range(2)]
        channel = stack.enter_context(ready("ipv4:" + ",".join(each.target for each in servers), IDLE))
        until(lambda: roles(channel) == ["serving"] * 2)
        assert channel.unary(timeout=20) == "a"
        stream = channel.begin("Both", iter(["a", threading.Event()]), timeout=60)
        assert stream.read() == "a"
        until(lambda: sorted(roles(channel)) == ["coming", "serving"])
        time.sleep(0.3)
        log.exactly(AttemptStarted, 2)
        assert channel.unary(timeout=20) == "a"
        until(lambda: roles(channel) == ["serving"] * 2)
        log.exactly(AttemptStarted, 3)
        stream.cancel()


def test_addresses_that_are_gone_are_forgotten(ours):
    """LV-4, PO-7: a pool keeps nothing of addresses that it has never reached and that its name no longer has."""
    with ours.channel("localhost:1", [*FAST, *ROUND_ROBIN]) as channel:
        pool = channel.own._pool
        call = channel.begin(wait_for_ready=True, timeout=60)
        for number in range(2, 30):
            post(ours, channel, partial(pool.feed, NameResolved((f"127.0.0.1:{number}",))))
            address = f"127.0.0.1:{number}"
            until(lambda address=address: address in [slot.endpoint for slot in pool.slots() if slot.last_error])
            pool.liveness.doubted.add(address)
        until(lambda: len(pool.slots()) == 1 and pool.liveness.doubted == {address} and len(NEWS._seeking[pool]) <= 1)
    until(call.done)


@pytest.mark.parametrize("options", [ROUND_ROBIN, IN_CONFIG], ids=["option", "service config"])
def test_a_bad_backend_beside_a_good_one(ready, log, options):
    """PO-6, CB-7: a backend that sends SETTINGS and hangs up is dialled once per INITIAL_BACKOFF; calls succeed."""
    codes, stop = [], threading.Event()
    half = ("grpc.initial_reconnect_backoff_ms", 500)
    with (
        place() as good,
        front(settings_then_close(0.0)) as bad,
        ready(f"ipv4:{good.target},{bad.target}", [*options, half]) as channel,
    ):
        join = channel.start([calls(stop, codes, 0.04, wait_for_ready=True) for _ in range(2)])
        time.sleep(1.75)  # until between two attempts, which are 0.5 s apart
        stop.set()
        join()
        visits = len(bad.visits)
        announced = [event for event in log.of(AttemptStarted) if event.endpoint == bad.target]
        assert visits <= 5
        assert visits <= len(announced) <= visits + 1, "the last attempt may be on its way"
    # On a busy machine, a call may have been sent before the end of its connection is noticed (CH-7).
    assert set(codes) <= {CODE.OK, CODE.UNAVAILABLE}
    assert codes.count(CODE.UNAVAILABLE) <= 2 < len(codes)


def test_a_refused_address_beside_a_silent_one(ours, nowhere, log):
    """CH-4, PO-4: while one address is silent, the error of a call says why another one has failed."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ExitStack() as stack:
        target = f"ipv4:127.0.0.1:{silent.getsockname()[1]},{nowhere.target}"
        channel = stack.enter_context(ours.channel(target, ROUND_ROBIN, listeners=[log.hear]))
        call = channel.begin(wait_for_ready=True, timeout=3)
        log.until(AttemptFailed)
        assert channel.own.connection_status().last_error.stage is Stage.TCP
        assert "; last error: tcp: " in call.outcome().details


def load(channel, services, times=300):
    """Make calls one after another; return how many each server got."""
    before = [service.count for service in services]
    for _ in range(times):
        channel.unary(timeout=20, wait_for_ready=True)
    return [service.count - count for service, count in zip(services, before, strict=True)]


def test_one_of_three_is_killed_and_comes_back(ready):
    """PO-6: calls go to the others meanwhile and are spread evenly again once the server is back."""
    services = [Counting() for _ in range(3)]
    with ExitStack() as stack:
        servers = [stack.enter_context(place(service)) for service in services]
        target = "ipv4:" + ",".join(server.target for server in servers)
        channel = stack.enter_context(ready(target, [*FAST, *ROUND_ROBIN]))
        until(lambda: roles(channel) == ["serving"] * 3)
        assert load(channel, services) == [100] * 3
        for _ in range(3):
            servers[1].kill()
            until(lambda: roles(channel).count("serving") == 2)
            assert load(channel, services, 30) == [15, 0, 15]
            servers[1].start()
            until(lambda: roles(channel) == ["serving"] * 3)
            assert load(channel, services) == [100] * 3


def test_a_name(ready, log):
    """PO-6, PO-7, PO-11: a name is resolved first, and each address is dialled as a literal, with the name kept."""
    with place() as server:
        named = f"localhost:{server.port}"
        with ready(named, [*FAST, *ROUND_ROBIN]) as channel:
            assert channel.unary(timeout=20, wait_for_ready=True) == "a"
        assert {event.endpoint for event in log.of(Connected)} == {server.target}
        assert {event.target for event in log.of(Connected)} == {named}
        assert [(event.addresses, event.failure) for event in log.of(NameResolution)] == [((server.target,), None)]


def test_a_name_that_does_not_resolve(ours, log):
    """PO-7: until addresses are known, a resolution that fails is a failed attempt, on the target's schedule."""
    with ours.channel("nowhere.invalid:1", [*FAST, *ROUND_ROBIN], listeners=[log.hear]) as channel:
        outcome = channel.begin(timeout=20).outcome()
        assert outcome.code is CODE.UNAVAILABLE
        assert "no connection to nowhere.invalid:1; last error: resolve: " in outcome.details
        log.until(AttemptStarted, 3)
        assert log.gaps()[0] >= INITIAL - 0.001  # uvloop's clock counts whole milliseconds


# Several connections for one endpoint (PO-8).


def test_more_connections_for_more_streams(ready, log):
    """PO-8: beyond a server's limit of streams, more connections are opened; then no call of a burst fails."""
    options = [*FAST, ("grpc_backoff.max_connections", 4), ("grpc_backoff.streams_per_connection", 100)]
    with place(threads=400) as server, ready(server.target, options) as channel:
        held = [channel.begin("Down", ["then hang"], timeout=60) for _ in range(20)]
        for connections in (2, 3, 4):
            held += [channel.begin("Down", ["then hang"], timeout=60) for _ in range(100)]
            log.until(Connected, connections)
        for call in held:
            call.cancel()
        until(lambda: sum(slot.calls for slot in channel.own.connection_status().connections) == 0)
        time.sleep(0.1)  # until the ended calls are no longer counted (PO-14)
        burst = [channel.begin("Down", ["then hang"], timeout=60) for _ in range(300)]
        assert [slot.calls for slot in channel.own.connection_status().connections] == [75] * 4
        assert {call.read() for call in burst} == {"then hang"}
        assert not any(call.done() for call in burst)
        server.servicer.end()
        assert len(log.of(SlotOpened)) == len(log.of(SlotServing)) == 3


# The end (PO-12), and what is refused.


@pytest.mark.parametrize("options", [ROUND_ROBIN, [("grpc_backoff.max_connections", 2)], []])
def test_close_leaves_nothing(ready, log, options):
    """PO-12, CB-10: `close` ends all connections and attempts; `Closed` comes last, once; no core channel is left."""
    with place() as one, front(accept_close) as bad:
        with ready(f"ipv4:{one.target},{bad.target}", [*FAST, *options]) as channel:
            stream = channel.begin("Down", ["then hang"], timeout=20)
            stream.read()
            channel.own.refresh_connection()
            until(lambda: "retiring" in roles(channel))
        assert stream.outcome().code is CODE.CANCELLED
        until(lambda: log.of(Closed))
        heard, visits = len(log), len(bad.visits)
        time.sleep(0.3)
        assert len(log) == heard
        assert len(bad.visits) <= visits + 1, "an attempt may have been on its way"
        assert type(log[-1]) is Closed
        log.exactly(Closed, 1)
    until(lambda: dialled() == [])


def drop(api, target, options, used):
    """Have a channel dial, and drop it as soon as `used` returns True; wait until it has ended."""
    log = Log()
    channel = run(api, lambda: api.make(target, options, listeners=[log.hear]))
    if api.name == "threads":
        channel.subscribe(lambda _: None, try_to_connect=True)
    else:
        run(api, partial(channel.get_state, try_to_connect=True))
    until(used)
    gone = weakref.ref(channel)
    del channel
    gc.collect()
    assert gone() is None
    log.until(Closed)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_dropped_channel(ours):
    """PO-12, CB-10: a channel that is dropped stops dialling at every address."""
    with place() as one, front(accept_close) as bad:
        drop(ours, f"ipv4:{one.target},{bad.target}", [*FAST, *ROUND_ROBIN], lambda: len(bad.visits) >= 2)
        visits = len(bad.visits)
        time.sleep(0.3)
        assert len(bad.visits) <= visits + 1, "an attempt may have been on its way"


class Owner:
    """A program's client: it owns a channel that reports to it."""

    def __init__(self, api, target, log):
        self.log = log
        self.channel = api.make(target, FAST, listeners=[self.hear])
        if api.name == "threads":
            self.channel.subscribe(self.see, try_to_connect=True)
        else:
            self.channel.get_state(try_to_connect=True)

    def hear(self, event):
        self.log.hear(event)

    def see(self, _state):
        pass


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_owner_that_listens(ours, nowhere, log):
    """CB-10: a channel that reports to its owner keeps the owner alive no longer than itself, and reports its end."""
    owner = run(ours, lambda: Owner(ours, nowhere.target, log))
    log.until(AttemptFailed)
    gone = weakref.ref(owner)
    del owner

    def is_gone():
        gc.collect()
        return gone() is None

    until(is_gone)  # a listeners' thread may be about to end
    log.until(Closed)


def test_a_core_that_does_it_all(ready):
    """PO-5: a policy that only the core knows stays the core's, with one slot for the whole target, which says so."""
    config = json.dumps({"loadBalancingConfig": [{"weighted_round_robin": {}}]})
    with place() as server, ready(server.target, [("grpc.service_config", config)]) as channel:
        assert channel.unary(timeout=20) == "a"
        assert [(slot.endpoint, slot.spreads) for slot in channel.own.connection_status().connections] == [("", True)]


SEVERAL = [("grpc_backoff.max_connections", 2)]


@pytest.mark.parametrize(
    ("options", "picks"),
    [([], False), (ROUND_ROBIN, True), (IN_CONFIG, True), (SEVERAL, True)],
    ids=["pick_first", "option", "service config", "several"],
)
def test_slots(ready, options, picks):
    """PO-5, PO-6, PO-13: the core makes one connection for each slot, and calls use an only slot without a pick."""
    with place() as server, ready(f"ipv4:{server.target}", options) as channel:
        assert [slot.spreads for slot in channel.own.connection_status().connections] == [False]
        assert channel.own._pool.setup.picks is picks


@pytest.mark.parametrize("retry", [None, "retry: 3, delay: 10ms"])
def test_condemned(ours, ready, cancellable, retry):
    """PO-2: the calls of a condemned connection fail at once, whatever their arity; a policy may repeat them."""
    service = Echo()
    with place(service) as server, ready(server.target, FAST) as channel:
        call = channel.begin(cancellable, ["hang"], retry=retry, timeout=20)
        assert service.hanging.wait(20)
        service.hanging.clear()
        post(ours, channel, partial(channel.own._pool.feed, Condemned(0, "no answer")))
        if retry is None:
            outcome = call.outcome()
            assert (outcome.code, "no answer" in outcome.details) == (CODE.UNAVAILABLE, True)
        else:
            assert service.hanging.wait(20)
            service.end()
            assert call.outcome().code is CODE.OK
        assert channel.unary(timeout=20, wait_for_ready=True) == "a"
        assert len(service.got) == (2 if retry is None else 3)
        until(lambda: roles(channel) == ["serving"])


@pytest.mark.parametrize("retry", [None, "retry: 3, delay: 10ms"])
def test_condemned_after_a_message(ours, ready, retry):
    """PO-2, RT-8: such a stream ends with UNAVAILABLE, whatever its policy, and its text says why.

    On threads, grpcio's core puts words of its own around the text.
    """
    service = Echo()
    with place(service) as server, ready(server.target, FAST) as channel:
        stream = channel.begin("Down", Message(text="then hang", count=1), retry=retry, timeout=20)
        assert stream.read() == "then hang"
        assert service.hanging.wait(20)
        post(ours, channel, partial(channel.own._pool.feed, Condemned(0, "no answer")))
        outcome = stream.outcome()
        assert outcome.code is CODE.UNAVAILABLE
        assert "the connection was lost: no answer" in outcome.details
        assert len(service.got) == 1


class Dawdling:
    """Call credentials that grpcio looks at after a call has entered a connection, and that take their time."""

    def __init__(self, looked):
        self._looked = looked

    @property
    def _credentials(self):
        self._looked()


@pytest.mark.parametrize("retry", [None, "retry: 3, delay: 10ms, jitter: none"])
@pytest.mark.parametrize("way", ThreadedApi.ways)
def test_a_call_that_enters_as_its_connection_is_condemned(retry, way):
    """PO-2: it is UNAVAILABLE, or repeated by its policy; grpcio would raise ValueError for a closed channel."""
    closed = []

    def condemn():
        core = channel.own._pool.connection()
        if not closed and core.calls:  # otherwise, the call has not entered yet
            closed.append(core)
            channel.own._conductor.post(lambda: channel.own._pool.feed(Condemned(0, "no answer")))
            until(lambda: core.shown() == SHUTDOWN)

    with place() as server, ThreadedApi("ours").channel(server.target, FAST) as channel:
        channel.ready()
        assert channel.unary(timeout=20) == "a"
        outcome = channel.begin(way, ["a"], retry=retry, timeout=20, credentials=Dawdling(condemn)).outcome()
        assert closed
        if retry is None:
            assert (outcome.code, outcome.details) == (CODE.UNAVAILABLE, "the connection was lost: no answer")
        else:
            assert (outcome.code, outcome.texts) == (CODE.OK, ["a"])


@pytest.mark.parametrize("options", [ROUND_ROBIN, []], ids=["round robin", "pick first"])
def test_tls(ready, log, options):
    """PO-6, PO-3: TLS verifies the name of the target for each address, and for a replacement."""
    with (
        port_of_localhost() as port,
        place(credentials=server_credentials(), address=f"localhost:{port}") as server,
        ready(f"localhost:{server.bound}", [*FAST, *options], credentials=client_credentials()) as channel,
    ):
        assert channel.unary(timeout=20, wait_for_ready=True) == "a"
        channel.own.refresh_connection()
        log.until(SlotRetiring)
        assert channel.unary(timeout=20, wait_for_ready=True) == "a"
