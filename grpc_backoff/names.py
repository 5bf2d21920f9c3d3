"""The names that `grpc_backoff` offers at its top. It imports this module when the first of them is asked for.

Internal: programs import from `grpc_backoff`.
"""

from grpc_backoff.calls.events import CallEvent, CallExhausted, CallRetried, CallSucceeded, Reason, WaitSource
from grpc_backoff.calls.hooks import FailedCall, RetryHooks
from grpc_backoff.config.file import Config, read_config
from grpc_backoff.connection.events import (
    AttemptFailed,
    AttemptStarted,
    BackoffReset,
    ChannelKey,
    Closed,
    Connected,
    ConnectionEvent,
    ConnectionStatus,
    CoreRedial,
    Disconnected,
    Failure,
    Stage,
    State,
)
from grpc_backoff.errors import ConfigError, ConnectError, GrpcBackoffError, OptionError, PolicyWarning
from grpc_backoff.installation import install, installed, uninstall
from grpc_backoff.policy.backoff import BackoffPolicy
from grpc_backoff.policy.budget import RetryBudget
from grpc_backoff.policy.connect import ConnectPolicy, Reconnect
from grpc_backoff.policy.jitter import Additive, Equal, Full, NoJitter, Proportional, Scaled
from grpc_backoff.policy.presets import RETRY as RETRY_PRESETS
from grpc_backoff.policy.retry import RetryPolicy
from grpc_backoff.policy.strategy import Decorrelated, Exponential, Fixed, Linear, Steps

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
    "CoreRedial",
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
    "install",
    "installed",
    "read_config",
    "uninstall",
]
