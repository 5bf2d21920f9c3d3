"""The asyncio API: `insecure_channel` and `secure_channel` replace those of `grpc.aio`.

Internal: programs import from `grpc_backoff.aio`.
"""

from grpc_backoff.aio.channel import Channel, insecure_channel, secure_channel
from grpc_backoff.aio.errors import NoConnectionError, RetriesExhaustedError
from grpc_backoff.aio.subscription import Subscription, subscribe
from grpc_backoff.channel.method import retrying

__all__ = [
    "Channel",
    "NoConnectionError",
    "RetriesExhaustedError",
    "Subscription",
    "insecure_channel",
    "retrying",
    "secure_channel",
    "subscribe",
]
