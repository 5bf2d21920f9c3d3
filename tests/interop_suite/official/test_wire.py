"""The official reconnect service on the wire, compared with bytes and paths written out from its definition."""

from __future__ import annotations

import grpc.aio
import pytest

from grpc_judge.generated.grpc_testing.empty_pb2 import Empty
from grpc_judge.generated.grpc_testing.messages_pb2 import ReconnectInfo, ReconnectParams
from grpc_judge.official.server import ReconnectServer

START = "/grpc.testing.ReconnectService/Start"
STOP = "/grpc.testing.ReconnectService/Stop"


@pytest.mark.parametrize(
    ("message", "encoded"),
    [
        (Empty(), ""),
        (ReconnectParams(), ""),
        (ReconnectParams(max_reconnect_backoff_ms=4000), "08 a0 1f"),
        (ReconnectParams(max_reconnect_backoff_ms=-1), "08 ff ff ff ff ff ff ff ff ff 01"),
        (ReconnectInfo(), ""),
        (ReconnectInfo(passed=True), "08 01"),
        (ReconnectInfo(backoff_ms=[1000, 1600]), "12 04 e8 07 c0 0c"),
        (ReconnectInfo(passed=True, backoff_ms=[0]), "08 01 12 01 00"),
    ],
)
def test_messages(message, encoded):
    """IO-1: the messages have the official field numbers and types."""
    assert message.SerializeToString() == bytes.fromhex(encoded)
    assert type(message).FromString(bytes.fromhex(encoded)) == message


async def test_paths():
    """IO-1: the service answers raw bytes on the official paths, and on no others."""
    async with (
        ReconnectServer(print) as server,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.control_port}") as channel,
    ):
        assert await channel.unary_unary(START)(b"") == b""
        assert await channel.unary_unary(STOP)(b"") == b""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/grpc.testing.ReconnectService/Begin")(b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
