"""The public names of `grpc_backoff`, which imports this module when the first of them is used.

Each name is imported on first use, with its module. So a program that only configures policies does not load grpc, and
one that only makes calls does not load what reads policies.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grpc_backoff.base.base_errors import ConfigError, ConnectError, GrpcBackoffError, OptionError, PolicyWarning
    from grpc_backoff.base.status import Reason, WaitSource
    from grpc_backoff.config.credentials import tls_files
    from grpc_backoff.config.file import Config, read_config
    from grpc_backoff.config.hooks import FailedCall, RetryHooks
    from grpc_backoff.config.policy_string import parse_policy
    from grpc_backoff.decide.calls.events import (
        CallEvent,
        CallExhausted,
        CallHedged,
        CallNotConnected,
        CallNotHedged,
        CallRetried,
        CallSucceeded,
        Gap,
        NotHedged,
        StreamEnded,
        StreamResumed,
    )
    from grpc_backoff.decide.connections.events import (
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
    from grpc_backoff.engine.news import network_changed
    from grpc_backoff.grpcio.call_errors import ForkError, NoConnectionError, RetriesExhaustedError
    from grpc_backoff.installation import install, installed, uninstall
    from grpc_backoff.policy.backoff import BackoffPolicy
    from grpc_backoff.policy.budget import RetryBudget
    from grpc_backoff.policy.connect import ConnectPolicy, Reconnect
    from grpc_backoff.policy.exponential import Exponential
    from grpc_backoff.policy.hedging import HedgingPolicy
    from grpc_backoff.policy.jitter import Additive, Equal, Full, NoJitter, Scaled
    from grpc_backoff.policy.presets import RETRY as RETRY_PRESETS
    from grpc_backoff.policy.proportional import Proportional
    from grpc_backoff.policy.retry import RetryPolicy
    from grpc_backoff.policy.strategy import Decorrelated, Fixed, Linear, Steps
    from grpc_backoff.sync import Channel, insecure_channel, retrying, secure_channel
    from grpc_backoff.sync.subscription import Subscription, subscribe

__all__ = [
    "RETRY_PRESETS",
    "Additive",
    "AttemptFailed",
    "AttemptStarted",
    "BackoffPolicy",
    "BackoffReset",
    "CallEvent",
    "CallExhausted",
    "CallHedged",
    "CallNotConnected",
    "CallNotHedged",
    "CallRetried",
    "CallSucceeded",
    "Channel",
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
    "ForkError",
    "Full",
    "Gap",
    "GrpcBackoffError",
    "HedgingPolicy",
    "Linear",
    "NoConnectionError",
    "NoJitter",
    "NotHedged",
    "OptionError",
    "PolicyWarning",
    "Proportional",
    "Reason",
    "Reconnect",
    "RetriesExhaustedError",
    "RetryBudget",
    "RetryHooks",
    "RetryPolicy",
    "Scaled",
    "Stage",
    "State",
    "Steps",
    "StreamEnded",
    "StreamResumed",
    "Subscription",
    "WaitSource",
    "insecure_channel",
    "install",
    "installed",
    "network_changed",
    "parse_policy",
    "read_config",
    "retrying",
    "secure_channel",
    "subscribe",
    "tls_files",
    "uninstall",
]

_MODULES = {
    "base.base_errors": ("ConfigError", "ConnectError", "GrpcBackoffError", "OptionError", "PolicyWarning"),
    "base.status": ("Reason", "WaitSource"),
    "config.credentials": ("tls_files",),
    "config.file": ("Config", "read_config"),
    "config.hooks": ("FailedCall", "RetryHooks"),
    "config.policy_string": ("parse_policy",),
    "decide.calls.events": (
        "CallEvent",
        "CallExhausted",
        "CallHedged",
        "CallNotConnected",
        "CallNotHedged",
        "CallRetried",
        "CallSucceeded",
        "Gap",
        "NotHedged",
        "StreamEnded",
        "StreamResumed",
    ),
    "decide.connections.events": (
        "AttemptFailed",
        "AttemptStarted",
        "BackoffReset",
        "ChannelKey",
        "Closed",
        "Connected",
        "ConnectionEvent",
        "ConnectionStatus",
        "CoreRedial",
        "Disconnected",
        "Failure",
        "Stage",
        "State",
    ),
    "engine.news": ("network_changed",),
    "grpcio.call_errors": ("ForkError", "NoConnectionError", "RetriesExhaustedError"),
    "installation": ("install", "installed", "uninstall"),
    "policy.backoff": ("BackoffPolicy",),
    "policy.budget": ("RetryBudget",),
    "policy.connect": ("ConnectPolicy", "Reconnect"),
    "policy.exponential": ("Exponential",),
    "policy.hedging": ("HedgingPolicy",),
    "policy.jitter": ("Additive", "Equal", "Full", "NoJitter", "Scaled"),
    "policy.presets": ("RETRY_PRESETS",),
    "policy.proportional": ("Proportional",),
    "policy.retry": ("RetryPolicy",),
    "policy.strategy": ("Decorrelated", "Fixed", "Linear", "Steps"),
    "sync": ("Channel", "insecure_channel", "retrying", "secure_channel"),
    "sync.subscription": ("Subscription", "subscribe"),
}
"""The names, by the module that defines them."""

_HOMES = {name: f"grpc_backoff.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a name on first use."""
    if name in _HOMES:
        value: object = getattr(import_module(_HOMES[name]), "RETRY" if name == "RETRY_PRESETS" else name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
