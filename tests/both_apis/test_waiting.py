"""CH-3, CH-4: calls without a connection: which calls wait, which fail at once, and with which error."""

from __future__ import annotations

import importlib
import pickle
import threading
import time

import grpc
import pytest

from grpc_backoff import CallNotConnected, NoConnectionError, Stage, State
from grpc_backoff.testing.front import accept_close, http1_answer, settings_then_close, silent
from tests.both_apis.api import RETRY, backoff_ms
from tests.sync.service import Echo, front, place, until

CODE = grpc.StatusCode
FAST = backoff_ms(100, 100)
SLOW = backoff_ms(600_000, 600_000)
GROWING = backoff_ms(30, 300, 50)


@pytest.fixture(params=["refusing", "silent"])
def unreachable(request):
    """A target that never becomes READY: it refuses connections, or accepts them and stays silent."""
    with front(silent) as peer:
        if request.param == "refusing":
            peer.refuse()
        yield peer.target


def test_fail_fast(kind, way, nowhere):
    """CH-3: a fail-fast call waits for the first attempt; once that has failed, further calls fail at once."""
    with kind.channel(nowhere.target, SLOW) as channel:
        for _ in range(2):
            call = channel.begin(way)
            outcome = call.outcome()
            assert outcome.code is CODE.UNAVAILABLE
            assert "failed to connect to all addresses" in outcome.details
            assert isinstance(outcome.error, grpc.RpcError)
            assert "failed to connect" in outcome.error.debug_error_string()  # programs search in it
            assert call.done()


@pytest.mark.parametrize("behaviour", [silent, accept_close, http1_answer])
def test_words_that_programs_look_for(kind, behaviour):
    """CH-4: as with grpcio, the error has the same words for each peer that cannot be reached, also a silent one."""
    with front(behaviour) as peer, kind.channel(peer.target, backoff_ms(300, 300, 300)) as channel:
        outcome = channel.begin().outcome()
        assert outcome.code is CODE.UNAVAILABLE
        assert "failed to connect to all addresses; last error: " in outcome.details


@pytest.mark.parametrize("retry", [None, RETRY])
def test_listeners_hear_of_it(ours, way, nowhere, log, retry):
    """RT-12: each call that ends without a connection is reported once, with a policy or without."""
    with ours.channel(nowhere.target, SLOW, listeners=[log.hear], retry=retry) as channel:
        codes = [channel.begin(way).outcome().code]
        codes.append(channel.begin(way, wait_for_ready=True, timeout=0.2).outcome().code)
        log.until(CallNotConnected, 2)
        assert codes == [CODE.UNAVAILABLE, CODE.DEADLINE_EXCEEDED]
        told = log.of(CallNotConnected)
        assert [event.code for event in told] == [code.name for code in codes]
        assert {event.target for event in told} == {nowhere.target}
        assert {event.method.partition("/")[0] for event in told} == {""}


def test_the_error_says_why(ours, way, nowhere):
    """CH-4: the error's text names target, stage and last error, and does not vary; the figures are in `status`."""
    texts = set()
    with ours.channel(nowhere.target, SLOW) as channel:
        for _ in range(2):
            error = channel.begin(way).outcome().error
            assert isinstance(error, NoConnectionError)
            assert isinstance(error, ours.error)
            assert error.details().startswith(f"no connection to {nowhere.target}; last error: tcp: failed to connect")
            texts.add(error.details())
            assert (error.status.state, error.status.attempt) == (State.TRANSIENT_FAILURE, 1)
            assert error.status.last_error.stage is Stage.TCP
            assert 0 < error.status.next_attempt_in <= 600
            assert pickle.loads(pickle.dumps(error)).status == error.status
    assert len(texts) == 1


def test_errors_of_one_cause_can_be_grouped(ours, unreachable):
    """CH-4: all errors with one cause have the same text, whatever the figures in their status. Takes a second."""
    errors, end = [], time.monotonic() + 60
    with ours.channel(unreachable, GROWING) as channel:
        while len({error.status.attempt for error in errors}) < 5:
            assert time.monotonic() < end
            error = channel.begin(wait_for_ready=True, timeout=0.02).outcome().error
            if error.status.last_error is not None:
                errors += error, channel.begin().outcome().error
    assert len({(error.status.attempt, error.status.next_attempt_in) for error in errors}) > 4
    assert len({error.details().removeprefix("Deadline Exceeded while waiting: ") for error in errors}) == 1


def test_deadline_of_a_wait(kind, way, unreachable):
    """CH-3, TH-3: a call that waits for a connection ends at its deadline."""
    with kind.channel(unreachable, SLOW) as channel:
        began = time.monotonic()
        outcome = channel.begin(way, wait_for_ready=True, timeout=0.1).outcome()
        assert (outcome.code, outcome.texts) == (CODE.DEADLINE_EXCEEDED, None)
        assert "Deadline Exceeded" in outcome.details
        assert 0.09 <= time.monotonic() - began < 20


def test_the_deadline_says_why(ours, way, nowhere):
    """CH-4: DEADLINE_EXCEEDED from a call that waited for a connection gives the same reason as UNAVAILABLE."""
    with ours.channel(nowhere.target, SLOW) as channel:
        channel.begin().outcome()
        error = channel.begin(way, wait_for_ready=True, timeout=0.1).outcome().error
        assert isinstance(error, NoConnectionError)
        assert error.details().startswith("Deadline Exceeded while waiting: no connection to")
        assert "last error: tcp: failed to connect" in error.details()


def test_deadline_during_an_attempt(ours):
    """CH-4: a call that fails before the first attempt has ended says so, because there is no failure to report yet."""
    with front(silent) as peer, ours.channel(peer.target) as channel:
        error = channel.begin(timeout=0.5).outcome().error
        assert error.code() is CODE.DEADLINE_EXCEEDED
        assert error.details().endswith(f"no connection to {peer.target}; the first attempt has not ended")
        assert (error.status.attempt, error.status.in_flight) == (1, True)


def test_a_deadline_before_any_attempt(ours, nowhere):
    """CH-4, SH-5: a call that the schedule of another channel holds back says so: no attempt has begun."""
    options = backoff_ms(60_000, 60_000)
    with ours.channel(nowhere.target, options) as channel:
        assert channel.begin().outcome().code is CODE.UNAVAILABLE
    with ours.channel(nowhere.target, options) as channel:
        error = channel.begin(timeout=0.3).outcome().error
        cause = "no attempt has begun, because the target's schedule does not allow one yet"
        assert error.details() == f"Deadline Exceeded while waiting: no connection to {nowhere.target}; {cause}"


@pytest.mark.parametrize("spared", ["", "host.invalid"])
@pytest.mark.parametrize("source", ["environment", "option"])
def test_the_error_names_the_proxy(ours, nowhere, monkeypatch, source, spared):
    """CH-4: where the core connects through an HTTP proxy, whose address the error has, the text says so."""
    monkeypatch.setenv("no_proxy", spared)
    options = [("grpc.http_proxy", f"http://{nowhere.target}")]
    if source == "environment":
        options = []
        monkeypatch.setenv("http_proxy", f"http://{nowhere.target}")
    with ours.channel("no.such.host.invalid:443", options) as channel:
        details = channel.begin().outcome().details
    if spared:
        assert details.startswith("no connection to no.such.host.invalid:443; last error: resolve: ")
    else:
        assert details.startswith("no connection to no.such.host.invalid:443 through the HTTP proxy; last error: tcp: ")
        assert nowhere.target in details


def test_one_deadline_over_wait_and_call(api, way, nowhere):
    """CH-3, TH-3: a deadline covers both the wait and the call; time spent waiting is not available to the call."""
    with api.channel(nowhere.target, FAST) as channel:
        call = channel.begin(way, wait_for_ready=True, timeout=20)
        time.sleep(0.2)
        nowhere.start()
        assert call.outcome().code is CODE.OK
        assert nowhere.servicer.remaining[0] <= 19.9  # grpc rounds up on the wire, to a tenth of a second


def test_waits(api, way, nowhere):
    """CH-3, TH-3: wait-for-ready calls made before the server starts are all answered, each with its own response."""
    with api.channel(nowhere.target, FAST) as channel:
        calls = [channel.begin(way, [str(number)], wait_for_ready=True, timeout=20) for number in range(16)]
        time.sleep(0.05)
        assert not any(call.done() for call in calls)
        nowhere.start()
        assert [call.outcome().texts for call in calls] == [[str(number)] for number in range(16)]


def test_cancelled_while_it_waits(kind, cancellable, unreachable):
    """CH-3, TH-3: a pending call shows its remaining time, can be cancelled from another thread, and ends at once."""
    with kind.channel(unreachable, FAST) as channel:
        call, told = channel.begin(cancellable, wait_for_ready=True, timeout=60), []
        call.add_done_callback(told.append)
        assert 40 < call.remaining() <= 60.001
        threading.Timer(0.05, call.cancel).start()
        outcome = call.outcome()
        assert (outcome.code, outcome.details) == (CODE.CANCELLED, "Locally cancelled by application!")
        assert (call.done(), call.cancelled(), call.cancel()) == (True, True, False)
        until(lambda: told)
        assert told == [True]


def test_a_peer_that_hangs_up_behind_its_settings(api):
    """CH-3: a fail-fast call ends with UNAVAILABLE if the peer hangs up after SETTINGS each time."""
    with front(settings_then_close()) as peer, api.channel(peer.target, FAST) as channel:
        assert channel.begin(timeout=20).outcome().code is CODE.UNAVAILABLE


@pytest.mark.parametrize("ready", [True, False])
def test_a_server_that_found_no_connection_itself(api, ready):
    """CH-3, CH-7: UNAVAILABLE from a proxy ends even a wait-for-ready call; the call is never sent twice."""

    class Proxy(Echo):
        def Unary(self, request, context):  # noqa: N802
            self._begin(context)
            context.abort(CODE.UNAVAILABLE, "failed to connect to all addresses; last error: none")

    with place(Proxy()) as server, api.channel(server.target) as channel:
        if ready:
            channel.ready()
        assert channel.begin(wait_for_ready=True, timeout=20).outcome().code is CODE.UNAVAILABLE
        assert len(server.servicer.got) == 1


@pytest.mark.parametrize(
    "said",
    ["ip6-nobody.invalid (port 443, because the target specifies none)", "127.0.0.1:1"],
    ids=["no port", "a port"],
)
def test_the_port_that_nobody_named(ours, said):
    """CH-4: if the target names no port, and only then, the error says that port 443 was dialled."""
    with ours.channel(said.partition(" ")[0], FAST) as channel:
        error = channel.begin(timeout=20).outcome().error
        assert error.details().startswith(f"no connection to {said}; last error: ")
        assert error.status.last_error is not None


@pytest.mark.parametrize(
    ("target", "config", "stage", "said"),
    [
        ("", None, Stage.RESOLVE, "target uri is not valid"),
        ("ipv4:127.0.0.1", None, Stage.RESOLVE, "target uri is not valid"),  # no port
        ("unix://tls/socket", None, Stage.RESOLVE, "target uri is not valid"),  # an authority
        ("dns://192.0.2.1/name:1", None, Stage.RESOLVE, "authority"),  # not with every resolver
        ("tls.invalid:1", "{", Stage.UNKNOWN, "JSON"),
        ("tls.invalid:1", '{"methodConfig": 1}', Stage.UNKNOWN, "methodConfig"),
    ],
)
@pytest.mark.parametrize("connections", [1, 2])
def test_what_the_core_cannot_use(ours, target, config, stage, said, connections):
    """CH-3, CH-4, CH-11: a target or a service config that the core cannot use is the reason, in the core's words."""
    options = [("grpc.service_config", config)] if config else []
    with ours.channel(target, [*options, ("grpc_backoff.max_connections", connections)]) as channel:
        error = channel.begin(timeout=20).outcome().error
        if stage is not Stage.RESOLVE or "not valid" in said:  # CH-3: nobody need wait for this
            waiting = [channel.begin(wait_for_ready=True, timeout=20).outcome().error for _ in range(2)]
            assert [each.code() for each in waiting] == [CODE.UNAVAILABLE] * 2
            assert error.status.last_error.lasting
    if tuple(map(int, grpc.__version__.split(".")[:2])) < (1, 70) and "authority" not in said:
        said, stage = "Failed to create", Stage.UNKNOWN  # such a core says no more
    assert (error.code(), error.status.last_error.stage) == (CODE.UNAVAILABLE, stage)
    assert said in error.details()
    assert "gave no reason" not in error.details()


def test_a_channel_for_each_request_to_what_the_core_cannot_use(ours):
    """CH-3, SH-5: later channels do not wait either, because the earlier ones have dialled nothing."""
    for _ in range(3):
        with ours.channel("", SLOW) as channel:
            assert channel.begin(timeout=20).outcome().code is CODE.UNAVAILABLE


def over_a_loss(channel, text):
    """Make calls until one is answered, because a call assigned to the breaking connection fails with it (CH-7)."""
    for _ in range(10):
        try:
            return channel.unary(text, wait_for_ready=True, timeout=20)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE or isinstance(error, NoConnectionError):
                raise  # it should have waited for a connection
    return None


def test_a_stub_outlives_its_connections(api, server):
    """CH-2: one stub works across ten restarts of its server; wait-for-ready calls wait for each restart."""
    with api.channel(server.target, FAST) as channel:
        for turn in range(10):
            assert over_a_loss(channel, str(turn)) == str(turn)
            server.kill()
            server.start()
        if api.ours:  # the core may redial unnoticed for a call on an ending connection (CB-16)
            until(lambda: 5 <= channel.own.connection_status().made <= 10)


class Plugin:
    """A plugin of grpcio that notes the calls that it would count."""

    observability_enabled = stats_enabled = True
    tracing_enabled = False

    def __init__(self):
        self.seen, self.registered = [], set()

    def create_client_call_tracer(self, method, target):
        """Note the method and the target. Return no tracer; grpcio logs that."""
        self.seen.append((method, target))

    def save_registered_method(self, method):
        self.registered.add(method)

    def create_server_call_tracer_factory(self, *, xds=False):
        """Return no factory."""

    def record_rpc_latency(self, *_about):
        """Ignore it."""


@pytest.mark.skipif(
    tuple(map(int, grpc.__version__.split(".")[:2])) < (1, 70), reason="grpcio 1.63 asks its plugin in another way"
)
def test_a_plugin_sees_calls_without_a_connection(ours, nowhere):
    """RT-12: a plugin of grpcio counts a call that ends without a connection, under its own target and method."""
    plugin, observability = Plugin(), importlib.import_module("grpc._observability")
    observability.set_plugin(plugin)
    try:
        with ours.channel(nowhere.target, SLOW) as channel:
            assert channel.begin().outcome().code is CODE.UNAVAILABLE
            assert channel.begin(wait_for_ready=True, timeout=0.1).outcome().code is CODE.DEADLINE_EXCEEDED
        assert plugin.seen == [(b"/echo.v1.Echo/Unary", nowhere.target.encode())] * 2
        assert b"/echo.v1.Echo/Unary" in plugin.registered
    finally:
        observability.set_plugin(None)
