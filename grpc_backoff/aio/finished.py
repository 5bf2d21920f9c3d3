"""How grpc's own calls end: waits for that, fails them, and makes finished ones release the core.

A grpc call object keeps the core's call alive, and the core's call keeps its channel alive. So if a program stores an
exception whose traceback refers to a call, a core channel that was closed long ago stays alive, and so does its
connection. If the channel's last attempt to connect failed, the channel even continues to dial on the core's schedule
(CB-1, CB-10).

Everything that a program can still ask of a finished call is known when the call ends, so `release_core` replaces the
core's call with an object that contains only that. It uses private names of grpcio for this: `_cython_call` and its
attributes. If a release of grpcio names them differently, the call is left unchanged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from grpc_backoff.aio.loops import until_done
from grpc_backoff.grpcio.aio_private import is_stand_in, status_of, unavailable
from grpc_backoff.grpcio.private import CANCELLED_DETAILS

if TYPE_CHECKING:
    from grpc_backoff.grpcio.shapes import AsyncioCoreCall, CoresStatus, Pairs

_POLL, _POLLS = 0.01, 25
"""How often, in seconds, and how many times to check for the server's status of a call whose write has failed."""


class _FinishedCall:
    """The data of a core call that has ended, under the names that grpc's call objects use."""

    _channel = None  # grpcio up to 1.7x reads this of all tasks' calls when it closes a channel

    def __init__(self, ended: AsyncioCoreCall) -> None:
        """Copy all data from a finished call."""
        self._status = ended._status  # noqa: SLF001 - see above
        self._initial_metadata = ended._initial_metadata  # noqa: SLF001
        self._locally_cancelled = ended.is_locally_cancelled()
        self._cancelled = ended.cancelled()
        self._ok = ended.is_ok()
        left = ended.time_remaining()
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

    async def status(self) -> CoresStatus:
        return self._status

    async def initial_metadata(self) -> Pairs | None:
        return self._initial_metadata

    async def receive_serialized_message(self) -> object:
        """Return EOF, because a call ends only after its messages have been read or dropped."""
        return grpc.aio.EOF


class FailableCall:
    """Stands in for the core's call of a call that this side ends because its peer is dead (PO-2).

    In the core, such a call is cancelled. This passes everything on to the core's call, but says UNAVAILABLE then.
    """

    __slots__ = ("_core", "_failed")

    def __init__(self, core: AsyncioCoreCall) -> None:
        self._core = core
        self._failed: CoresStatus | None = None

    def __getattr__(self, name: str) -> object:
        """Return what the core's call has."""
        return getattr(self._core, name)

    def __repr__(self) -> str:
        """Return the core's text, or how the call has failed."""
        return repr(self._core) if self._failed is None else f"<call that failed: {self._failed.details()}>"

    @property
    def _status(self) -> CoresStatus:
        return self._failed or self._core._status  # noqa: SLF001 - see above

    async def status(self) -> CoresStatus:
        """Wait for the end of the call; return its status."""
        status = await self._core.status()
        return self._failed or status

    def done(self) -> bool:
        """Return whether the call has ended: as soon as it fails, like a call that is cancelled."""
        return self._failed is not None or self._core.done()

    def cancelled(self) -> bool:
        """Return whether the call was cancelled, which a failed one was not."""
        return self._failed is None and self._core.cancelled()

    def is_locally_cancelled(self) -> bool:
        """Return the same for cancellation by this process."""
        return self._failed is None and self._core.is_locally_cancelled()

    def fail(self, details: str) -> None:
        """End the call as if its connection had been lost."""
        self._failed = unavailable(details)
        self._core.cancel(details)


def make_failable(call: Any) -> None:
    """Prepare a call that has just been made for `fail_call`."""
    call._cython_call = FailableCall(call._cython_call)  # noqa: SLF001


def fail_call(call: Any, details: str) -> None:
    """End a running call as if its connection had been lost; a finished call is left unchanged (PO-2).

    Code that already waits for the status of a call that was not prepared gets CANCELLED.
    """
    held: Any = getattr(call, "_cython_call", None)
    if held is None or isinstance(held, _FinishedCall) or held.done():
        return
    if not isinstance(held, FailableCall):
        make_failable(call)
    call._cython_call.fail(details)  # noqa: SLF001


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


async def wait_for_calls(calls: Iterable[grpc.aio.Call], within: float) -> None:
    """Wait until the calls have ended, up to `within` seconds."""
    running, ended = set(calls), asyncio.get_running_loop().create_future()

    def end(call: grpc.aio.Call) -> None:
        running.discard(call)
        if not running and not ended.done():
            ended.set_result(None)

    for call in tuple(running):
        call.add_done_callback(end)
    await until_done(ended, within=within)


async def release_cores(calls: Iterable[grpc.aio.Call]) -> None:
    """Make finished calls that are still referenced release the core's channel (CB-10).

    If a write to a call has failed, the call may have a status made by grpcio. The server's own status may follow, so
    this waits a moment for it.
    """
    left = [call for call in calls if not release_core(call)]
    for _ in range(_POLLS):
        if not left:
            return
        await asyncio.sleep(_POLL)
        left = [call for call in left if not release_core(call)]
    for call in left:
        release_core(call, stand_in=True)


def cancelled_here() -> grpc.aio.AioRpcError:
    """Return the status of a call that its own program has cancelled, as an error."""
    return grpc.aio.AioRpcError(
        grpc.StatusCode.CANCELLED, grpc.aio.Metadata(), grpc.aio.Metadata(), CANCELLED_DETAILS, ""
    )
