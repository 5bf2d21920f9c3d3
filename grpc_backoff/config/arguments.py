"""Checks the arguments of a channel that are objects supplied by the program (CH-10)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from grpc_backoff.base.base_errors import OptionError, shown

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
