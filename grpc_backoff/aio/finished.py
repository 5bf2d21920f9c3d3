"""Makes finished calls release grpc's core.

A grpc call object keeps the core's call alive, and the core's call keeps its channel alive. So if a program stores an
exception whose traceback refers to a call, a core channel that was closed long ago stays alive, and so does its
connection. If the channel's last attempt to connect failed, the channel even continues to dial on the core's schedule
(CB-1, CB-10).

Everything that a program can still ask of a finished call is known when the call ends, so `release_core` replaces the
core's call with an object that contains only that. It uses private names of grpcio for this: `_cython_call` and its
attributes. If a release of grpcio names them differently, the call is left unchanged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grpc.aio

from grpc_backoff.aio.grpcio import is_stand_in, status_of, unavailable


class _FinishedCall:
    """The data of a core call that has ended, under the names that grpc's call objects use."""

    _channel = None  # grpcio up to 1.7x reads this of all tasks' calls when it closes a channel

    def __init__(self, ended: Any) -> None:
        """Copy all data from a finished call."""
        self._status = ended._status  # noqa: SLF001 - see above
        self._initial_metadata = ended._initial_metadata  # noqa: SLF001
        self._locally_cancelled: bool = ended.is_locally_cancelled()
        self._cancelled: bool = ended.cancelled()
        self._ok: bool = ended.is_ok()
        left: float | None = ended.time_remaining()
        self._deadline = None if left is None else time.monotonic() + left
        self._text = repr(ended)

    def __repr__(self) -> str:
        return self._text

    def done(self) -> bool:
        return True

    def cancelled(self) -> bool:
        return self._cancelled

    def is_ok(self) -> bool:
        return self._ok

    def is_locally_cancelled(self) -> bool:
        return self._locally_cancelled

    def cancel(self, _details: str) -> None:
        """Do nothing, because the call has ended."""

    def set_internal_error(self, _details: str) -> None:
        """Do nothing: if a write was in progress when the call ended, the status says why the write failed."""

    def time_remaining(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        callback()

    async def status(self) -> Any:
        return self._status

    async def initial_metadata(self) -> Any:
        return self._initial_metadata

    async def receive_serialized_message(self) -> Any:
        """Return EOF, because a call ends only after its messages have been read or dropped."""
        return grpc.aio.EOF


class _FailedCall(_FinishedCall):
    """The data of a core call that this side has ended because its peer is dead."""

    def __init__(self, running: Any, details: str) -> None:
        """Take over from a running call, whose status becomes UNAVAILABLE with these details."""
        super().__init__(running)
        self._status = unavailable(details)
        self._locally_cancelled = self._cancelled = self._ok = False


def fail_call(call: grpc.aio.Call, details: str) -> None:
    """End a running call as if its connection had been lost; a finished call is left unchanged (PO-2).

    In the core, the call is cancelled. grpcio would raise `CancelledError` for that, so it gets to see another status.
    """
    held: Any = getattr(call, "_cython_call", None)
    if held is None or isinstance(held, _FinishedCall) or held.done():
        return
    call._cython_call = _FailedCall(held, details)  # type: ignore[attr-defined]  # noqa: SLF001
    held.cancel(details)


def release_core(call: grpc.aio.Call, *, stand_in: bool = False) -> bool:
    """Make a finished call keep its outcome and release the core; a running call is left unchanged.

    Return False, and do nothing, if a write has failed and the server's status may still arrive. With `stand_in`, do
    not wait for the server's status, but keep the status that grpcio has given the call.
    """
    held: Any = getattr(call, "_cython_call", None)
    if held is None or isinstance(held, _FinishedCall) or not held.done():
        return True
    try:
        if not stand_in and is_stand_in(status_of(call)):
            return False
        finished = _FinishedCall(held)
    except AttributeError:
        return True
    call._cython_call = finished  # type: ignore[attr-defined]  # noqa: SLF001
    return True
