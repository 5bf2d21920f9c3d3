"""The front: a channel of grpc's own that never connects, on which the interceptors run.

An intercepted call is made on the front. Behind the channel's interceptors stands one of ours (`calls.py`), which makes
the call on the real connection, so the front's core never dials.

The first front comes from `grpc.aio`'s public names, since tracing libraries put their own functions there and add
interceptors on the way. Those functions may lead back to this library: somebody may have assigned
`grpc_backoff.aio.insecure_channel` to that name, or called `grpc_backoff.install`. This module keeps track of which
constructor is at work, so that such a circle ends at grpc's own.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio

__all__ = ["LISTS", "Front", "genuine", "is_being_made", "made_by"]

Constructor = Callable[..., grpc.aio.Channel]
Interceptors = Sequence[grpc.aio.ClientInterceptor]

LISTS: Mapping[str, str] = {
    "unary_unary": "_unary_unary_interceptors",
    "unary_stream": "_unary_stream_interceptors",
    "stream_unary": "_stream_unary_interceptors",
    "stream_stream": "_stream_stream_interceptors",
}
"""The lists of interceptors of a `grpc.aio.Channel`, by arity. They are private by name only: clients change them."""

_grpc: Any = importlib.import_module("grpc.aio._channel")


class _Making(threading.local):
    """Which constructor is at work in this thread. A constructor does not await, so no task can come in between."""

    chain: Interceptors | None = None
    beneath: Constructor | None = None


_making = _Making()


class Front:
    """The front of one channel. It is kept only where something intercepts, and made anew if that comes later."""

    def __init__(
        self,
        target: str,
        credentials: grpc.ChannelCredentials | None,
        options: Sequence[tuple[str, Any]],
        compression: grpc.Compression | None,
        interceptors: Interceptors | None,
        last: Mapping[str, grpc.aio.ClientInterceptor],
    ) -> None:
        """Have grpc check the arguments, and find out which interceptors there are: tracing libraries add theirs here.

        `last` holds our own interceptors by arity.
        """
        self._name, self._arguments = _call(target, credentials)
        self._keywords = {"options": options, "compression": compression}
        self._last = last
        made = self._first([*(interceptors or ()), *last.values()])
        self.interceptors: dict[str, list[Any]] = {
            arity: [one for one in _listed(made, arity) if one is not last[arity]] for arity in LISTS
        }
        """What intercepts from the start, by arity."""
        self.always = type(made) is not _grpc.Channel
        """Whether something has put a channel class of its own in place of grpc's, which may do anything to a call."""
        self._channel = made if self.always or any(self.interceptors.values()) else None

    def _first(self, chain: Interceptors) -> grpc.aio.Channel:
        make, _making.beneath = _making.beneath or getattr(grpc.aio, self._name), None
        outer, _making.chain = _making.chain, chain
        try:
            # The interceptors by keyword: that is where tracing libraries look for them.
            made: grpc.aio.Channel = make(*self._arguments, **self._keywords, interceptors=chain)
        finally:
            _making.chain = outer
        return made

    @property
    def channel(self) -> grpc.aio.Channel:
        """The front itself, made now if nobody needed it before."""
        if self._channel is None:
            self._channel = getattr(_grpc, self._name)(*self._arguments, **self._keywords)
        channel: grpc.aio.Channel = self._channel
        return channel

    def arrange(self, arity: str, interceptors: Sequence[Any] | None) -> None:
        """Have the next call of this arity run through these interceptors, and then through ours.

        In place: grpc's multicallables keep the list that stood on their channel when they were made.
        """
        _listed(self.channel, arity)[:] = [*(interceptors or ()), self._last[arity]]

    async def close(self, grace: float | None) -> None:
        """Close it; intercepted calls still running after `grace` seconds are cancelled."""
        if self._channel is not None:
            await self._channel.close(grace)


def is_being_made() -> bool:
    """Return whether this thread is making a front: whoever is asked for a channel then has to pass it on to grpc."""
    return _making.chain is not None


@contextlib.contextmanager
def made_by(constructor: Constructor) -> Iterator[None]:
    """Have the front of the next channel made by this constructor, not by what stands in `grpc.aio`."""
    _making.beneath = constructor
    try:
        yield
    finally:
        _making.beneath = None


def genuine(
    target: str,
    credentials: grpc.ChannelCredentials | None,
    options: Any,
    compression: grpc.Compression | None,
    interceptors: Interceptors | None,
) -> grpc.aio.Channel:
    """Return grpc's own channel, for a front whose making has come back to this library.

    Whoever wraps this library's function has put its interceptors before the ones of the channel already; what it adds
    a second time is left out.
    """
    known = {id(one) for one in _making.chain or ()}
    chain = [one for one in interceptors or () if id(one) in known]
    name, arguments = _call(target, credentials)
    channel: grpc.aio.Channel = getattr(_grpc, name)(*arguments, options, compression, chain)
    return channel


def _call(target: str, credentials: grpc.ChannelCredentials | None) -> tuple[str, tuple[Any, ...]]:
    """Return the name of grpc's constructor, and its first arguments."""
    return ("insecure_channel", (target,)) if credentials is None else ("secure_channel", (target, credentials))


def _listed(channel: grpc.aio.Channel, arity: str) -> list[Any]:
    found: list[Any] = getattr(channel, LISTS[arity], [])  # a class of somebody's own may have none
    return found
