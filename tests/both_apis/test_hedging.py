"""Hedged calls on both APIs, against a real server, in real time. A copy that hangs ends only when it is cancelled."""

from __future__ import annotations

import contextlib
import json
import threading
import time

import grpc
import pytest

import grpc_backoff
from grpc_backoff import (
    CallHedged,
    CallNotConnected,
    CallNotHedged,
    CallSucceeded,
    HedgingPolicy,
    NoConnectionError,
    NotHedged,
    OptionError,
    PolicyWarning,
)
from grpc_backoff.decide.calls import resets
from tests.both_apis.api import RETRY, backoff_ms
from tests.both_apis.tries import Tries, echo, fails, hangs, pushback
from tests.both_apis.wire import Strict
from tests.sync.service import front, place, until

CODE = grpc.StatusCode
SOON = "hedge: 50ms, attempts: 3"
TWICE = "hedge: 50ms, attempts: 2"  # where a third copy, on a slow machine, would change the outcome
LATE = "hedge: 60s, attempts: 3"
RECONNECTS_SOON = backoff_ms(50, 50)


def numbered(policy):
    """Hedge with this policy on a channel whose every call repeats UNAVAILABLE, so that copies carry their numbers."""
    return {"*": RETRY, **dict.fromkeys(["echo.v1.Echo/Unary", "echo.v1.Echo/Down"], policy)}


def fatal(**how):
    return fails(code=CODE.INVALID_ARGUMENT, **how)


def numbers(service):
    """Return how many copies were sent before each; the server may receive them in another order."""
    return sorted(previous or "0" for previous in service.previous)


def all_ended(service):
    until(lambda: service.ended == len(service.metadata))


def no_call_is_left(channel):
    until(lambda: all(slot.calls == 0 for slot in channel.own.connection_status().connections))


# Copies and answers (HG-1, HG-2).


def test_no_connection_is_reported(ours, hedgeable, nowhere, log):
    """RT-12: a hedged call that ends without a connection is reported once, as any call is."""
    with ours.channel(nowhere.target, backoff_ms(600_000, 600_000), listeners=[log.hear], retry=SOON) as channel:
        assert channel.begin(hedgeable).outcome().code is CODE.UNAVAILABLE
        told = log.until(CallNotConnected)
        assert (told.code, told.attempt, len(log.of(CallNotConnected))) == ("UNAVAILABLE", 1, 1)
        assert told.call_id


def test_a_slow_copy_is_overtaken(trying, hedgeable, log):
    """HG-1, HG-2, HG-10: a copy follows after the delay; its answer is the call's, and what hangs is cancelled."""
    with trying(hangs, retry=numbered(TWICE)) as (service, channel):
        assert channel.begin(hedgeable).outcome().texts == ["a"]
        all_ended(service)
        assert numbers(service) == ["0", "1"]
        assert log.until(CallSucceeded).attempt == 2
        (hedged,) = log.of(CallHedged)
        assert (hedged.attempt, hedged.call_id) == (2, log.of(CallSucceeded)[0].call_id)
        assert hedged.call_id


ENDS = {
    "HG-1, HG-6: at most max_attempts": ([hangs] * 9, numbered(SOON), {"timeout": 1}, CODE.DEADLINE_EXCEEDED, 3),
    "HG-1: answered before the delay": ([], LATE, {}, CODE.OK, 1),
    "HG-6: the deadline of the policy": ([hangs] * 9, f"{LATE}, deadline: 1s", {}, CODE.DEADLINE_EXCEEDED, 1),
    "HG-1: without a delay, all copies at once": ([hangs] * 2, numbered("hedge: 0s, attempts: 3"), {}, CODE.OK, 3),
    "HG-3: a non-fatal code sends the next copy before the delay": ([fails()] * 2, numbered(LATE), {}, CODE.OK, 3),
    "HG-3: a fatal code is the call's": ([hangs, fatal()], numbered(TWICE), {}, CODE.INVALID_ARGUMENT, 2),
    "HG-4: the server may ask for no more copies": ([pushback("-1")], LATE, {}, CODE.UNAVAILABLE, 1),
    "HG-9: a policy object": ([hangs] * 2, HedgingPolicy(hedging_delay=0.05, max_attempts=3), {}, CODE.OK, 3),
    "HG-9: a policy string for one method of a stub": ([fails()], None, {"retry": LATE}, CODE.OK, 2),
}


@pytest.mark.parametrize(("behaviours", "policy", "how", "code", "copies"), ENDS.values(), ids=ENDS)
def test_ends(trying, hedgeable, behaviours, policy, how, code, copies):
    """HG-1, HG-3, HG-4, HG-6, HG-9: how a call ends, and after how many copies, all of which end with it."""
    with trying(*behaviours, retry=policy) as (service, channel):
        outcome = channel.begin(hedgeable, **how).outcome()
        assert (outcome.code, outcome.texts) == (code, ["a"] if code is CODE.OK else None)
        all_ended(service)
    assert len(service.previous) == copies
    if isinstance(policy, dict):
        assert numbers(service) == [str(number) for number in range(copies)]


def test_the_metadata_of_the_chosen_copy(trying, hedgeable, ours):
    """HG-2: the call's metadata is that of the copy that is chosen."""
    if hedgeable not in ours.cancellable:
        pytest.skip("a blocking call's metadata is read from the call that `with_call` returns")
    headers, trailing, go = (("where", "here"),), (("last", "1"),), threading.Event()
    with trying(hangs, fatal(headers=headers, trailing=trailing, when=go), retry=TWICE) as (_, channel):
        call = channel.begin(hedgeable)
        threading.Timer(0.5, go.set).start()  # if they arrive together with the status, `grpc.aio` may lose headers
        assert call.outcome().code is CODE.INVALID_ARGUMENT
        assert ("where", "here") in call.metadata("initial")
        assert ("last", "1") in call.metadata("trailing")


def test_a_stream_is_committed_at_its_first_message(trying, ours):
    """HG-2: after its first message, a stream is that copy's, whatever becomes of it."""
    go = threading.Event()
    with trying(hangs, fails(answers=2, when=go), retry=TWICE) as (service, channel):
        call = channel.begin("Down")
        assert [call.read(), call.read()] == ["answer 0", "answer 1"]
        go.set()
        assert call.outcome().code is CODE.UNAVAILABLE
        all_ended(service)
    assert len(service.previous) == 2


@pytest.mark.parametrize(
    ("ending", "code"),
    [(echo, CODE.OK), (fails(answers=2), CODE.UNAVAILABLE), (fatal(answers=1), CODE.INVALID_ARGUMENT)],
)
@pytest.mark.parametrize("pause", [0, 0.1])
def test_a_stream_succeeds_when_it_ends(trying, log, ending, code, pause):
    """HG-10: the first message chooses the copy, but the call has not succeeded until it ends with OK."""

    def stream(requests, context):
        for response in ending(requests, context):
            yield response
            time.sleep(pause)

    with trying(hangs, stream, retry=TWICE) as (service, channel):
        assert channel.begin("Down").outcome().code is code
        assert channel.begin("Down", retry=LATE).outcome().texts == ["a"]  # whose event is the last
        until(lambda: any(event.attempt == 1 for event in log.of(CallSucceeded)))
        all_ended(service)
    succeeded = {event.attempt: event.took for event in log.of(CallSucceeded)}
    assert list(succeeded) == ([2, 1] if code is CODE.OK else [1])
    assert code is not CODE.OK or succeeded[2] > pause


def test_a_stream_without_messages(trying):
    """HG-2: a stream that ends with OK and without a message is an answer."""
    with trying(hangs, lambda _requests, _context: iter(()), retry=TWICE) as (service, channel):
        assert channel.begin("Down").outcome().texts == []
        all_ended(service)


# Codes, pushback and budget (HG-3 to HG-5).


def test_the_last_of_the_failures(trying, hedgeable, ours):
    """HG-3: if all copies fail, the call ends as the last of them does, with grpc's own error."""
    with trying(*[fails()] * 9, retry=LATE) as (service, channel):
        outcome = channel.begin(hedgeable).outcome()
    assert (outcome.code, outcome.details, len(service.previous)) == (CODE.UNAVAILABLE, "not now", 3)
    assert isinstance(outcome.error, grpc.RpcError)
    if hedgeable in ("Unary", "Unary.with_call"):
        assert type(outcome.error) is ours.error


def test_a_pushback_delays_the_next_copy(trying, hedgeable):
    """HG-4: the next copy follows when the server says so, and not at once."""
    with trying(pushback("300"), retry=LATE) as (service, channel):
        began = time.monotonic()
        assert channel.begin(hedgeable).outcome().texts == ["a"]
        assert time.monotonic() - began >= 0.29
    assert len(service.previous) == 2


def test_closed_during_a_pushback(trying, hedgeable):
    """HG-6: closing the channel cancels a call that waits for its next copy."""
    with trying(pushback("86400000"), retry=LATE) as (service, channel):
        call = channel.begin(hedgeable)
        until(lambda: service.metadata and service.ended)
        no_call_is_left(channel)  # so the client has the status too, and in a moment acts on it
        time.sleep(0.1)
        channel.close()
        assert call.outcome().code is CODE.CANCELLED


def test_budget(trying, hedgeable):
    """HG-5: while the retry budget is spent, a copy that is due is dropped."""
    budget = grpc_backoff.RetryBudget(max_tokens=4, token_ratio=0.1)

    def slow(requests, _context):
        time.sleep(0.5)
        yield from requests

    with trying(fails(), fails(), slow, retry=TWICE, retry_budget=budget) as (service, channel):
        assert channel.begin(hedgeable).outcome().code is CODE.UNAVAILABLE
        assert channel.begin(hedgeable).outcome().texts == ["a"]
    assert len(service.previous) == 3


# The end (HG-6).


@pytest.mark.parametrize("end", ["cancelled", "closed"])
def test_ended_with_copies_in_flight(trying, hedgeable, ours, end):
    """HG-6: the caller's cancellation, and closing the channel, cancel all copies."""
    if end == "cancelled" and hedgeable not in ours.cancellable:
        pytest.skip("a blocking call cannot be cancelled")
    with trying(*[hangs] * 9, retry=SOON) as (service, channel):
        call = channel.begin(hedgeable)
        until(lambda: len(service.metadata) == 3)
        assert not call.done()
        call.cancel() if end == "cancelled" else channel.close()
        assert call.outcome().code is CODE.CANCELLED
        all_ended(service)


def test_the_server_dies_with_copies_in_flight(ours, hedgeable):
    """HG-3, HG-7: the copies that a dying server had do not answer; the call ends once, and the channel goes on."""
    service = Tries(*[hangs] * 3)
    with (
        place(service) as server,
        ours.channel(server.target, RECONNECTS_SOON, retry=f"{SOON}, deadline: 20s") as channel,
    ):
        call = channel.begin(hedgeable)
        until(lambda: len(service.metadata) == 3)
        server.kill()
        assert call.outcome().code is CODE.UNAVAILABLE
        all_ended(service)
        server.start()
        assert channel.begin(hedgeable, wait_for_ready=True).outcome().texts == ["a"]
        no_call_is_left(channel)


def test_nothing_is_left(trying, hedgeable, monkeypatch):
    """HG-6, HG-11: after many calls of which every other is hedged, no copy is on the connection, or kept."""
    monkeypatch.setattr(resets, "MOST", 100)
    with trying(*[hangs, echo] * 100, retry="hedge: 10ms, attempts: 3", threads=64) as (service, channel):
        for _ in range(50):
            assert channel.begin(hedgeable).outcome().texts == ["a"]
        all_ended(service)
        no_call_is_left(channel)
        until(lambda: not channel.own.calls.losing)
        assert not any(each.waiting for each in resets._resets.values())


# Sparing servers (HG-11).


@pytest.fixture
def strict(ours, log):
    """A function that opens a channel to a server that bears few RST_STREAMs, and yields both."""

    @contextlib.contextmanager
    def opens(policy, **how):
        server = Strict(**how)
        with (
            front(server) as made,
            ours.channel(made.target, RECONNECTS_SOON, retry=policy, listeners=[log.hear]) as channel,
        ):
            channel.ready()
            yield server, channel

    return opens


def test_a_loser_is_left_to_end(trying, hedgeable, monkeypatch):
    """HG-11: a copy that is answered soon after the one that is chosen is not cancelled, and what it sends is read."""
    monkeypatch.setattr(resets, "_LEAST_LEFT", 600.0)  # however slow the machine is
    monkeypatch.setattr(resets, "_MOST_LEFT", 600.0)
    ended = []

    def answers_after(seconds, messages):
        def behave(requests, context):
            (request,) = requests
            time.sleep(seconds)
            yield from [request] * messages
            ended.append(context.is_active())

        return behave

    with trying(answers_after(0.9, 300), answers_after(0.5, 1), retry=TWICE) as (service, channel):
        assert channel.begin(hedgeable).outcome().texts == ["a"]
        assert service.ended < 2
        all_ended(service)
        no_call_is_left(channel)
    assert ended == [True, True]


def test_closing_cancels_what_was_left(trying, hedgeable, monkeypatch):
    """HG-6, HG-11: closing the channel does not wait for a copy that has lost, but cancels it."""
    monkeypatch.setattr(resets, "_LEAST_LEFT", 600.0)
    monkeypatch.setattr(resets, "_MOST_LEFT", 600.0)
    with trying(hangs, retry=TWICE) as (service, channel):
        assert channel.begin(hedgeable).outcome().texts == ["a"]
        assert service.ended < 2
        channel.close()
        all_ended(service)


def test_no_call_is_lost_to_hedging(strict, log):
    """HG-11: copies of healthy calls are not reset, so a server that guards against rapid resets ends nothing."""

    def work():
        for _ in range(15):
            assert (yield "a", {}).code is CODE.OK

    with strict("hedge: 10ms, attempts: 2", takes=0.1, bears=60) as (server, channel):
        channel.start([work() for _ in range(8)])()
        assert len(log.of(CallHedged)) > 60
        assert (server.cut, len(server.resets)) == (0, 1)


def test_cancellations_are_paced(strict, log, monkeypatch):
    """HG-11: copies that hang are cancelled no faster than a server bears; meanwhile, further copies are delayed."""
    monkeypatch.setattr(resets, "MOST", 5)
    monkeypatch.setattr(resets, "MOST_WAITING", 5)
    monkeypatch.setattr(resets, "_LEAST_LEFT", 0.0)
    monkeypatch.setattr(resets, "PER_SECOND", 10.0)
    hang_and_answer = lambda number: 600.0 if number % 2 == 0 else 0.0  # noqa: E731
    with strict("hedge: 10ms, attempts: 2", takes=hang_and_answer, bears=1000) as (server, channel):
        began = time.monotonic()
        for _ in range(20):
            assert channel.begin().outcome().texts == ["a"]
        until(lambda: server.resets == [20])
        assert time.monotonic() - began >= 1.4  # (20 - 5) / 10, less what rounding may cost
        no_call_is_left(channel)
    assert NotHedged.RESETS in {event.reason for event in log.of(CallNotHedged)}


def test_a_server_that_asks_for_calm(strict, log):
    """HG-11: after GOAWAY(ENHANCE_YOUR_CALM), a copy takes the place of one that has failed, and runs beside none."""
    if grpc.__version__ == "1.63.0":
        pytest.skip("grpcio 1.63 says 'Socket closed' to calls that the server has accepted")
    with strict("hedge: 20ms, attempts: 3", takes=0.3, bears=lambda number: 10 if number else -1) as (server, channel):
        for calls in (1, 2):
            assert channel.begin(wait_for_ready=True, timeout=20).outcome().texts == ["a"]
            assert log.until(CallNotHedged, calls).reason is NotHedged.CALM
        assert [event.first for event in log.of(CallNotHedged)] == [True, False]
        assert (server.cut, server.streams) == (1, 3)


# Without a connection (HG-7).


def test_no_connection(ours, hedgeable, nowhere):
    """HG-7: without a connection, the call fails as one without a policy does."""
    with ours.channel(nowhere.target, retry=SOON) as channel:
        outcome = channel.begin(hedgeable).outcome()
    assert outcome.code is CODE.UNAVAILABLE
    if hedgeable != "Down":
        assert isinstance(outcome.error, NoConnectionError)


def test_wait_for_ready(ours, hedgeable, nowhere):
    """HG-7: the first copy waits for a connection."""
    with ours.channel(nowhere.target, RECONNECTS_SOON, retry=SOON) as channel:
        call = channel.begin(hedgeable, wait_for_ready=True)
        time.sleep(0.2)
        nowhere.start()
        assert call.outcome().texts == ["a"]


def test_copies_go_to_different_servers(ours, hedgeable):
    """HG-2: a copy avoids the servers of the others: with one of two that never answers, two copies suffice."""
    stuck, well = Tries(*[hangs] * 999), Tries()
    with place(stuck) as first, place(well) as second:
        target = f"ipv4:{first.target},{second.target}"
        options = [("grpc.lb_policy_name", "round_robin")]
        with ours.channel(target, options, retry=TWICE) as channel:
            channel.ready()
            until(lambda: len(channel.own.connection_status().connections) == 2)
            for _ in range(10):
                assert channel.begin(hedgeable, timeout=15).outcome().texts == ["a"]
            all_ended(stuck)
    assert stuck.metadata, "no call went to the server that never answers"


# Which calls (HG-8) and where it is set (HG-9).


@pytest.mark.parametrize("method", ["Up", "Both"])
def test_request_streams_are_not_hedged(trying, method):
    """HG-8: a channel's hedging policy leaves calls with a stream of requests alone; asking for it is an error."""
    with trying(fails(None), retry=LATE) as (service, channel):  # a sooner end can make grpc.aio's write fail
        assert channel.begin(method).outcome().code is CODE.UNAVAILABLE
        assert len(service.previous) == 1
        with pytest.raises(OptionError, match="stream of requests"):
            channel.begin(method, retry=SOON)


def hedged_by(source, method, folder):
    """Return the arguments for a channel whose calls of this method, or service, are hedged by a source of policies."""
    service, _, name = method.partition("/")
    if source == "argument":
        return {"retry": {method: SOON}}
    if source == "file":
        path = folder / "backoff.toml"
        path.write_text(f'[methods."{method}"]\nhedge = "50ms"\nmax_attempts = 3\n')
        return {"config": path}
    entry = {"service": service, "method": name} if name else {"service": service}
    hedging = {"maxAttempts": 3, "hedgingDelay": "0.05s", "nonFatalStatusCodes": ["UNAVAILABLE"]}
    config = {"methodConfig": [{"name": [entry], "hedgingPolicy": hedging}]}
    return {"options": [("grpc.service_config", json.dumps(config))]}


@pytest.mark.parametrize("source", ["argument", "file", "service config"])
def test_a_request_stream_that_a_policy_names(ours, tmp_path, source):
    """HG-8: a hedging policy for a method that sends a stream has no effect, which a warning says."""
    with (
        place(Tries(fails(None))) as server,
        pytest.warns(PolicyWarning, match="hedging of /echo.v1.Echo/Up: expected a retry policy") as warned,
        ours.channel(server.target, **hedged_by(source, "echo.v1.Echo/Up", tmp_path)) as channel,
    ):
        assert channel.begin("Up").outcome().code is CODE.UNAVAILABLE
    assert len(warned) == 1


@pytest.mark.parametrize("source", ["file", "service config"])
def test_configured(ours, hedgeable, tmp_path, source):
    """HG-9: a file's `[methods]` and a service config's `hedgingPolicy` hedge the calls of their methods."""
    how = hedged_by(source, "echo.v1.Echo", tmp_path)
    with place(Tries(hangs, hangs)) as server, ours.channel(server.target, **how) as channel:
        assert channel.begin(hedgeable).outcome().texts == ["a"]
        assert len(server.servicer.metadata) == 3
