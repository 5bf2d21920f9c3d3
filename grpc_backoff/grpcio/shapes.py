"""What this library uses of grpcio's private objects, and of the calls that grpcio returns; for type checkers only.

Nothing imports this module at run time. It says what a new release of grpcio has to be checked for.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, MutableSequence, Sequence
from threading import Condition
from typing import Protocol

import grpc

Pairs = Sequence[tuple[str, str | bytes]]
"""Metadata, as the core has it."""


class CoresChannel(Protocol):
    """The core's own channel, in one of grpcio's."""

    def check_connectivity_state(self, try_to_connect: bool, /) -> int:
        """Return the state as an integer; given True, dial."""

    def watch_connectivity_state(self, last: int, deadline: float, /) -> object:
        """Wait until the state of a threaded channel differs from `last`, or until the deadline, since the epoch."""

    def close(self, *code_and_details: object) -> object:
        """Close the channel; end a threaded channel's calls with this code and these details."""


class CoresStatus(Protocol):
    """The core's status of an asyncio call that has ended."""

    def code(self) -> int:
        """Return the number of the code."""

    def details(self) -> str | None:
        """Return what the status says in words."""

    def trailing_metadata(self) -> Pairs | None:
        """Return the trailing metadata."""

    def debug_error_string(self) -> str | None:
        """Return the core's own description."""


class AsyncioCoreCall(Protocol):
    """The core's call, in one of grpcio's asyncio calls."""

    _status: CoresStatus
    _initial_metadata: Pairs | None

    def done(self) -> bool:
        """Return whether the call has ended."""

    def cancelled(self) -> bool:
        """Return whether the call was cancelled, on either side."""

    def is_ok(self) -> bool:
        """Return whether the call ended with OK."""

    def is_locally_cancelled(self) -> bool:
        """Return whether this process cancelled the call."""

    def time_remaining(self) -> float | None:
        """Return the seconds until the deadline; None if there is no deadline."""

    def cancel(self, details: str, /) -> object:
        """End the call with CANCELLED and these details."""

    def add_done_callback(self, callback: Callable[[], object], /) -> object:
        """Call `callback` when the call has ended; at once if it already has."""

    async def status(self) -> CoresStatus:
        """Wait for the status."""


class CoreOperation(Protocol):
    """One operation of a batch."""

    def type(self) -> int:
        """Return its kind, one of the core's `OperationType`."""


class CoreEvent(Protocol):
    """Tells that a batch of operations has been completed."""

    batch_operations: Sequence[CoreOperation]
    tag: Callable[[CoreEvent], object]


class ThreadedCoreCall(Protocol):
    """The core's call, in one of grpcio's threaded calls."""

    def operate(self, operations: Iterable[object], handle: Callable[[CoreEvent], object], /) -> bool:
        """Start a batch of operations; return whether the call is still running."""

    def cancel(self, code: int, details: object, /) -> None:
        """End the call with this status, if it is still running."""

    def next_event(self) -> CoreEvent:
        """Wait for the next event of a call that grpcio's threads do not serve."""


class ThreadedState(Protocol):
    """The state of a threaded call, from its start to its end."""

    condition: Condition
    due: set[int]
    callbacks: MutableSequence[Callable[[], object]] | None
    initial_metadata: object
    trailing_metadata: object
    code: grpc.StatusCode | None
    details: str | bytes | None
    debug_error_string: str | bytes | None
    cancelled: bool
    response: object
    dropped: object


class BackgroundCall(grpc.RpcError):
    """A threaded call in the background: a future, or a stream of responses."""

    _call: ThreadedCoreCall
    _state: ThreadedState
    _response_deserializer: object

    @abstractmethod
    def __next__(self) -> object:
        """Return the next response of a stream."""

    @abstractmethod
    def add_callback(self, callback: Callable[[], object], /) -> bool:
        """Call `callback` when the call ends; return False, and do not, if it already has."""

    @abstractmethod
    def cancel(self) -> object:
        """Cancel the call."""

    @abstractmethod
    def done(self) -> bool:
        """Return whether the call has ended."""

    @abstractmethod
    def initial_metadata(self) -> Pairs | None:
        """Wait for the initial metadata."""


class ThreadedMethod(Protocol):
    """A method with one request, on one of grpcio's threaded channels."""

    _channel: SegregatingChannel
    _managed_call: Callable[..., object]


class SegregatingChannel(Protocol):
    """The core's channel that a multicallable has."""

    def segregated_call(self, *arguments: object) -> object:
        """Make a call whose events only its own thread takes."""
