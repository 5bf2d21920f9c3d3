"""Resilient gRPC channels for Python: connection backoff that can be set, seen, reset and proven.

`from grpc_backoff import aio` and `aio.insecure_channel(target)` in place of `grpc.aio.insecure_channel(target)`.
"""

from grpc_backoff.connection.events import (
    AttemptFailed,
    AttemptStarted,
    BackoffReset,
    Connected,
    ConnectionEvent,
    ConnectionStatus,
    Disconnected,
    Failure,
    Stage,
    State,
)
from grpc_backoff.errors import ConfigError, ConnectError, GrpcBackoffError, OptionError
from grpc_backoff.policy.backoff import BackoffPolicy, Exponential, Proportional
from grpc_backoff.policy.connect import ConnectPolicy, Reconnect

__all__ = [
    "AttemptFailed",
    "AttemptStarted",
    "BackoffPolicy",
    "BackoffReset",
    "ConfigError",
    "ConnectError",
    "ConnectPolicy",
    "Connected",
    "ConnectionEvent",
    "ConnectionStatus",
    "Disconnected",
    "Exponential",
    "Failure",
    "GrpcBackoffError",
    "OptionError",
    "Proportional",
    "Reconnect",
    "Stage",
    "State",
]

__version__ = "0.1.0"
