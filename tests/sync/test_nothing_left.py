"""What a closed channel leaves behind: nothing, even without garbage collection."""

from __future__ import annotations

import contextlib
import gc
import json
import weakref

import grpc
import pytest
from grpc._channel import _InactiveRpcError

import grpc_backoff
from tests.echo import EchoStub, Message
from tests.sync.service import place, until

PING = Message(text="ping", count=1)


def watched(channel):
    return channel.subscribe(lambda _state: None, try_to_connect=True)


USES = {
    "a call": lambda channel: EchoStub(channel).Unary(PING, timeout=20),
    "a call in the background": lambda channel: EchoStub(channel).Unary.future(PING, timeout=20).exception(),
    "a stream": lambda channel: list(EchoStub(channel).Down(PING, timeout=20)),
    "a stream of requests": lambda channel: EchoStub(channel).Up(iter([PING]), timeout=20),
    "a subscription": watched,
    "a new connection": lambda channel: (EchoStub(channel).Unary(PING, timeout=20), channel.refresh_connection()),
    "nothing": lambda _channel: None,
}


def parts_of(channel):
    """Return weak references to what a channel consists of."""
    pool = channel._pool
    (held,) = pool.by_number.values()
    return [weakref.ref(part) for part in (channel, pool, pool.pending, held.manager, held.connector)]


@pytest.fixture
def uncollected():
    """No garbage is collected."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("ending", ["closed", "dropped"])
@pytest.mark.parametrize(
    ("use", "up"),
    # A stream that fails raises itself, so its traceback refers to it, as in grpcio.
    [(use, up) for use in USES for up in (True, False) if up or use != "a stream"],
)
@pytest.mark.usefixtures("uncollected")
@pytest.mark.filterwarnings("ignore:unclosed channel:ResourceWarning")
def test_nothing_is_left_to_the_collector(use, ending, up):
    """CB-10: a channel is gone as soon as it has been closed or dropped, and so is everything that it consists of."""
    with place(up=up) as server:
        channel = grpc_backoff.insecure_channel(server.target)
        parts = parts_of(channel)
        with contextlib.suppress(_InactiveRpcError):
            USES[use](channel)
        if ending == "closed":
            channel.close()
        del channel
        until(lambda: not any(part() for part in parts))


@pytest.mark.parametrize(
    "how",
    [
        {"options": [("grpc_backoff.max_connections", 2)]},
        {"options": [("grpc.service_config", json.dumps({"healthCheckConfig": {"serviceName": ""}}))]},
        {"retry": "standard"},
    ],
    ids=["several connections", "health", "a policy"],
)
@pytest.mark.parametrize("use", ["a call", "a call in the background", "a stream", "a stream of requests"])
@pytest.mark.usefixtures("uncollected")
@pytest.mark.filterwarnings("ignore:unclosed channel:ResourceWarning")
def test_nothing_is_left_of_a_channel_with_more(use, how):
    """CB-10: nor is a channel that watches its server's health, or whose calls may wait for room or be repeated."""
    with place() as server:
        channel = grpc_backoff.insecure_channel(server.target, **how)
        parts = parts_of(channel)
        USES[use](channel)
        del channel
        until(lambda: not any(part() for part in parts))


@pytest.mark.parametrize("kept", ["Unary", "Down"])
@pytest.mark.usefixtures("uncollected")
def test_a_kept_call_keeps_no_connection(kept):
    """CB-10, LV-2: a call that a program keeps does not keep a connection whose peer is watched."""
    with place() as server:
        with grpc_backoff.insecure_channel(server.target, [("grpc_backoff.quiet_after", 30)]) as channel:
            EchoStub(channel).Unary(PING, timeout=20)
            connection = weakref.ref(channel._pool.connection())
            if kept == "Unary":
                call = EchoStub(channel).Unary.future(PING, timeout=20)
                call.result()
            else:
                call = EchoStub(channel).Down(PING, timeout=20)
                list(call)
        until(lambda: connection() is None)
        assert call.code() is grpc.StatusCode.OK
