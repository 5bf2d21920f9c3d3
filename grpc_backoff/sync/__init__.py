"""The synchronous API: `insecure_channel` and `secure_channel` replace those of `grpc`.

Internal: programs import from `grpc_backoff`.
"""

from grpc_backoff.engine.method import retrying
from grpc_backoff.sync.channel import Channel
from grpc_backoff.sync.constructors import insecure_channel, secure_channel

__all__ = ["Channel", "insecure_channel", "retrying", "secure_channel"]
