"""Resilient gRPC channels for Python: connection backoff that can be set, seen, reset and proven.

`from grpc_backoff import aio` and `aio.insecure_channel(target)` in place of `grpc.aio.insecure_channel(target)`.
"""

from grpc_backoff.connection.events import (
    AttemptFailed,
    AttemptStarted,
    BackoffReset,
    ChannelKey,
    Closed,
    Connected,
    ConnectionEvent,
    ConnectionStatus,
    Disconnected,
    Failure,
    Stage,
    State,
)
from grpc_backoff.errors import ConfigError, ConnectError, GrpcBackoffError, OptionError, PolicyWarning
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.budget import RetryBudget
from grpc_backoff.policy.config import Config, read_config
from grpc_backoff.policy.connect import ConnectPolicy, Reconnect
from grpc_backoff.policy.jitter import Additive, Equal, Full, NoJitter, Proportional, Scaled
from grpc_backoff.policy.presets import RETRY as RETRY_PRESETS
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import Decorrelated, Exponential, Fixed, Linear, Steps
from grpc_backoff.retry.events import CallEvent, CallExhausted, CallRetried, CallSucceeded, Reason, WaitSource
from grpc_backoff.retry.hooks import FailedCall, RetryHooks

__all__ = [
    "RETRY_PRESETS",
    "Additive",
    "AttemptFailed",
    "AttemptStarted",
    "BackoffPolicy",
    "BackoffReset",
    "CallEvent",
    "CallExhausted",
    "CallRetried",
    "CallSucceeded",
    "ChannelKey",
    "Closed",
    "Config",
    "ConfigError",
    "ConnectError",
    "ConnectPolicy",
    "Connected",
    "ConnectionEvent",
    "ConnectionStatus",
    "Decorrelated",
    "Disconnected",
    "Equal",
    "Exponential",
    "FailedCall",
    "Failure",
    "Fixed",
    "Full",
    "GrpcBackoffError",
    "Linear",
    "NoJitter",
    "OptionError",
    "PolicyWarning",
    "Proportional",
    "Reason",
    "Reconnect",
    "RetryBudget",
    "RetryHooks",
    "RetryPolicy",
    "Scaled",
    "Stage",
    "State",
    "Steps",
    "WaitSource",
    "read_config",
]

__version__ = "0.1.0"
