"""SB-2, RT-7, RT-14, CH-7: calls and streams behind real proxies whose server hangs, dies or is not there."""

from __future__ import annotations

import contextlib
import threading
import time

import grpc
import pytest

from grpc_backoff import CallRetried
from tests.both_apis.test_subscriptions import Reader
from tests.both_apis.tries import Tries, fails, hangs
from tests.both_apis.wire import Streams
from tests.echo import Message
from tests.proxies import AT_HAND, need, running
from tests.sync.service import front, place, until

CODE = grpc.StatusCode
ROUNDS = 20
HEEDS_DEADLINES = {"timeout": "0s", "max_stream_duration": {"grpc_timeout_header_max": "0s"}}
REPEATS = {"retry_policy": {"retry_on": "unavailable", "num_retries": 2}}


def hangs_after_headers(requests, context):
    context.send_initial_metadata((("a", "b"),))
    yield from hangs(requests, context)


@pytest.fixture
def behind(ours, log):
    """A function that places a server behind Envoy, and yields the server and a channel."""
    need("envoy")

    @contextlib.contextmanager
    def opens(*behaviours, route=None, up=True, **how):
        with (
            place(Tries(*behaviours), up=up) as server,
            running("envoy", server.port, route={"route": {"timeout": "0s", **(route or {})}}) as proxy,
            ours.channel(proxy.target, listeners=[log.hear], **how) as channel,
        ):
            yield server, channel

    return opens


@contextlib.contextmanager
def reading(channel):
    reader = Reader(channel, resume=None, request=Message(text="a", count=7))
    try:
        yield reader
    finally:
        reader.close()


def only_headers(wire, stream, _body):
    wire.send_headers(stream, [(":status", "200"), ("content-type", "application/grpc"), ("a", "b")])


@pytest.mark.parametrize("name", AT_HAND)
def test_a_subscription_whose_server_dies(ours, name):
    """SB-2: a stream that a proxy cuts after its headers, because its server has died, is opened again."""
    need(name)
    streams = Streams(only_headers)
    with (
        front(streams) as server,
        running(name, int(server.target.rpartition(":")[2])) as proxy,
        ours.channel(proxy.target) as channel,
        reading(channel) as reader,
    ):
        threading.Thread(target=dies, args=(server, streams)).start()
        assert reader.next().count == 7
    assert len(streams.visits) >= 2


def dies(server, streams):
    """Break the server's connections soon after it has sent the headers, so that these have arrived."""
    until(lambda: streams.visits)
    time.sleep(0.3)
    server.break_all()


def test_a_subscription_that_is_idle(behind):
    """SB-2: a quiet stream that Envoy cuts when it has been idle is opened again."""
    quiet = behind(*[hangs_after_headers] * 2, route={"idle_timeout": "0.3s"})
    with quiet as (server, channel), reading(channel) as reader:
        assert reader.next().count == 7
    assert len(server.servicer.metadata) == 3


def test_a_subscription_that_is_idle_behind_nginx(ours):
    """SB-2: nginx cuts a quiet stream too, after `grpc_read_timeout`."""
    need("nginx")
    with (
        place(Tries(*[hangs_after_headers] * 2)) as server,
        running("nginx", server.port, location="grpc_read_timeout 300ms;") as proxy,
        ours.channel(proxy.target) as channel,
        reading(channel) as reader,
    ):
        assert reader.next().count == 7
    assert len(server.servicer.metadata) == 3


def test_an_attempt_whose_time_is_up(behind, log):
    """RT-7: attempts that Envoy cuts at their own time limit, after headers, are all repeated."""
    with behind(route=HEEDS_DEADLINES, retry="retry: 1, delay: 1ms, timeout: 100ms") as (server, channel):
        for number in range(ROUNDS):
            server.servicer.behaviours[:] = [hangs_after_headers]
            channel.begin("Down", timeout=30).outcome()
            until(lambda number=number: len(log.of(CallRetried)) == number + 1)
    assert {event.code for event in log.of(CallRetried)} == {"DEADLINE_EXCEEDED"}


@pytest.mark.parametrize("retry", ["retry: 1, delay: 1ms", "hedge: 60s, attempts: 2"])
def test_a_call_whose_time_is_up(behind, retry):
    """RT-7, HG-6: a call that Envoy cuts at its deadline ends with DEADLINE_EXCEEDED, if it has a policy."""
    with behind(*[hangs_after_headers] * ROUNDS, route=HEEDS_DEADLINES, retry=retry) as (_, channel):
        channel.ready()
        for _ in range(ROUNDS):
            outcome = channel.begin("Down", timeout=0.1).outcome()
            assert (outcome.code, outcome.details) == (CODE.DEADLINE_EXCEEDED, "Deadline Exceeded")


@pytest.mark.parametrize(("retry", "executions"), [(None, 3), ("retry: 2, delay: 1ms", 9)])
def test_a_mesh_that_repeats_calls_by_itself(behind, retry, executions):
    """CH-7: Envoy's own retries multiply with the channel's, and ignore a pushback that forbids them."""
    stop = (("grpc-retry-pushback-ms", "-1"),) if retry is None else ()
    with behind(*[fails(trailing=stop)] * 20, route=REPEATS, retry=retry) as (server, channel):
        assert channel.begin().outcome().code is CODE.UNAVAILABLE
    assert len(server.servicer.metadata) == executions


def test_only_what_never_ran(behind, log):
    """RT-14: with `never_ran_only`, a call that Envoy could not pass on is retried, and one that ran is not."""
    retry = "retry: 100, delay: 200ms, jitter: none, never_ran_only: true"
    with behind(up=False, retry=retry) as (server, channel):
        call = channel.begin()
        log.until(CallRetried)
        server.start()
        assert call.outcome().texts == ["a"]
        before = len(log.of(CallRetried))
        server.servicer.behaviours[:] = [hangs]
        call = channel.begin()
        until(lambda: len(server.servicer.metadata) == 2)
        server.kill()
        assert call.outcome().code is CODE.UNAVAILABLE
        assert len(log.of(CallRetried)) == before
