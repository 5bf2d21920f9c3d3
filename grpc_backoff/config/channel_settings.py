"""The keyword arguments of this library's channels, beyond grpc's own, and the settings that result from them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict

from grpc_backoff.base.base_errors import OptionError, shown
from grpc_backoff.base.record import NamedTuple, record
from grpc_backoff.config.call_policies import CallPolicies
from grpc_backoff.config.core_options import LOCAL_POOL, Pairs, first_values, idle_options, key_text
from grpc_backoff.config.remarks import warn_of
from grpc_backoff.config.target import read_target
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.connect import CONNECT, ConnectPolicy
from grpc_backoff.policy.pooling import PLAIN, PoolPolicy
from grpc_backoff.policy.setting import CONFIG, ENVIRONMENT_VARIABLE

if TYPE_CHECKING:
    from grpc_backoff.config.file import Config
    from grpc_backoff.config.hooks import RetryHooks
    from grpc_backoff.config.sources import Effective, Source
    from grpc_backoff.connection.clock import Clock
    from grpc_backoff.policy.budget import RetryBudget
    from grpc_backoff.policy.hedging import Repeats

Options = Sequence[tuple[str, object]]
Listener = Callable[[Any], object]
"""A function that takes one event. Its return value is ignored, and its exceptions are logged."""
TypedPairs = tuple[tuple[str | bytes, type, str | bytes | int], ...]
"""Options with the types of their values, because 1, 1.0 and True compare equal but may be read differently."""

_NO_HEALTH = (
    "healthCheckConfig: expected grpcio-health-checking to be installed (the extra 'health'); without it, grpc's core "
    "watches health, and only with round_robin"
)
_PLAIN = (str, bytes, int, bool, float)
_MOST_READ = 256
"""The maximum number of cached settings, one for each target with plain options."""

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


class Key:
    """Identifies what a channel dials, and how (SH-1). It is looked up several times, so its hash is computed once."""

    __slots__ = ("_hash", "_parts")

    def __init__(self, *parts: Hashable) -> None:
        """Store the parts; the first one is the target.

        Raises:
            TypeError: a part is not hashable.
        """
        self._parts = parts
        self._hash = hash(parts)

    def __eq__(self, other: object) -> bool:
        """Compare all parts."""
        return isinstance(other, Key) and self._hash == other._hash and self._parts == other._parts

    def __hash__(self) -> int:
        """Return the stored hash."""
        return self._hash

    def __repr__(self) -> str:
        """Return a representation without credentials and options, which may contain secrets."""
        return f"Key({self._parts[0]!r})"


@record
class ChannelSetup(NamedTuple):
    """One channel's settings, combined from its arguments, its options, the file and the environment.

    Attributes:
        target: the server's address, as passed to grpcio's core.
        policy: how the channel connects.
        pooling: how many connections it has.
        values: the values of both policies, by part; None if the channel has no settings of its own.
        call_policies: the retry policies for calls, by method.
        core_options: the options that are passed on to grpcio, without the retries that this library carries out.
        remarks: a warning for each of grpc's options that looks like a misspelt option of this library.
        key: identifies the target, the policies and the core's options, in any order (SH-1). It is None if the channel
            shares nothing with others: with its own pool of subchannels, as in grpcio, or an option without a hash.
        listeners: called with every event.
        rng: the source of jitter; None for the default.
        clock: the clock; None for the default.
        hooks: the functions to call when calls fail; None if there are none.
    """

    target: str
    policy: ConnectPolicy
    pooling: PoolPolicy
    values: Source | None
    call_policies: CallPolicies
    core_options: Pairs
    remarks: tuple[str, ...]
    key: Key | None = None
    listeners: tuple[Listener, ...] = ()
    rng: Random | None = None
    clock: Clock | None = None
    hooks: RetryHooks | None = None


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
    if typed is None:
        setup = _read(target, options, settings)
    else:
        setup = _read_alone(target, typed) if typed else _plain(target)
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


def typed_pairs(options: Iterable[object]) -> TypedPairs | None:
    """Return options in hashable form; None if one of them is not a tuple of a key and a plain value."""
    typed = []
    for pair in options:
        if type(pair) is not tuple or len(pair) != 2:  # noqa: PLR2004 - a pair
            return None
        key, value = pair
        if type(key) not in (str, bytes) or type(value) not in _PLAIN:
            return None
        typed.append((key, type(value), value))
    return tuple(typed)


@lru_cache(_MOST_READ)
def _plain(target: str) -> ChannelSetup:
    """Return the settings of a channel with nothing but a target, which are those that `_read` would return."""
    target, core = read_target(target), idle_options(CONNECT)
    return _keyed(ChannelSetup(target, CONNECT, PLAIN, None, CallPolicies(), core, ()))


@lru_cache(_MOST_READ)
def _read_alone(target: str, typed: TypedPairs) -> ChannelSetup:
    """Return the settings of a channel with only a target and options; channels share them."""
    return _read(target, tuple((key, value) for key, _, value in typed), {})


def _read(target: str, options: Iterable[tuple[str | bytes, object]] | None, settings: ChannelSettings) -> ChannelSetup:
    """Return a channel's settings without its own objects."""
    # Few programs set anything, and reading settings requires a dozen modules.
    from grpc_backoff.config.methods import read_call_policies  # noqa: PLC0415
    from grpc_backoff.config.options import read_options  # noqa: PLC0415

    for name in settings:
        if name not in ChannelSettings.__annotations__:
            raise TypeError(f"unknown argument {name!r}: expected one of {', '.join(ChannelSettings.__annotations__)}")
    setup = read_options(
        options or (), settings.get("policy"), target=read_target(target), config=settings.get("config")
    )
    setup = read_call_policies(settings.get("retry"), settings.get("retry_budget"), setup)
    if setup.pooling.health_service is not None:
        from importlib.util import find_spec  # noqa: PLC0415 - few channels watch health

        if find_spec("grpc_health") is None:  # the core's own round_robin watches it, as before
            unwatched = setup.pooling._replace(round_robin=False, health_service=None)
            setup = setup._replace(pooling=unwatched, remarks=(*setup.remarks, _NO_HEALTH))
    return _keyed(setup)


def _keyed(setup: ChannelSetup) -> ChannelSetup:
    named = first_values(setup.core_options)  # if a name occurs twice, only the first option counts (CH-9)
    if named.get(LOCAL_POOL):
        return setup
    try:
        key = Key(setup.target, setup.policy, setup.pooling, frozenset(named.items()))
    except TypeError:
        return setup
    return setup._replace(key=key)


def _with_objects(setup: ChannelSetup, settings: ChannelSettings) -> ChannelSetup:
    """Return the settings with one channel's own objects added."""
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


def read_listeners(value: object) -> tuple[Listener, ...]:
    """Return a channel's listeners as a tuple; OptionError if one of them is not a function."""
    try:
        listeners: tuple[Listener, ...] = tuple(value)  # type: ignore[arg-type]
    except TypeError as error:
        raise OptionError("listeners", value, "a list of functions") from error
    for index, listener in enumerate(listeners):
        check_listener(f"listeners[{index}]", listener)
    return listeners


def check_listener(key: str, listener: object) -> None:
    """Raise OptionError unless the listener is callable and not a coroutine function.

    It may hear of a call that fails, and then nothing may be imported (CH-12).
    """
    from grpc_backoff.decide.calls import events  # noqa: F401, PLC0415 - most channels have no listener

    if not callable(listener) or inspect.iscoroutinefunction(listener):  # it would never be awaited
        raise OptionError(key, listener, "a function that takes one event, and not a coroutine function")


def remove_listener(listeners: list[Listener], listener: object) -> None:
    """Remove a listener; ValueError if it is not among them."""
    if listener not in listeners:
        raise ValueError(f"this listener is not registered: {shown(listener)}")
    listeners.remove(listener)


def check_kind(key: str, value: object, allowed: str, *methods: str) -> None:
    """Raise OptionError if the value lacks one of these methods, or is a class."""
    if isinstance(value, type) or not all(callable(getattr(value, method, None)) for method in methods):
        raise OptionError(key, value, allowed)
