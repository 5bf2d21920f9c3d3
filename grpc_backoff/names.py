"""The public names of `grpc_backoff`, which imports this module when the first of them is used.

Each name is imported on first use, with its module. So a program that only configures policies does not load grpc, and
one that only makes calls does not load what reads policies. The names are listed twice, because type checkers read only
import statements, and executing those would load everything.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grpc_backoff.base.base_errors import ConfigError as ConfigError
    from grpc_backoff.base.base_errors import ConnectError as ConnectError
    from grpc_backoff.base.base_errors import GrpcBackoffError as GrpcBackoffError
    from grpc_backoff.base.base_errors import OptionError as OptionError
    from grpc_backoff.base.base_errors import PolicyWarning as PolicyWarning
    from grpc_backoff.base.status import Reason as Reason
    from grpc_backoff.base.status import Role as Role
    from grpc_backoff.base.status import SlotStatus as SlotStatus
    from grpc_backoff.base.status import WaitSource as WaitSource
    from grpc_backoff.config.credentials import tls_files as tls_files
    from grpc_backoff.config.file import Config as Config
    from grpc_backoff.config.file import read_config as read_config
    from grpc_backoff.config.hooks import FailedCall as FailedCall
    from grpc_backoff.config.hooks import RetryHooks as RetryHooks
    from grpc_backoff.config.policy_string import parse_policy as parse_policy
    from grpc_backoff.decide.calls.events import CallEvent as CallEvent
    from grpc_backoff.decide.calls.events import CallExhausted as CallExhausted
    from grpc_backoff.decide.calls.events import CallHedged as CallHedged
    from grpc_backoff.decide.calls.events import CallNotConnected as CallNotConnected
    from grpc_backoff.decide.calls.events import CallNotHedged as CallNotHedged
    from grpc_backoff.decide.calls.events import CallRetried as CallRetried
    from grpc_backoff.decide.calls.events import CallSucceeded as CallSucceeded
    from grpc_backoff.decide.calls.events import Gap as Gap
    from grpc_backoff.decide.calls.events import NotHedged as NotHedged
    from grpc_backoff.decide.calls.events import StreamEnded as StreamEnded
    from grpc_backoff.decide.calls.events import StreamResumed as StreamResumed
    from grpc_backoff.decide.connections.events import AttemptFailed as AttemptFailed
    from grpc_backoff.decide.connections.events import AttemptStarted as AttemptStarted
    from grpc_backoff.decide.connections.events import BackoffReset as BackoffReset
    from grpc_backoff.decide.connections.events import ChannelKey as ChannelKey
    from grpc_backoff.decide.connections.events import Closed as Closed
    from grpc_backoff.decide.connections.events import Connected as Connected
    from grpc_backoff.decide.connections.events import ConnectionEvent as ConnectionEvent
    from grpc_backoff.decide.connections.events import ConnectionStatus as ConnectionStatus
    from grpc_backoff.decide.connections.events import CoreRedial as CoreRedial
    from grpc_backoff.decide.connections.events import Disconnected as Disconnected
    from grpc_backoff.decide.connections.events import Failure as Failure
    from grpc_backoff.decide.connections.events import Stage as Stage
    from grpc_backoff.decide.connections.events import State as State
    from grpc_backoff.decide.connections.slot_events import LivenessAnswered as LivenessAnswered
    from grpc_backoff.decide.connections.slot_events import LivenessAsked as LivenessAsked
    from grpc_backoff.decide.connections.slot_events import NameResolution as NameResolution
    from grpc_backoff.decide.connections.slot_events import SlotClosed as SlotClosed
    from grpc_backoff.decide.connections.slot_events import SlotCondemned as SlotCondemned
    from grpc_backoff.decide.connections.slot_events import SlotEvent as SlotEvent
    from grpc_backoff.decide.connections.slot_events import SlotOpened as SlotOpened
    from grpc_backoff.decide.connections.slot_events import SlotRetiring as SlotRetiring
    from grpc_backoff.decide.connections.slot_events import SlotServing as SlotServing
    from grpc_backoff.decide.connections.slot_events import SlotUnhealthy as SlotUnhealthy
    from grpc_backoff.engine.news import network_changed as network_changed
    from grpc_backoff.grpcio.call_errors import ForkError as ForkError
    from grpc_backoff.grpcio.call_errors import NoConnectionError as NoConnectionError
    from grpc_backoff.grpcio.call_errors import RetriesExhaustedError as RetriesExhaustedError
    from grpc_backoff.installation import install as install
    from grpc_backoff.installation import installed as installed
    from grpc_backoff.installation import uninstall as uninstall
    from grpc_backoff.policy.backoff import BackoffPolicy as BackoffPolicy
    from grpc_backoff.policy.budget import RetryBudget as RetryBudget
    from grpc_backoff.policy.connect import ConnectPolicy as ConnectPolicy
    from grpc_backoff.policy.connect import Reconnect as Reconnect
    from grpc_backoff.policy.exponential import Exponential as Exponential
    from grpc_backoff.policy.hedging import HedgingPolicy as HedgingPolicy
    from grpc_backoff.policy.jitter import Additive as Additive
    from grpc_backoff.policy.jitter import Equal as Equal
    from grpc_backoff.policy.jitter import Full as Full
    from grpc_backoff.policy.jitter import NoJitter as NoJitter
    from grpc_backoff.policy.jitter import Scaled as Scaled
    from grpc_backoff.policy.presets import RETRY_PRESETS as RETRY_PRESETS
    from grpc_backoff.policy.proportional import Proportional as Proportional
    from grpc_backoff.policy.retry import RetryPolicy as RetryPolicy
    from grpc_backoff.policy.strategy import Decorrelated as Decorrelated
    from grpc_backoff.policy.strategy import Fixed as Fixed
    from grpc_backoff.policy.strategy import Linear as Linear
    from grpc_backoff.policy.strategy import Steps as Steps
    from grpc_backoff.sync import Channel as Channel
    from grpc_backoff.sync import insecure_channel as insecure_channel
    from grpc_backoff.sync import retrying as retrying
    from grpc_backoff.sync import secure_channel as secure_channel
    from grpc_backoff.sync.subscription import Subscription as Subscription
    from grpc_backoff.sync.subscription import subscribe as subscribe

_MODULES = {
    "base.base_errors": ("ConfigError", "ConnectError", "GrpcBackoffError", "OptionError", "PolicyWarning"),
    "base.status": ("Reason", "Role", "SlotStatus", "WaitSource"),
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
    "decide.connections.slot_events": (
        "LivenessAnswered",
        "LivenessAsked",
        "NameResolution",
        "SlotClosed",
        "SlotCondemned",
        "SlotEvent",
        "SlotOpened",
        "SlotRetiring",
        "SlotServing",
        "SlotUnhealthy",
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

HOMES = {name: f"grpc_backoff.{module}" for module, names in _MODULES.items() for name in names}


def load(name: str) -> object:
    """Import the home of a public name; return what has the name there."""
    found: object = getattr(import_module(HOMES[name]), name)
    return found
