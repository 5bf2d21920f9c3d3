"""The keyword arguments of this library's channels, in addition to grpc's own, and a channel's resulting settings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict

from grpc_backoff.calls.hooks import RetryHooks
from grpc_backoff.config.arguments import Listener, check_kind, read_listeners
from grpc_backoff.config.target import read_target
from grpc_backoff.errors import OptionError
from grpc_backoff.record import NamedTuple, record

if TYPE_CHECKING:
    from grpc_backoff.config.file import Config
    from grpc_backoff.config.methods import CallPolicies, Retry
    from grpc_backoff.config.sources import Effective
    from grpc_backoff.connection.clock import Clock
    from grpc_backoff.policy.backoff import Random
    from grpc_backoff.policy.budget import RetryBudget
    from grpc_backoff.policy.connect import ConnectPolicy

__all__ = ["ChannelSettings", "ChannelSetup", "Options", "read_channel"]

Options = Sequence[tuple[str, Any]]

_MOST_READ = 256
"""How many targets are remembered whose channels were created without any setting."""


class ChannelSettings(TypedDict, total=False):
    """The arguments of a channel in addition to grpc's own; all are optional.

    Attributes:
        policy: how to connect; overrides the options and the file.
        config: a TOML file, or its parsed content (`grpc_backoff.read_config`); the options override it. By default,
            the file named by the option `grpc_backoff.config` or the environment variable `GRPC_BACKOFF_CONFIG`.
        listeners: functions called with every event of the connection and of retried calls: on the event loop, or, for
            the threaded channel, on a thread of the channel, one after another.
        rng: the source of jitter; by default the operating system's (CB-11).
        clock: a monotonic clock; by default the event loop's, or `time.monotonic` for the threaded channel (CB-12).
        retry: how calls are retried: a policy, the name of one, or a policy string; or a mapping from methods, services
            and `*` to these. It overrides the service config and the file. By default, nothing is retried.
        retry_budget: limits the retries of this target while most of its calls fail (RT-9).
        retry_hooks: functions to call when calls with a policy fail (RT-4 to RT-6). For the threaded channel they must
            not be coroutine functions.
    """

    policy: ConnectPolicy | None
    config: str | os.PathLike[str] | Config | None
    listeners: Sequence[Listener]
    rng: Random | None
    clock: Clock | None
    retry: Retry | Mapping[str, Retry] | None
    retry_budget: RetryBudget | None
    retry_hooks: RetryHooks | None


@record
class ChannelSetup(NamedTuple):
    """The combined arguments, options, file and environment of one channel.

    Attributes:
        target: the server's address, as passed to grpcio's core.
        policy: how the channel connects.
        policy_values: the policy's values by name, each with its source (BP-3).
        call_policies: the retry policies of calls, by method.
        core_options: the options that are passed on to grpcio.
        listeners: called with every event.
        rng: the source of jitter; None for the default.
        clock: the clock; None for the default.
        hooks: called when calls fail.
    """

    target: str
    policy: ConnectPolicy
    policy_values: Mapping[str, Effective]
    call_policies: CallPolicies
    core_options: Options
    listeners: tuple[Listener, ...]
    rng: Random | None
    clock: Clock | None
    hooks: RetryHooks


def read_channel(target: str, options: Options | None, settings: ChannelSettings) -> ChannelSetup:
    """Read the settings of a channel.

    Raises:
        OptionError: an argument or an option has a wrong value (CH-10).
        ConfigError: the file cannot be read or has a wrong value (BP-4).
        TypeError: there is no such argument.
    """
    from grpc_backoff.config.file import ENVIRONMENT_VARIABLE  # noqa: PLC0415 - for the first channel, as below

    if not (options or settings or os.environ.get(ENVIRONMENT_VARIABLE)) and isinstance(target, str):
        return _read_alone(target)
    return _read(target, options, settings)


@lru_cache(_MOST_READ)
def _read_alone(target: str) -> ChannelSetup:
    """Read a target on its own; the result is the same for every channel to it, and nothing in it changes."""
    return _read(target, None, {})


def _read(target: str, options: Options | None, settings: ChannelSettings) -> ChannelSetup:
    # Imported for the first channel: reading settings takes a dozen modules.
    from grpc_backoff.config.methods import read_call_policies  # noqa: PLC0415
    from grpc_backoff.config.options import read_options  # noqa: PLC0415

    target = read_target(target)
    for name in settings:
        if name not in ChannelSettings.__annotations__:
            raise TypeError(f"{name}: expected one of {', '.join(ChannelSettings.__annotations__)}")
    listeners = read_listeners(settings.get("listeners", ()))
    rng, clock, hooks = settings.get("rng"), settings.get("clock"), settings.get("retry_hooks")
    if rng is not None:
        check_kind("rng", rng, "a source of random numbers such as random.Random(1)", "random")
    if clock is not None:
        check_kind("clock", clock, "a Clock, with now() and call_at()", "now", "call_at")
    if hooks is not None and not isinstance(hooks, RetryHooks):
        raise OptionError("retry_hooks", hooks, "a RetryHooks")
    read = read_options(options or (), settings.get("policy"), target=target, config=settings.get("config"))
    calls = read_call_policies(settings.get("retry"), settings.get("retry_budget"), read.core, read.config)
    return ChannelSetup(
        target=target,
        policy=read.policy,
        policy_values=MappingProxyType({value.part: value for value in read.effective}),
        call_policies=calls,
        core_options=calls.core,
        listeners=listeners,
        rng=rng,
        clock=clock,
        hooks=hooks or RetryHooks(),
    )
