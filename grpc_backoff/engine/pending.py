"""The base class of both APIs' queues of pending calls, which wait for a connection.

The calls are in a dictionary, whose single operations are atomic, without a lock, because a finalizer can make a call
wherever the garbage collector happens to run.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import grpc

from grpc_backoff.base.logs import Log
from grpc_backoff.base.status import ConnectionStatus, Stage
from grpc_backoff.config.target import shown_target
from grpc_backoff.decide.calls.call_machine import CancelRequested, ConnectionReady, Input, NoConnection
from grpc_backoff.decide.connections.shown import explain

if TYPE_CHECKING:
    from grpc_backoff.engine.gate import GatedConnection
    from grpc_backoff.grpcio.call_errors import NoConnectionError

_LOG = Log(__name__)
READY = ConnectionReady()
InputT_contra = TypeVar("InputT_contra", contravariant=True)


class Fed(Protocol[InputT_contra]):
    """A call of either API, or a subscription."""

    def feed(self, input_: InputT_contra) -> None:
        """Step the call's machine with an input. If threads share the calls, this is thread-safe and never blocks."""
        ...


AnyCall = Fed[Input]


class CallQueue:
    """A queue of pending calls, of which a pool may start some. This base class is empty, for a closed pool."""

    def __len__(self) -> int:
        """Return how many calls are pending."""
        return 0

    def release(self, most: float = math.inf, /) -> None:
        """Start pending calls, all or the first `most` of them (PO-14), because there is a connection."""

    def fail(self) -> None:
        """Fail the pending calls that do not survive a failed attempt (CH-3)."""


class Connections(Protocol):
    """A channel's part in a pool of connections, or the whole pool."""

    @property
    def waits_for_room(self) -> bool:
        """Whether a call that gets no connection waits for room (PO-14). Thread-safe."""
        ...

    @property
    def waits_for_answer(self) -> bool:
        """Whether a call that gets no connection waits until a peer shows that it is alive (LV-1). Thread-safe."""
        ...

    def status(self) -> ConnectionStatus:
        """Return what the channel is doing. Thread-safe."""
        ...

    def seek_another(self, connection: GatedConnection | None, status: int) -> None:
        """Seek another connection for a retry (RT-15); see `BasePool.seek_another`."""
        ...

    def refresh(self, why: str) -> None:
        """Replace every connection (PO-9). Thread-safe."""
        ...

    def reset(self) -> None:
        """Reset the backoff of every slot (CB-9, PO-4). Thread-safe."""
        ...


class PendingCalls(CallQueue):
    """One channel's pending calls, in order of arrival.

    Attributes:
        pool: the connection's pool, or a channel's share in it; set before the first call arrives.
    """

    pool: Connections
    no_connection_error: ClassVar[type[NoConnectionError]]
    """The `NoConnectionError` of this API."""

    def __init__(self, target: str, *, proxied: bool = False) -> None:
        self._target = target
        self._proxied = proxied
        self._resolved = self._lasting = False
        self._waiting: dict[Any, None] = {}  # calls of one API
        self._closed = False

    def __len__(self) -> int:
        """Return how many calls are pending."""
        return len(self._waiting)

    def no_connection(self) -> NoConnection:
        """Return the machine's input for a pending call when a dial fails."""
        return NoConnection(self._resolved, self._lasting)

    def add(self, call: AnyCall) -> None:
        """Keep the call alive until it is removed; cancel it if the channel was closed just before."""
        self._waiting[call] = None
        if self._closed:
            self._feed(call, CancelRequested())

    def discard(self, call: AnyCall) -> None:
        """Remove a call that has a connection or has ended."""
        self._waiting.pop(call, None)

    def fail(self) -> None:
        """Notify the pending calls of a failed dial, which only wait-for-ready calls survive (CH-3)."""
        self._note_error()
        for call in tuple(self._waiting):
            self._feed(call, self.no_connection())

    def cancel(self) -> None:
        """Cancel every pending call, and those that come later, because the channel is closing."""
        self._closed = True
        for call in tuple(self._waiting):
            self._feed(call, CancelRequested())

    def error(self, code: grpc.StatusCode) -> NoConnectionError:
        """Return the error of a call that got no connection (CH-4)."""
        pool, waited = self.pool, code is grpc.StatusCode.DEADLINE_EXCEEDED
        status = pool.status()
        asked, full = waited and pool.waits_for_answer, waited and pool.waits_for_room
        target, proxied = shown_target(self._target), self._proxied
        details = explain(target, status, waited=waited, proxied=proxied, asked=asked, full=full)
        return self._made(code, details, status)

    def _made(self, code: grpc.StatusCode, details: str, status: ConnectionStatus) -> NoConnectionError:
        """Return an error whose `debug_error_string` is a text in grpcio's form, in which programs search."""
        debug = f"{code.name}:{details}"
        return self.no_connection_error(code, details=details, debug_error_string=debug, status=status)

    def _note_error(self) -> None:
        if not self._resolved:
            error = self.pool.status().last_error
            self._lasting = error is not None and error.lasting
            self._resolved = error is not None and error.stage is not Stage.RESOLVE

    def _feed(self, call: AnyCall, input_: Input) -> None:
        """Feed an input to a call's machine; an exception removes the call, but must not keep the others waiting."""
        try:
            call.feed(input_)
        except Exception:  # noqa: BLE001 - a clock or a source of jitter, which the program may supply
            _LOG.exception("a step of a pending call raised")
            self.discard(call)
