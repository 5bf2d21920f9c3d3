"""The private parts of grpcio on which this library relies exist in every supported version."""

from __future__ import annotations

import grpc
import pytest

from grpc_backoff.decide.connections import dial_machine
from grpc_backoff.grpcio import sync_private
from tests.echo import EchoStub, Message


def test_a_channel_of_grpcios_own():
    """TH-1: `core_channel` creates a channel of grpcio's own class, which is listed as open until it is closed."""
    channel = sync_private.core_channel("127.0.0.1:1", None, [("grpc.enable_channelz", 0)], None)
    assert ("127.0.0.1:1", channel) in sync_private.open_channels()
    assert channel._channel.check_connectivity_state(False) == dial_machine.IDLE
    sync_private.close_channel(channel)
    assert ("127.0.0.1:1", channel) not in sync_private.open_channels()
    with pytest.raises(ValueError, match="closed"):
        channel._channel.check_connectivity_state(False)


def test_the_cores_numbers():
    """TH-5: the numbers of the core's states match those in grpcio's table."""
    from grpc import _common

    numbers = (dial_machine.IDLE, dial_machine.CONNECTING, dial_machine.READY, dial_machine.TRANSIENT_FAILURE)
    names = [_common.CYGRPC_CONNECTIVITY_STATE_TO_CHANNEL_CONNECTIVITY[number].name for number in numbers]
    assert names == ["IDLE", "CONNECTING", "READY", "TRANSIENT_FAILURE"]


def test_a_status(server):
    """RT-2: `status_of` returns the status of a finished call or of an error, without waiting."""
    with grpc.insecure_channel(server.target) as channel:
        stub = EchoStub(channel)
        future = stub.Unary.future(Message(text="metadata"))
        future.result(20)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Unary(Message(text="abort"))
    status = sync_private.status_of(future)
    assert (status.code, status.details, status.cancelled) == (grpc.StatusCode.OK, "", False)
    assert (status.response.text, dict(status.initial_metadata)["first"]) == ("metadata", "1")
    failed = sync_private.status_of(caught.value)
    assert (failed.code, failed.details) == (grpc.StatusCode.FAILED_PRECONDITION, "not now")


def test_options():
    """TH-1: `is_single_threaded` recognizes the option `SingleThreadedUnaryStream`."""
    option = grpc.experimental.ChannelOptions.SingleThreadedUnaryStream
    assert sync_private.is_single_threaded([(option, 1)])
    assert not sync_private.is_single_threaded([("grpc.x", 1)])


def test_nothing_is_inherited_outside_a_server():
    """TH-3: a call made outside a server's handler inherits no deadline."""
    assert sync_private.inherited_deadline() is None
