"""The page about proxies: each of its blocks is run in a real proxy, and each line shown to be needed."""

from __future__ import annotations

import contextlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import yaml

import grpc_backoff
from grpc_judge.runner.build import peers_required
from tests.docs.pages import block, blocks, run
from tests.echo import EchoStub, Message
from tests.proxies import PROXIES, Process, running, unused_port
from tests.proxies.process import UNTIL_INPUT_ENDS

PAGE = "howto/proxies.md"
ROUTE, MANAGER = (yaml.safe_load(text) for text in blocks(PAGE, "yaml"))
NGINX, HAPROXY = block(PAGE, "", "nginx"), block(PAGE, "", "haproxy")
SETTINGS = {"envoy": {"route": ROUTE, "manager": MANAGER}, "nginx": {"server": NGINX}, "haproxy": {"backend": HAPROXY}}
SILENCE = 2.0  # seconds, longer than the limits of a second

# Each line of a block with a time, reduced to a second: what a reader who does not set it meets later.
SHORT = {
    "stream_idle_timeout": ("envoy", {"manager": {"stream_idle_timeout": "1s"}}),
    "grpc_read_timeout": ("nginx", {"server": "grpc_read_timeout 1s;"}),
    "client_body_timeout": ("nginx", {"server": "client_body_timeout 1s;"}),
    "timeout server": ("haproxy", {"backend": "timeout server 1s"}),
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Run an echo server and a server whose answers can be delayed, each in its process; return their ports."""
    with contextlib.ExitStack() as stack:
        ports = []
        for module, *port_option in (["tests.echo"], ["tests.interop_suite.servers.grpcio_server", "--port"]):
            ports.append(unused_port())
            command = [*UNTIL_INPUT_ENDS, sys.executable, "-m", module, *port_option, str(ports[-1])]
            server = Process(module, command, ports[-1], tmp_path_factory.mktemp("server"))
            stack.callback(server.kill)
            server.start()
        yield ports


@contextlib.contextmanager
def channel_through(name, upstream, settings):
    if PROXIES[name].missing and not peers_required():
        pytest.skip(f"{PROXIES[name].missing} is missing")
    with (
        running(name, upstream, **settings) as front,
        contextlib.closing(grpc_backoff.insecure_channel(front.target)) as channel,
    ):
        yield channel


def silent_stream(name, upstream, settings):
    """Return what a stream receives that is silent for a while between two messages, and its code."""
    over, texts = threading.Event(), []

    def requests():
        yield Message(text="a")
        over.wait(SILENCE)
        yield Message(text="b")

    with channel_through(name, upstream, settings) as channel:
        call = EchoStub(channel).Both(requests(), timeout=30)
        with contextlib.suppress(grpc.RpcError):
            texts.extend(message.text for message in call)
        over.set()
        return texts, call.code()


def slow_call(upstream, settings):
    """Return the code of a unary call through Envoy that is answered after a while."""
    with channel_through("envoy", upstream, settings) as channel:
        call = channel.unary_unary("/grpc.testing.TestService/EmptyCall")
        metadata = [("answer-after-ms", str(round(1000 * SILENCE)))]
        try:
            return call.with_call(b"", timeout=30, metadata=metadata)[1].code()
        except grpc.RpcError as error:
            return error.code()


@pytest.mark.parametrize("name", SETTINGS)
def test_the_settings_of_the_page(name, servers):
    """CH-6: with the page's settings, a stream may be silent, and a request of two megabytes is answered."""
    echo, _ = servers
    assert silent_stream(name, echo, SETTINGS[name]) == (["a", "b"], grpc.StatusCode.OK)
    with channel_through(name, echo, SETTINGS[name]) as channel:
        assert len(EchoStub(channel).Unary(Message(text="a" * 2_000_000), timeout=30).text) == 2_000_000


@pytest.mark.parametrize("line", SHORT)
def test_a_time_limit_cuts_a_stream(line, servers):
    """Without each of these lines, a stream that is silent for longer than the proxy's limit is cut."""
    name, settings = SHORT[line]
    assert line in str(SETTINGS[name])
    texts, code = silent_stream(name, servers[0], settings)
    assert texts == ["a"]
    assert code is not grpc.StatusCode.OK


def test_the_time_limit_of_a_route(servers):
    """Envoy's `timeout` of a route ends a call in time for the client's deadline; the page's does not."""
    assert slow_call(servers[1], {"route": {"route": {"timeout": "1s"}}}) is grpc.StatusCode.UNAVAILABLE
    assert slow_call(servers[1], {"route": ROUTE}) is grpc.StatusCode.OK


def test_the_largest_request(servers):
    """nginx rejects a request of more than a megabyte by default."""
    with channel_through("nginx", servers[0], {}) as channel, pytest.raises(grpc.RpcError) as caught:
        EchoStub(channel).Unary(Message(text="a" * 2_000_000), timeout=30)
    assert caught.value.code() is grpc.StatusCode.UNKNOWN
    assert "413" in caught.value.details()


@pytest.mark.parametrize(("retries", "executions"), [({}, 3), (ROUTE, 1)])
def test_retries_of_the_proxy(retries, executions):
    """RT-1: a proxy repeats calls by itself, unless the page's line tells it not to."""
    executed = []

    def fail(_request, context):
        executed.append(context.peer())
        context.abort(grpc.StatusCode.UNAVAILABLE, "no")

    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.unary_unary_rpc_method_handler(fail)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("shop.Orders", {"Place": handler})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    repeats = {"retry_policy": {"retry_on": "unavailable", "num_retries": 2}}
    route = {**repeats, **retries.get("route", {})}
    if retries:
        route["retry_policy"] = {**repeats["retry_policy"], **route["retry_policy"]}
    try:
        with channel_through("envoy", port, {"route": {"route": route}}) as channel, pytest.raises(grpc.RpcError):
            channel.unary_unary("/shop.Orders/Place")(b"", timeout=30)
    finally:
        server.stop(None).wait()
    assert len(executed) == executions


async def test_the_client():
    """CH-9: the page's options of the client are accepted."""
    names = {}
    (code,) = blocks(PAGE)
    await run(code, PAGE, names)
    assert names["channel"].policy_values
    await names["channel"].close()
