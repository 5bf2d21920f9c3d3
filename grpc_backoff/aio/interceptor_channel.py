"""The interceptor channel: a channel of grpc's own that runs interceptors and never connects.

An intercepted call is made on the interceptor channel. The channel's interceptors are followed by this library's own,
which passes the call back to the multicallable that made it (`call_through`). The multicallable makes the call on the
real connection, so this channel's core never dials.

The first one is created through `grpc.aio`'s public names, because tracing libraries replace these with functions
that add interceptors. Those functions may lead back to this library: a program may have assigned
`grpc_backoff.aio.insecure_channel` to grpc's name, or called `grpc_backoff.install`. This module tracks which
constructor is running and ends such a cycle at grpcio's own class.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any

import grpc
import grpc.aio

from grpc_backoff.config.core_options import typed_pairs
from grpc_backoff.engine.method import Arguments
from grpc_backoff.grpcio.aio_private import GrpcioChannel, close_intercepted, constructors, core_channel
from grpc_backoff.grpcio.private import NOWHERE, UNSEEN, for_one_channel, inner_credentials

Constructor = Callable[..., grpc.aio.Channel]
Forward = Callable[[grpc.aio.ClientCallDetails, object], object]
Interceptors = Sequence[grpc.aio.ClientInterceptor]
Options = Sequence[tuple[str | bytes, object]]

_KINDS: Mapping[str, type] = {
    "unary_unary": grpc.aio.UnaryUnaryClientInterceptor,
    "unary_stream": grpc.aio.UnaryStreamClientInterceptor,
    "stream_unary": grpc.aio.StreamUnaryClientInterceptor,
    "stream_stream": grpc.aio.StreamStreamClientInterceptor,
}
LISTS = {arity: f"_{arity}_interceptors" for arity in _KINDS}
"""The names of the interceptor lists in a `grpc.aio.Channel`, by arity: private names, but clients change the lists."""

_FORWARD: ContextVar[Forward] = ContextVar("grpc_backoff_forward")

_MOST_ACCEPTED = 256
_accepted: dict[Hashable, None] = {}
"""The arguments that grpc has accepted, oldest first. Checking them again would create another core channel each time.
"""


class _Making(threading.local):
    """The constructor that is running in this thread. A constructor does not await, so no task can interfere."""

    chain: Interceptors | None = None
    within: bool = False


_making = _Making()


class InterceptorChannel:
    """One channel's interceptor channel, created when there are interceptors to run."""

    __slots__ = ("_channel", "_compression", "_options", "_target", "always", "credentials")

    def __init__(
        self,
        target: str,
        credentials: grpc.ChannelCredentials | None,
        options: Options,
        compression: grpc.Compression | None,
    ) -> None:
        self._target = target
        self.credentials = credentials
        self._options = (*UNSEEN, *options)
        self._compression = compression
        self._channel: grpc.aio.Channel | None = None
        self.always = False
        """Whether all calls use it, because another library has replaced grpc's channel class, and may change
        any call."""

    def open(self, interceptors: Interceptors | None) -> dict[str, list[Any]]:
        """Let grpc check the arguments and return the channel's initial interceptors, by arity.

        These are the caller's interceptors, and those that tracing libraries add at this point.
        """
        within, _making.within = _making.within, False
        make = getattr(constructors if within else grpc.aio, _name(self.credentials))
        known = None if interceptors else self._known_as(make)
        if known in _accepted:
            return {arity: [] for arity in LISTS}
        made = self._made_by(make, [*(interceptors or ()), *_LAST.values()])
        found = {arity: [one for one in _listed(made, arity) if one is not _LAST[arity]] for arity in LISTS}
        self.always = type(made) is not GrpcioChannel
        if self.always or any(found.values()):
            self._channel = made
        elif known is not None:
            _accepted[known] = None
            while len(_accepted) > _MOST_ACCEPTED:
                _accepted.pop(next(iter(_accepted)), None)
        return found

    def _made_by(self, make: Constructor, chain: Interceptors) -> grpc.aio.Channel:
        outer, _making.chain = _making.chain, chain
        security = () if self.credentials is None else (for_one_channel(self.credentials),)
        try:
            # Pass the interceptors by keyword, because that is where tracing libraries look for them.
            return make(
                self._target, *security, options=self._options, compression=self._compression, interceptors=chain
            )
        finally:
            _making.chain = outer

    def _known_as(self, make: Constructor) -> Hashable | None:
        """Return a key for the arguments that grpc checks; None if `make` may check anything else.

        Only grpc's own constructor is known to check nothing else.
        """
        if make is not getattr(constructors, _name(self.credentials)):
            return None
        options = typed_pairs(self._options)
        security = type(inner_credentials(self.credentials))
        return options and (make, constructors.Channel, self._target, security, options, self._compression)

    @property
    def is_open(self) -> bool:
        """Whether the interceptor channel exists."""
        return self._channel is not None

    @property
    def channel(self) -> grpc.aio.Channel:
        """The interceptor channel, which is created on first use."""
        if self._channel is None:
            self._channel = core_channel(self._target, self.credentials, self._options, self._compression)
        return self._channel

    def arrange(self, arity: str, interceptors: Sequence[object] | None) -> None:
        """Make the next call of this arity run through these interceptors and then through this library's own.

        This changes the list in place, because grpc's multicallables keep the list that their channel had when they
        were created.
        """
        _listed(self.channel, arity)[:] = [*(interceptors or ()), _LAST[arity]]

    async def close(self, grace: float | None) -> None:
        """Close the interceptor channel; calls still running after `grace` seconds are cancelled."""
        if self._channel is not None:
            await close_intercepted(self._channel, grace)


def is_being_made() -> bool:
    """Return whether this thread is creating an interceptor channel, so a requested channel must be grpc's own."""
    return _making.chain is not None


@contextlib.contextmanager
def made_within() -> Iterator[None]:
    """Create the next channel's interceptor channel without the wrappers in `grpc.aio`, which have led here."""
    _making.within = True
    try:
        yield
    finally:
        _making.within = False


def passed_on(interceptors: Interceptors | None) -> list[grpc.aio.ClientInterceptor]:
    """Return those interceptors that the interceptor channel being created has passed on.

    If this library's function is wrapped, the wrapper has already added its interceptors to the channel's, and adds
    them a second time when the creation of the interceptor channel leads back here; these copies are left out.
    """
    known = {id(one) for one in _making.chain or ()}
    return [one for one in interceptors or () if id(one) in known]


def channel_to_nowhere(credentials: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
    """Return a channel of grpc's own that never connects, for a call that grpc rejects."""
    return core_channel(NOWHERE, credentials, UNSEEN)


def _name(credentials: grpc.ChannelCredentials | None) -> str:
    return "insecure_channel" if credentials is None else "secure_channel"


def _listed(channel: grpc.aio.Channel, arity: str) -> list[object]:
    found: list[Any] = getattr(channel, LISTS[arity], [])  # another library's class may have none
    return found


# The last interceptor.


def call_through(
    method: Callable[..., grpc.aio.Call], request: object, arguments: Arguments, forward: Forward
) -> grpc.aio.Call:
    """Call a method of an interceptor channel; what its interceptors pass on goes to `forward`, which makes the call.

    They may have changed the details, and the request.
    """
    token = _FORWARD.set(forward)  # interceptors run in a task, which inherits this
    try:
        return method(request, **arguments._asdict())
    finally:
        _FORWARD.reset(token)


async def _forward(_last: object, _continuation: object, details: grpc.aio.ClientCallDetails, request: object) -> Any:
    call: Any = _FORWARD.get()(details, request)
    task = asyncio.current_task()
    assert task is not None, "an interceptor is a coroutine"
    task.add_done_callback(partial(_give_up, call))
    return call


def _give_up(call: grpc.aio.Call, task: asyncio.Task[object]) -> None:
    """Cancel a call whose interceptors were cancelled before they returned it: its caller cannot.

    Tracers await the call's status before they return it. With plain grpcio, such a call runs on at the server.
    """
    if task.cancelled():
        call.cancel()


_LAST: dict[str, grpc.aio.ClientInterceptor] = {
    arity: type("_Last", (kind,), {f"intercept_{arity}": _forward})() for arity, kind in _KINDS.items()
}
"""The last interceptor for each arity; four objects, because grpc registers each under one arity only."""
