"""Grpcio's private names that only asyncio channels use: its modules, its poller, and what its channels and calls hold.

Each was checked with grpcio 1.63 and 1.85. `finished.py`, which stands in for one of grpcio's own objects, repeats some
of them; those that only one module needs are there.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import weakref
from collections.abc import Callable, Sequence
from copy import copy
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

import grpc
import grpc.aio

from grpc_backoff.grpcio.channel_class import own_class
from grpc_backoff.grpcio.forks import core_stirred
from grpc_backoff.grpcio.private import NOWHERE, UNSEEN, Status, core_credentials, cygrpc

if TYPE_CHECKING:
    from grpc_backoff.grpcio import shapes

constructors: Any = importlib.import_module("grpc.aio._channel")
"""The module of grpcio's own class of channels and the functions that create them."""

STATES = tuple(grpc.ChannelConnectivity)
"""The states of a channel, by the core's own numbers."""

GrpcioChannel: Any = own_class(grpc.aio.Channel, "grpc.aio._channel")
"""grpcio's own class of channels, which `install` replaces in its module."""

SHUTDOWN_NUMBER: int = grpc.ChannelConnectivity.SHUTDOWN.value[0]
READY_NUMBER: int = grpc.ChannelConnectivity.READY.value[0]
"""READY, as the integer that grpcio's core uses."""

core_call: Callable[[object], shapes.AsyncioCoreCall] = attrgetter("_cython_call")
"""Returns the core's call in one of grpcio's own calls. Implemented in C, because it runs for every call.

`core_call(call).is_ok()` says whether a finished call ended with OK; the public way is a coroutine."""
_core_of: Callable[[object], shapes.CoresChannel] = attrgetter("_channel")

_WRITE_FAILED = 'Failed "execute_batch"'
_CODES = {code.value[0]: code for code in grpc.StatusCode}


def core_channel(
    target: str,
    credentials: grpc.ChannelCredentials | None,
    options: Sequence[tuple[str | bytes, object]],
    compression: grpc.Compression | None = None,
    interceptors: Sequence[grpc.aio.ClientInterceptor] | None = None,
) -> grpc.aio.Channel:
    """Return a channel of grpcio's own, even if tracing libraries have replaced the public functions or its class.

    grpcio makes methods only on instances of the class that is in its module.
    """
    there = constructors.Channel
    kind = there if isinstance(there, type) and not issubclass(GrpcioChannel, there) else GrpcioChannel
    made: grpc.aio.Channel = GrpcioChannel.__new__(kind)
    GrpcioChannel.__init__(made, target, options, core_credentials(credentials), compression, interceptors)
    return made


def state_check(channel: grpc.aio.Channel) -> Callable[[bool], int]:
    """Return a function that returns a channel's state as the core's integer; given True, it makes the core dial."""
    return _core_of(channel).check_connectivity_state


def close_unused(channel: grpc.aio.Channel) -> None:
    """Close a channel without calls; any thread may do so, and nothing is awaited."""
    _core_of(channel).close()
    core_stirred()


class Polling:
    """Keeps grpcio's poller and its core's threads running, which otherwise stop when the last channel is closed.

    Without this, a program that creates a channel for each request would start and stop them each time.
    """

    __slots__ = ("__weakref__", "_channel")

    _kept: ClassVar[weakref.ReferenceType[Polling] | None] = None

    def __init__(self) -> None:
        """Start them, unless they are running already, by creating a channel that never connects."""
        self._channel = core_channel(NOWHERE, None, UNSEEN)
        weakref.finalize(self, core_stirred).atexit = False  # the core shuts down once this is freed

    @classmethod
    def shared(cls) -> Polling:
        """Return the existing object if it is still referenced, or else a new one."""
        kept = None if cls._kept is None else cls._kept()
        if kept is None:
            kept = cls()
            cls._kept = weakref.ref(kept)
        return kept


class _Intercepted:
    """A call whose interceptors may have returned something else for it, such as an asynchronous generator.

    grpcio then fails to close its channel, because that has no `done` or `cancel`.
    """

    def __init__(self, call: grpc.aio.Call) -> None:
        self._call = call
        self.code = call.code

    def done(self) -> bool:
        try:
            return self._call.done()
        except Exception:  # noqa: BLE001 - of whatever it is
            return True

    def cancel(self) -> None:
        with contextlib.suppress(Exception):
            self._call.cancel()


async def close_intercepted(channel: Any, grace: float | None) -> None:
    """Close a channel with interceptors; calls still running after `grace` seconds are cancelled."""
    if hasattr(channel, "_active_calls"):  # not in grpcio 1.63, nor in other libraries' classes
        channel._active_calls = {_Intercepted(call) for call in channel._active_calls}  # noqa: SLF001
    await channel.close(grace)


def unavailable(details: str) -> shapes.CoresStatus:
    """Return the status UNAVAILABLE with these details, as grpcio's calls keep it."""
    made: shapes.CoresStatus = cygrpc.AioRpcStatus(grpc.StatusCode.UNAVAILABLE.value[0], details, (), None)
    return made


def is_cancelled_here(call: object) -> bool:
    """Return whether this process cancelled one of grpcio's own calls; CANCELLED may also come from a server."""
    return core_call(call).is_locally_cancelled()


def wake_writers(call: Any) -> None:
    """Let what waits until one of grpcio's own calls has been sent, such as a write, go on once that call has ended.

    grpcio leaves it waiting if the call is cancelled before then.
    """
    core_call(call).add_done_callback(call._metadata_sent.set)  # noqa: SLF001


def code_of(call: object) -> str:
    """Return the name of the code of one of grpcio's own finished calls; its whole status costs ten times as much."""
    return _CODES[core_call(call)._status.code()].name  # noqa: SLF001


def details_of(call: object) -> str:
    """Return the details of the status of one of grpcio's own finished calls."""
    return core_call(call)._status.details() or ""  # noqa: SLF001


def raw_status(call: object) -> Status:
    """Return the status of one of grpcio's own finished calls, with metadata as grpcio's core passes it on.

    That costs a third of `status_of`.
    """
    core = core_call(call)
    status = core._status  # noqa: SLF001
    initial = core._initial_metadata  # noqa: SLF001
    details, debug = status.details() or "", status.debug_error_string()
    return Status(_CODES[status.code()], details, initial, status.trailing_metadata(), debug)


def status_of(call: object) -> grpc.aio.AioRpcError:
    """Return the status of one of grpcio's own finished calls as an error, even if it is OK."""
    status = raw_status(call)
    return grpc.aio.AioRpcError(
        status.code,
        grpc.aio.Metadata.from_tuple(status.initial_metadata or ()),
        grpc.aio.Metadata.from_tuple(status.trailing_metadata or ()),
        status.details,
        status.debug_error_string or "",
    )


def anew(error: grpc.aio.AioRpcError) -> grpc.aio.AioRpcError:
    """Return a copy of an error, which has not been raised.

    A raised error refers to the frame that raised it, and so to the call that stores the error. Such a cycle would keep
    the channel alive until the next garbage collection (CB-10).
    """
    fresh = copy(error)
    fresh.__cause__ = error.__cause__
    return fresh


def is_stand_in(error: BaseException) -> bool:
    """Return whether this is grpcio's own status for a call whose write failed; it may hide the server's status."""
    return (
        isinstance(error, grpc.aio.AioRpcError)
        and error.code() is grpc.StatusCode.INTERNAL
        and (error.debug_error_string() or "").startswith(_WRITE_FAILED)
    )


def has_stand_in(core: shapes.AsyncioCoreCall) -> bool:
    """Return whether a call of the core has ended with such a status."""
    return (core._status.debug_error_string() or "").startswith(_WRITE_FAILED)  # noqa: SLF001


def running_server_calls(loop: asyncio.AbstractEventLoop) -> int:
    """Return how many calls the grpc.aio servers of an event loop are handling; grpcio has a task for each."""
    coroutines = (task.get_coro() for task in asyncio.all_tasks(loop))
    return sum(getattr(coroutine, "__name__", "") == "_schedule_rpc_coro" for coroutine in coroutines)
