"""Access to grpcio's private parts: its own channel class, the core's channel inside it, and the state of a call.

This module depends on grpcio's internals, so it has to be checked with each release.
"""

from __future__ import annotations

import gc
import importlib
import threading
from collections.abc import Callable, Sequence
from copy import copy
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

import grpc
import grpc.experimental

from grpc_backoff.base.logs import Log
from grpc_backoff.base.threads import guard
from grpc_backoff.grpcio.channel_class import own_class
from grpc_backoff.grpcio.forks import core_stirred
from grpc_backoff.grpcio.private import NOWHERE, UNSEEN, Status, core_credentials, cygrpc

if TYPE_CHECKING:
    from grpc_backoff.grpcio import shapes

_LOG = Log(__name__)
GRPCIOS_LOG = Log("grpc._channel")
"""Where grpcio says that a program's callback has raised. Unless the program sets up logging, its lines go nowhere."""

constructors: Any = importlib.import_module("grpc._channel")
"""The module of grpcio's own class of channels and calls, and of the functions that create channels."""
_common: Any = importlib.import_module("grpc._common")

CLOSED_DETAILS = "Channel closed!"
"""The details that grpcio gives a call that was running when its channel was closed."""
FORKED_DETAILS = "Call cancelled in fork child"
"""The details that grpcio gives the copy that the child of a fork has of a running call."""
CLOSED_TEXT = "Cannot invoke RPC on closed channel!"
"""The text of the ValueError that grpcio raises for a call on a closed channel."""

GrpcioChannel: Any = own_class(grpc.Channel, "grpc._channel")
"""grpcio's own class of channels, which `install` replaces in its module."""
InactiveRpcError: Any = constructors._InactiveRpcError  # noqa: SLF001 - programs catch it by this name
Rendezvous: Any = constructors._MultiThreadedRendezvous  # noqa: SLF001
SingleThreadedRendezvous: Any = constructors._SingleThreadedRendezvous  # noqa: SLF001

Options = Sequence[tuple[str | bytes, object]]

inner_channel: Callable[[object], shapes.CoresChannel] = attrgetter("_channel")
"""Returns the core's own channel in one of grpcio's."""
_state: Callable[[object], Any] = attrgetter("_state")
_OK = grpc.StatusCode.OK  # up to Python 3.11, access to a member is slow

_PATIENCE = 0.02
"""How long to wait for a channel's lock, in seconds. Threads that merely begin calls release it sooner."""

_without_thread: WeakKeyDictionary[shapes.ThreadedMethod, shapes.ThreadedMethod] = WeakKeyDictionary()
_open: dict[int, tuple[str, grpc.Channel]] = {}


def core_channel(
    target: str, credentials: grpc.ChannelCredentials | None, options: Options, compression: grpc.Compression | None
) -> grpc.Channel:
    """Return a channel of grpcio's own class, even if tracing libraries have replaced the public functions."""
    core_stirred()
    channel: grpc.Channel = GrpcioChannel(target, tuple(options), core_credentials(credentials), compression)
    # A signal handler that raises could leave the core's channel locked, which would stop every thread that uses it.
    for held in _conditions(channel):
        guard(held)
    _open[id(channel)] = target, channel
    return channel


def _conditions(channel: grpc.Channel) -> list[threading.Condition]:
    """Return what the core's channel is locked with, whenever its state is read and while a call on it is begun."""
    held = gc.get_referents(*gc.get_referents(inner_channel(channel)))
    return [condition for condition in held if isinstance(condition, threading.Condition)]


class Lock:
    """The lock of a channel.

    A thread that begins a call holds it. If the peer refuses the call, grpcio's core may repeat it in that thread until
    its deadline (CB-16).
    """

    def __init__(self, channel: grpc.Channel) -> None:
        self._condition = next(iter(_conditions(channel)), threading.Condition())
        self._patience = _PATIENCE

    def read(self, check: Callable[[bool], int]) -> int | None:
        """Return what `check` returns of the channel; None if another thread has held the lock for long."""
        acquired = self._condition.acquire(timeout=self._patience)
        self._patience = _PATIENCE if acquired else 0.0  # once is enough until it is free again
        if not acquired:
            return None
        try:
            return check(False)
        finally:
            self._condition.release()


def state_check(channel: grpc.Channel) -> Callable[[bool], int]:
    """Return a function that returns a channel's state as the core's integer; given True, it makes the core dial.

    It raises ValueError once the channel is closed.
    """
    return inner_channel(channel).check_connectivity_state


def channel_to_nowhere() -> grpc.Channel:
    """Return a channel of grpcio's own class that never connects, for a call that grpcio rejects."""
    core_stirred()
    channel: grpc.Channel = GrpcioChannel(NOWHERE, UNSEEN, None, None)
    return channel


def close_channel(channel: grpc.Channel, condemned: str = "") -> None:
    """Close a channel created by `core_channel`, after waiting for its calls to be notified and for their callbacks.

    If its peer is dead, its calls end with UNAVAILABLE, and `condemned` says why.
    """
    if condemned:
        inner_channel(channel).close(cygrpc.StatusCode.unavailable, condemned)
    channel.close()
    _open.pop(id(channel), None)
    core_stirred()


def open_channels() -> list[tuple[str, grpc.Channel]]:
    """Return the channels created by `core_channel` that have not been closed, with their targets.

    Another thread may close such a channel at any time, so do not ask it for its target: that crashes the process.
    """
    return list(_open.values())


def forget_channels() -> list[grpc.Channel]:
    """Return the open channels and stop tracking them, because they belong to another process."""
    forgotten = [channel for _, channel in open_channels()]
    _open.clear()
    return forgotten


def is_single_threaded(options: Options) -> bool:
    """Return whether response streams are served only by the threads that read them."""
    option: str = grpc.experimental.ChannelOptions.SingleThreadedUnaryStream
    return constructors._DEFAULT_SINGLE_THREADED_UNARY_STREAM or any(key == option for key, _ in options)  # noqa: SLF001


def call_state(
    code: grpc.StatusCode | None = None,
    details: str | None = None,
    initial_metadata: object = None,
    trailing_metadata: object = None,
    debug_error_string: str | None = None,
) -> shapes.ThreadedState:
    """Return grpcio's state of a call that has ended with `code`, or of one that is still running."""
    state: shapes.ThreadedState = constructors._RPCState((), initial_metadata, trailing_metadata, code, details)  # noqa: SLF001
    state.debug_error_string = debug_error_string
    guard(state.condition)
    return state


def guard_call(call: shapes.BackgroundCall) -> None:
    """Keep a signal handler that raises from leaving a call locked, which would stop all calls of its channel."""
    guard(_state(call).condition)


def end_broken(call: shapes.BackgroundCall) -> None:
    """End a stream whose message could not be deserialized.

    grpcio only marks such a call as failed. It goes on, unread, until its deadline.
    """
    _end_if_broken(call._state, call._call)  # noqa: SLF001


def _end_if_broken(state: shapes.ThreadedState, core_call: shapes.ThreadedCoreCall) -> None:
    with state.condition:
        if state.code is not None and cygrpc.OperationType.receive_status_on_client in state.due:
            core_call.cancel(_common.STATUS_CODE_TO_CYGRPC_STATUS_CODE[state.code], state.details)


def end_broken_once_dropped(call: shapes.BackgroundCall) -> None:
    """Do what `end_broken` does once the program has dropped the call, as grpcio does with calls that still run."""
    state, core_call = call._state, call._call  # noqa: SLF001
    state.dropped = ref(call, lambda _: _end_if_broken(state, core_call))


def unavailable(details: str) -> grpc.RpcError:
    """Return the error of a call that has failed with UNAVAILABLE before it was made."""
    error: grpc.RpcError = InactiveRpcError(call_state(grpc.StatusCode.UNAVAILABLE, details, (), (), ""))
    return error


def error_of(call: object) -> grpc.RpcError:
    """Return the error of a call in the background that has failed, as a blocking call raises it."""
    error: grpc.RpcError = InactiveRpcError(_state(call))
    return error


def failed_call(error: object) -> shapes.BackgroundCall:
    """Return grpcio's own object for a call in the background that has ended with this error."""
    state = _state(error)
    state.callbacks = None
    call: shapes.BackgroundCall = Rendezvous(state, None, None, None)
    return call


class FailedStream(SingleThreadedRendezvous):  # type: ignore[misc] # grpcio's own class is Any here
    """A response stream without a thread of grpcio's that has failed before it was made; what reads it gets the error.

    `grpc.intercept_channel` hands interceptors something that is no call if the call raises instead.
    """

    def __init__(self, error: grpc.RpcError) -> None:
        """Take an error that has grpcio's state of a call."""
        super().__init__(_state(error), None, None, None)
        self._state.callbacks = None
        self._error = error.with_traceback(None)  # it refers to the frames that made the call, and so to the channel

    def exception(self, timeout: float | None = None) -> grpc.RpcError:  # noqa: ARG002 - it is there
        """Return the error."""
        return self._error

    def result(self, timeout: float | None = None) -> object:  # noqa: ARG002
        """Raise the error."""
        raise self._error

    _next = result


def status_of(call: object) -> Status:
    """Return the status of a finished call of grpcio's or of an error; never blocks, unlike grpcio's methods."""
    state = _state(call)
    return Status(
        state.code,
        _common.decode(state.details) or "",
        tuple(state.initial_metadata or ()),
        tuple(state.trailing_metadata or ()),
        _common.decode(state.debug_error_string) or "",
        state.cancelled,
        state.response,
    )


def failure_of(call: object) -> Status | None:
    """Return the status of a finished call of grpcio's as `status_of` does; None if it is OK, which costs less."""
    return None if _state(call).code is _OK else status_of(call)


def response_of(call: object) -> object:
    """Return the response of a finished call of grpcio's; never blocks."""
    return _state(call).response


def inherited_deadline() -> float | None:
    """Return the deadline of the inbound call being served, in seconds since the epoch; None if there is none."""
    ask = getattr(cygrpc, "get_deadline_from_context", None)
    return None if ask is None else ask()


def running_server_calls(server: grpc.Server) -> int:
    """Return how many calls a server of grpc is handling."""
    state = _state(server)
    with state.lock:
        return len(state.rpc_states)


def noticing_headers(method: Any, sent: Callable[[], object]) -> Any:
    """Return a unary method of grpcio's that calls `sent` when the headers of a call have been written.

    grpcio starts all operations of a call as one batch. Here, its headers are a batch of their own.
    """
    create = method._managed_call  # noqa: SLF001

    def split(*operations: Any) -> object:
        *before, ((headers, *others),), handle, context, registered = operations

        def handled(event: shapes.CoreEvent) -> object:
            if any(
                operation.type() == cygrpc.OperationType.send_initial_metadata for operation in event.batch_operations
            ):
                sent()
            return handle(event)

        return create(*before, ((headers,), tuple(others)), handled, context, registered)

    method._managed_call = split  # noqa: SLF001
    return method


def may_serve() -> bool:
    """Return whether threads may serve calls by `Events`: not with gevent. The main thread does not; see `workers`."""
    return not getattr(cygrpc, "g_gevent_activated", False)


def without_thread(method: shapes.ThreadedMethod) -> shapes.ThreadedMethod:
    """Return a unary method of grpcio's whose futures need no thread of grpcio's, because `Events` has their events."""
    own = _without_thread.get(method)
    if own is None:
        create = method._channel.segregated_call  # noqa: SLF001

        def made(*given: Any) -> object:
            *before, operations, handle, context, registered = given
            return create(*before, [*zip(operations, repeat(handle))], context, registered)

        own = _without_thread[method] = copy(method)
        own._managed_call = made  # noqa: SLF001
    return own


class Events:
    """The events of a future of `without_thread`. They are handled, which ends the call, by one thread at a time."""

    def __init__(self, call: shapes.BackgroundCall) -> None:
        self._future = call
        self._call = call._call  # noqa: SLF001
        self._state = call._state  # noqa: SLF001
        self._roused = self._taken = 0
        self._lock = threading.RLock()  # a finalizer may rouse
        self._over = False

    def handle(self) -> bool:
        """Wait until the call has ended, or `rouse` is called; return whether it has ended."""
        before = self._taken
        while self._state.due and self._taken == before:
            self._take()
        return self._has_ended()

    def look(self) -> bool:
        """Return whether the call has ended; does not wait, and ignores the response (TH-5a)."""
        self.rouse()
        ignore = constructors._event_handler(self._state, None)  # noqa: SLF001
        while self._state.due and self._taken < self._roused:
            self._take(ignore)
        return self._has_ended()

    def rouse(self) -> None:
        """End the current or next `handle`, by a batch without operations: the core completes it at once. Thread-safe.

        Cancelling the call would do so too, but the server would see that (HG-11).
        """
        with self._lock:
            if not self._over and self._call.operate((), self._note):
                self._roused += 1

    def drop(self) -> None:
        """Cancel the call and handle no more events, because `handle` was interrupted.

        If a signal handler raised while grpcio waited for an event, grpcio has released the core's call.
        """
        with self._lock:
            self._over = True
        self._future.cancel()
        self._state.due.clear()

    def _has_ended(self) -> bool:
        if self._state.due:
            return False
        with self._lock:
            self._over = True
        while self._taken < self._roused:  # the core keeps the call until all events have been taken
            self._take()
        return True

    def _take(self, instead: Callable[[shapes.CoreEvent], object] | None = None) -> None:
        event = self._call.next_event()
        handle = event.tag if instead is None or not event.batch_operations else instead
        handle(event)

    def _note(self, _event: object) -> None:
        self._taken += 1


def read_first(call: shapes.BackgroundCall, received: Callable[[object], object]) -> None:
    """Let grpcio's thread read the first message of a stream and call `received` with it; with None if there is none.

    The message is taken away from the call's iterator. This spares a thread that would wait for it.
    """
    state = call._state  # noqa: SLF001
    handle = constructors._event_handler(state, call._response_deserializer)  # noqa: SLF001

    def handled(event: shapes.CoreEvent) -> object:
        done = handle(event)
        with state.condition:
            message, state.response = state.response, None
        if message is None:
            end_broken(call)
        try:
            received(message)
        except Exception:  # noqa: BLE001 - it would end grpcio's thread
            _LOG.exception("a step of a call raised")
        return done

    with state.condition:
        reads = state.code is None
        if reads:
            state.due.add(cygrpc.OperationType.receive_message)
            reads = call._call.operate((cygrpc.ReceiveMessageOperation(0),), handled)  # noqa: SLF001
            if not reads:
                state.due.remove(cygrpc.OperationType.receive_message)
    if not reads:
        received(None)
