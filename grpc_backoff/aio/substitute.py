"""The replacement of `grpc.aio`'s constructors by `grpc_backoff.install`, and its reversal."""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import grpc.aio

from grpc_backoff.aio import channel, front

_NAMES = ("insecure_channel", "secure_channel")
_MODULES = (
    "grpc.aio",
    "grpc.experimental.aio",
)  # the second one has copies of the names, made by `import *`

_lock = threading.Lock()


class _Substitute:
    """Replaces a constructor with one of this library's; once it is turned off, it calls the original.

    It is a class because its type identifies it: wrappers copy the names and attributes of the object that they wrap,
    but not its type.
    """

    switched_on = False

    def __init__(self, name: str, beneath: Callable[..., grpc.aio.Channel]) -> None:
        ours = getattr(channel, name)
        functools.update_wrapper(self, ours)  # tracing libraries check the name
        self._ours = ours
        self.beneath = beneath

    def __call__(self, *args: Any, **kwargs: Any) -> grpc.aio.Channel:
        # An interceptor channel that is being created has already passed through every wrapper around this object, so
        # call the constructor beneath it.
        if not _Substitute.switched_on or front.is_being_made():
            return self.beneath(*args, **kwargs)
        with front.made_by(self.beneath):  # the wrappers of this object have been called already
            made: grpc.aio.Channel = self._ours(*args, **kwargs)
        return made


def is_substituted() -> bool:
    """Return whether the replacements are turned on."""
    return _Substitute.switched_on


def substitute() -> None:
    """Replace grpc's constructors with this library's, unless they are replaced already."""
    with _lock:
        _Substitute.switched_on = True
        for module in _modules():
            for name in _NAMES:
                present = getattr(module, name)
                if type(present) is not _Substitute:
                    setattr(module, name, _Substitute(name, present))


def restore() -> None:
    """Turn the replacements off, and remove those that have not been wrapped in the meantime."""
    with _lock:
        _Substitute.switched_on = False
        for module in _modules():
            for name in _NAMES:
                while type(present := getattr(module, name)) is _Substitute:
                    setattr(module, name, present.beneath)


def _modules() -> list[ModuleType]:
    return [importlib.import_module(name) for name in _MODULES]
