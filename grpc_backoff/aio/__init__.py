"""The asyncio face: `insecure_channel` and `secure_channel` in place of `grpc.aio`'s."""

from grpc_backoff.aio.channel import Channel, insecure_channel, secure_channel
from grpc_backoff.aio.gate import NoConnectionError

__all__ = ["Channel", "NoConnectionError", "insecure_channel", "secure_channel"]
