"""What `grpc_backoff.install` puts in the place of `grpc.aio`'s constructors, and how it takes it away again."""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import grpc.aio

from grpc_backoff.aio import channel, front

__all__ = ["is_substituted", "restore", "substitute"]

_NAMES = ("insecure_channel", "secure_channel")
_MODULES = ("grpc.aio", "grpc.experimental.aio")  # the second has names of its own, taken from the first by `import *`

_lock = threading.Lock()


class _Substitute:
    """One of this library's constructors in the place of another, which it calls once it is switched off.

    A class, since the type of a thing is the one trait that wrappers, which copy names and attributes, do not share.
    """

    switched_on = False

    def __init__(self, name: str, beneath: Callable[..., grpc.aio.Channel]) -> None:
        ours = getattr(channel, name)
        functools.update_wrapper(self, ours)  # tracing libraries look at the name
        self._ours = ours
        self.beneath = beneath

    def __call__(self, *args: Any, **kwargs: Any) -> grpc.aio.Channel:
        # An interceptor channel being made has come through whatever is wrapped around this. It belongs to grpc, and to
        # whatever this is wrapped around.
        if not _Substitute.switched_on or front.is_being_made():
            return self.beneath(*args, **kwargs)
        with front.made_by(self.beneath):  # what is wrapped around this has been called already
            made: grpc.aio.Channel = self._ours(*args, **kwargs)
        return made


def is_substituted() -> bool:
    """Return whether `substitute` was called, and `restore` was not since."""
    return _Substitute.switched_on


def substitute() -> None:
    """Put this library's constructors in the place of what stands under grpc's names, unless they are there."""
    with _lock:
        _Substitute.switched_on = True
        for module in _modules():
            for name in _NAMES:
                present = getattr(module, name)
                if type(present) is not _Substitute:
                    setattr(module, name, _Substitute(name, present))


def restore() -> None:
    """Switch the substitutes off, and take away those that nobody has wrapped since."""
    with _lock:
        _Substitute.switched_on = False
        for module in _modules():
            for name in _NAMES:
                while type(present := getattr(module, name)) is _Substitute:
                    setattr(module, name, present.beneath)


def _modules() -> list[ModuleType]:
    return [importlib.import_module(name) for name in _MODULES]
