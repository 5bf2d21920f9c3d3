"""The asyncio API: `insecure_channel` and `secure_channel` replace those of `grpc.aio`.

Internal: programs import from `grpc_backoff.aio`.
"""

from grpc_backoff.aio.channel import Channel, insecure_channel, retrying, secure_channel
from grpc_backoff.aio.errors import NoConnectionError, RetriesExhaustedError

__all__ = [
    "Channel",
    "NoConnectionError",
    "RetriesExhaustedError",
    "insecure_channel",
    "retrying",
    "secure_channel",
]
