"""The settings of one channel, as values, its listeners, and what identifies what it dials."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.base.record import NamedTuple
from grpc_backoff.config.call_policies import CallPolicies
from grpc_backoff.config.core_options import LOCAL_POOL, Pairs, first_values
from grpc_backoff.policy.backoff import Random
from grpc_backoff.policy.connect import ConnectPolicy
from grpc_backoff.policy.pooling import PoolPolicy

if TYPE_CHECKING:
    from grpc_backoff.config.hooks import RetryHooks
    from grpc_backoff.config.sources import Source
    from grpc_backoff.connection.clock import Clock


Listener = Callable[[Any], object]
"""A function that takes one event. Its return value is ignored, and its exceptions are logged."""


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
    """Raise OptionError unless the listener is callable and not a coroutine function."""
    if not callable(listener) or is_coroutine_function(listener):  # it would never be awaited
        raise OptionError(key, listener, "a function that takes one event, and not a coroutine function")


def is_coroutine_function(function: object) -> bool:
    """Return whether to call this object returns a coroutine; its class may say so, by `async def __call__`."""
    return any(map(inspect.iscoroutinefunction, (function, getattr(type(function), "__call__", None))))  # noqa: B004


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


def identified(setup: ChannelSetup) -> ChannelSetup:
    """Return the settings with their key, if they have one."""
    named = first_values(setup.core_options)  # if a name occurs twice, only the first option counts (CH-9)
    if named.get(LOCAL_POOL):
        return setup
    try:
        # grpcio takes any other number than an int for a pointer, so 1.0 and 1 are two options.
        options = frozenset((name, value, isinstance(value, int)) for name, value in named.items())
        key = Key(setup.target, setup.policy, setup.pooling, options)
    except TypeError:
        return setup
    return setup._replace(key=key)
