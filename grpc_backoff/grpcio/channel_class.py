"""grpcio's own classes of channels, and what takes their place in grpcio's modules (TH-7).

Other libraries put something of their own there, too, before this library or after it: SkyWalking's agent puts a class
that it derives from grpcio's for asyncio, and a function that wraps each channel for threads.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

Make = Callable[..., object]


def own_class(base: type, module: str) -> Any:
    """Return grpcio's own class of channels from this module, even if another library has put something in its place.

    `base` is the public class from which it is derived.
    """
    kinds: list[type] = base.__subclasses__()
    return next(kind for kind in kinds if (kind.__module__, kind.__qualname__) == (module, "Channel"))


class _Wrapping(threading.local):
    """What is to make the next channel of grpcio's own class in this thread; None if that class itself is."""

    make: Make | None = None


_wrapping = _Wrapping()


class ChannelClass:
    """What one of grpcio's modules has under the name `Channel`: its own class, or what has taken its place.

    Attributes:
        makes_ours: whether channels that are created by way of it are this library's.
    """

    makes_ours = False

    def __init__(self, module: Any, own: Any, ours: type, make: Make, passes: Callable[[], bool] | None = None) -> None:
        """Take the module, its own class, and this library's, which `make` makes from the arguments of the former.

        Programs check a channel's class by grpcio's private name, so that this library's channels count as its
        instances.

        Where channels have interceptors, `passes` says whether the one that is being created is what another library
        makes of them, and so is to be one of grpcio's. Otherwise, this library's channels are made within the functions
        that another library has put in the place.
        """
        self._module = module
        self._own = own
        self._kinds = {own, ours}
        self._make = make
        self._passes = passes
        self._stand_ins: dict[object, type] = {}
        """What this library puts there, by what was there before."""
        own.register(ours)

    def replace(self) -> None:
        """Make this library's channels from now on; harmless if it does."""
        self.makes_ours = True
        there = self._module.Channel
        if not (isinstance(there, type) and set(self._stand_ins.values()) & set(there.__mro__)):
            self._module.Channel = self._stand_ins.get(there) or self._stand_in_for(there)

    def restore(self) -> None:
        """Make what was made before `replace`."""
        self.makes_ours = False
        for before, stand_in in self._stand_ins.items():
            if self._module.Channel is stand_in:
                self._module.Channel = before

    def _stand_in_for(self, replaced: Any) -> type:
        """Return a class to put in the place of grpcio's own class, or of what another library has put there.

        It is derived from what it replaces, has the same signature, and all channels count as its instances, so that
        other libraries' derived classes and grpcio's own checks work as before.
        """
        here, module, own, kinds = self, self._module, self._own, self._kinds
        is_class = isinstance(replaced, type)

        class Substitute(replaced if is_class else own):  # type: ignore[misc] # grpcio's own class is Any here
            @classmethod
            def __subclasshook__(cls, other: type) -> bool:
                return not kinds.isdisjoint(other.__mro__) if cls in (Substitute, module.Channel) else NotImplemented

            def __new__(cls, *arguments: object, **named: object) -> Any:
                # A derived class that is not in the place is a program's own, whose instances are to be grpcio's.
                if cls in (Substitute, module.Channel) and here.makes_ours and not (here._passes and here._passes()):
                    make = here._make if is_class or here._passes else here._within(replaced)
                    return make(*arguments, **named)
                return replaced(*arguments, **named) if cls is Substitute else own.__new__(cls)

        _sign(Substitute.__new__, own)
        self._stand_ins[replaced] = Substitute
        return Substitute

    def _within(self, function: Make) -> Make:
        """Return the function, with this library's channel in the place of the one that it makes."""
        if "__new__" not in vars(self._own):
            self._own.__new__ = _new(self._own)

        def make(*arguments: object, **named: object) -> object:
            _wrapping.make = self._make
            try:
                return function(*arguments, **named)
            finally:
                _wrapping.make = None

        return make


def _new(own: Any) -> Make:
    """Return a `__new__` for grpcio's own class; it is never removed, because Python could not undo its effects."""

    def new(cls: Any, *arguments: object, **named: object) -> object:
        make = _wrapping.make if cls is own else None
        if make is None:
            return object.__new__(cls)
        _wrapping.make = None  # this library's channel makes some of grpcio's
        return make(*arguments, **named)

    _sign(new, own)
    return new


def _sign(new: Any, own: Any) -> None:
    """Let a `__new__` show the parameters of grpcio's own class."""
    new.__signature__ = inspect.signature(own.__init__)
