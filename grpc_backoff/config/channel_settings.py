"""The keyword arguments of this library's channels, beyond grpc's own, and how a channel's settings are read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.config.call_policies import CallPolicies
from grpc_backoff.config.channel_setup import ChannelSetup, Listener, identified, read_listeners
from grpc_backoff.config.core_options import TypedPairs, idle_options, key_text, typed_pairs
from grpc_backoff.config.remarks import warn_of
from grpc_backoff.config.target import read_target
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.connect import CONNECT, ConnectPolicy
from grpc_backoff.policy.pooling import PLAIN
from grpc_backoff.policy.setting import CONFIG, ENVIRONMENT_VARIABLE

if TYPE_CHECKING:
    from grpc_backoff.config.file import Config
    from grpc_backoff.config.hooks import RetryHooks
    from grpc_backoff.config.sources import Effective, Source
    from grpc_backoff.connection.clock import Clock
    from grpc_backoff.policy.budget import RetryBudget
    from grpc_backoff.policy.hedging import Repeats
else:
    Clock = Config = Repeats = RetryBudget = RetryHooks = Any  # for programs that evaluate `ChannelSettings`

Options = Sequence[tuple[str, object]]
_NO_HEALTH = (
    "healthCheckConfig: expected grpcio-health-checking to be installed (the extra 'health'); without it, grpc's core "
    "watches health, and only with round_robin"
)
_MOST_READ = 256  # the maximum number of cached settings, one for each target with plain options

_NOT_CACHED = frozenset({"listeners", "rng", "clock", "retry_hooks"})
"""The arguments that are one channel's own objects. No other setting depends on them, so they are added to the cached
settings."""


class ChannelSettings(TypedDict, total=False):
    """A channel's arguments in addition to grpc's own; all are optional.

    Attributes:
        policy: how to connect; overrides the options and the file.
        config: a TOML file, or its parsed content (`grpc_backoff.read_config`); the options override it. By default,
            the file named by the option `grpc_backoff.config` or the environment variable `GRPC_BACKOFF_CONFIG`.
        listeners: functions that are called with every event of the connection and of retried calls, one after another:
            on the event loop or, for the threaded channel, on one of the channel's threads.
        rng: the source of jitter; by default the operating system's (CB-11).
        clock: a monotonic clock; by default the event loop's, or `time.monotonic` for the threaded channel (CB-12).
        retry: how calls are retried: a policy, a policy name, or a policy string; or a mapping from methods, services
            and `*` to any of these. It overrides the service config and the file. By default, nothing is retried.
        retry_budget: limits retries to this target while most calls to it fail (RT-9).
        retry_hooks: functions to call when calls with a retry policy fail (RT-4 to RT-6). For the threaded channel,
            they must not be coroutine functions.
    """

    policy: ConnectPolicy | None
    config: str | os.PathLike[str] | Config | None
    listeners: Sequence[Listener]
    rng: Random | None
    clock: Clock | None
    retry: Repeats | Mapping[str, Repeats] | None
    retry_budget: RetryBudget | None
    retry_hooks: RetryHooks | None


def read_channel(target: str, options: Options | None, settings: ChannelSettings) -> ChannelSetup:
    """Read and check the settings of a channel.

    If the settings depend only on the target and plain options, they are read once and cached, because a program may
    create a channel for each request. The environment variable and any file are read for every channel.

    Raises:
        OptionError: an argument or an option has an invalid value (CH-10).
        ConfigError: the file cannot be read or has an invalid value (BP-4).
        TypeError: an argument is unknown.

    Warns:
        PolicyWarning: one of grpc's options looks like a misspelt option of this library.
    """
    typed = _cache_key(target, options, settings)
    setup = _read(target, options, settings) if typed is None else _read_alone(target, typed)
    warn_of(setup.remarks)
    return _with_objects(setup, settings) if settings else setup


def _cache_key(target: str, options: Options | None, settings: ChannelSettings) -> TypedPairs | None:
    """Return the options in hashable form; None if the settings depend on anything but the target and the options."""
    if options is None:
        options = ()
    if type(target) is not str or type(options) not in (tuple, list) or not settings.keys() <= _NOT_CACHED:
        return None
    typed = typed_pairs(options)
    if typed is None or os.environ.get(ENVIRONMENT_VARIABLE) or any(key_text(key) == CONFIG for key, _, _ in typed):
        return None
    return typed


@lru_cache(_MOST_READ)
def _read_alone(target: str, typed: TypedPairs) -> ChannelSetup:
    """Return the settings of a channel with only a target and options; channels share them."""
    if typed:
        return _read(target, ((key, value) for key, _, value in typed), {})
    # Few programs set anything, and what `_read` imports is a dozen modules. It would return the same.
    core = idle_options(CONNECT)
    return identified(ChannelSetup(read_target(target), CONNECT, PLAIN, None, CallPolicies(), core, ()))


def _read(target: str, options: Iterable[tuple[str | bytes, object]] | None, settings: ChannelSettings) -> ChannelSetup:
    """Return a channel's settings without its own objects."""
    from grpc_backoff.config.options import read_options  # noqa: PLC0415 - `_read_alone` says why

    for name in settings:
        if name not in ChannelSettings.__annotations__:
            raise TypeError(f"unknown argument {name!r}: expected one of {', '.join(ChannelSettings.__annotations__)}")
    setup = read_options(options or (), target=read_target(target), **settings)
    return identified(setup if setup.pooling.health_service is None else _with_watchable_health(setup))


def _with_watchable_health(setup: ChannelSetup) -> ChannelSetup:
    """Return the settings without a health check if the package for it is missing; the core may make it then."""
    from importlib.util import find_spec  # noqa: PLC0415 - few channels watch health

    if find_spec("grpc_health") is not None:
        return setup
    pooling = setup.pooling._replace(round_robin=False, health_service=None)
    return setup._replace(pooling=pooling, remarks=(*setup.remarks, _NO_HEALTH))


def _with_objects(setup: ChannelSetup, settings: ChannelSettings) -> ChannelSetup:
    listeners = read_listeners(settings.get("listeners", ()))
    rng, clock, hooks = settings.get("rng"), settings.get("clock"), settings.get("retry_hooks")
    if rng is not None:
        check_kind("rng", rng, "a source of random numbers such as random.Random(1)", "random")
    if clock is not None:
        check_kind("clock", clock, "a Clock, with now() and call_at()", "now", "call_at")
    if hooks is not None:
        from grpc_backoff.config.hooks import RetryHooks  # noqa: PLC0415 - few channels have any

        if not isinstance(hooks, RetryHooks):
            raise OptionError("retry_hooks", hooks, "a RetryHooks object")
    return setup._replace(listeners=listeners, rng=rng, clock=clock, hooks=hooks)


def policy_values(target: str, values: Source | None) -> Mapping[str, Effective]:
    """Return the values of a channel's policies by name, each with its source, from `ChannelSetup.values` (BP-3)."""
    from grpc_backoff.config.sources import effective_of  # noqa: PLC0415 - few programs ask

    if values is None:
        values = _read(target, (), {}).values or {}
    return MappingProxyType({value.part: value for value in effective_of(values)})


def check_kind(key: str, value: object, allowed: str, *methods: str) -> None:
    """Raise OptionError if the value lacks one of these methods, or is a class."""
    if isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in methods):
        raise OptionError(key, value, allowed)
