"""The replacement of `grpc`'s constructors by `grpc_backoff.install`, and its reversal (TH-7).

Tracing libraries replace the constructors too. Their functions call the constructor that they found, and put
interceptors in front of the channel. If such a function was installed first, it is still called, and grpc's own channel
behind its interceptors is replaced with this library's.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import grpc

from grpc_backoff.sync import channel
from grpc_backoff.sync.grpcio import is_grpcios_own

_NAMES = ("insecure_channel", "secure_channel")
_MODULES = ("grpc",)

_lock = threading.Lock()


class _ThreadedSubstitute:
    """Replaces a constructor with one of this library's; once it is turned off, it calls the original.

    It is a class because its type identifies it: wrappers copy the names and attributes of the object that they wrap,
    but not its type.
    """

    switched_on = False

    def __init__(self, name: str, beneath: Callable[..., grpc.Channel]) -> None:
        ours = getattr(channel, name)
        functools.update_wrapper(self, ours)  # tracing libraries check the name
        self._ours = ours
        self.beneath = beneath

    def __call__(self, *args: Any, **kwargs: Any) -> grpc.Channel:
        if not _ThreadedSubstitute.switched_on:
            return self.beneath(*args, **kwargs)
        made: grpc.Channel = self._ours(*args, **kwargs)
        return _behind(self.beneath(*args, **kwargs), made)


def _behind(theirs: Any, ours: grpc.Channel) -> grpc.Channel:
    """Return the wrappers of tracing libraries, with this library's channel in them instead of grpc's."""
    if is_grpcios_own(theirs):
        theirs.close()
        return ours
    innermost = theirs
    while not is_grpcios_own(getattr(innermost, "_channel", None)):
        innermost = getattr(innermost, "_channel", None)
        if innermost is None:  # an unknown kind of channel from another library
            return ours
    innermost._channel.close()  # noqa: SLF001 - where `grpc.intercept_channel` and its imitators keep it
    innermost._channel = ours  # noqa: SLF001
    return theirs  # type: ignore[no-any-return]


def is_substituted() -> bool:
    """Return whether the replacements are turned on."""
    return _ThreadedSubstitute.switched_on


def substitute() -> None:
    """Replace grpc's constructors with this library's, unless they are replaced already."""
    with _lock:
        _ThreadedSubstitute.switched_on = True
        for module in _modules():
            for name in _NAMES:
                present = getattr(module, name)
                if type(present) is not _ThreadedSubstitute:
                    setattr(module, name, _ThreadedSubstitute(name, present))


def restore() -> None:
    """Turn the replacements off, and remove those that have not been wrapped in the meantime."""
    with _lock:
        _ThreadedSubstitute.switched_on = False
        for module in _modules():
            for name in _NAMES:
                while type(present := getattr(module, name)) is _ThreadedSubstitute:
                    setattr(module, name, present.beneath)


def _modules() -> list[ModuleType]:
    return [importlib.import_module(name) for name in _MODULES]
