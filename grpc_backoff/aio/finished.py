"""Makes finished calls release grpc's core.

A grpc call object holds the core's call as long as it lives, and the core's call holds its channel. So an exception in
a variable, whose traceback refers to a call, keeps a core channel alive that was closed long ago: with its connection
if it has one, and dialling on the core's own schedule if its last attempt failed (CB-1, CB-10).

Everything that a program can still ask of a finished call is known when the call ends. `let_go` replaces the core's
call with that. It needs private names of grpcio, `_cython_call` and what is behind it; if a release of grpcio has
others, the call stays as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grpc.aio

from grpc_backoff.aio.grpcio import is_stand_in, status_of

__all__ = ["let_go"]


class _FinishedCall:
    """What remains of a core call at its end, under the names that grpc's call objects use."""

    _channel = None  # up to 1.7x, grpcio reads this of the calls of all tasks when it closes any channel

    def __init__(self, ended: Any) -> None:
        """Read everything from a finished call."""
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
        """Do nothing: the call has ended."""

    def set_internal_error(self, _details: str) -> None:
        """Do nothing: a write in progress at the end has failed, and the status says why."""

    def time_remaining(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def add_done_callback(self, callback: Callable[[], object]) -> None:
        callback()

    async def status(self) -> Any:
        return self._status

    async def initial_metadata(self) -> Any:
        return self._initial_metadata

    async def receive_serialized_message(self) -> Any:
        """Return the end: a call does not end before its messages are read, unless they were dropped."""
        return grpc.aio.EOF


def let_go(call: grpc.aio.Call, *, stand_in: bool = False) -> bool:
    """Make a finished call keep its outcome and release the core; a running call is left alone.

    Returns False, and does nothing, if a write has failed and the server's status may still arrive; with `stand_in`,
    grpcio's own status for that is kept.
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
