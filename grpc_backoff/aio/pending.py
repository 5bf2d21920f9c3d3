"""The queue of pending calls, which wait for a connection."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

import grpc

from grpc_backoff.aio.errors import NoConnectionError
from grpc_backoff.calls.machine import CancelRequested, ConnectionReady, Input, Missed, NoConnection, NotConnected
from grpc_backoff.config.target import shown_target
from grpc_backoff.connection.events import ConnectionStatus, Stage
from grpc_backoff.connection.no_connection import explain

if TYPE_CHECKING:
    from grpc_backoff.aio.call import Call

_LOG = logging.getLogger(__name__)
_READY, _WAITS = ConnectionReady(), NotConnected()


class Manager(Protocol):
    """What the queue needs from the connection's manager."""

    def status(self) -> ConnectionStatus:
        """Return the channel's status."""
        ...

    def want(self) -> bool:
        """Ask for a connection; return whether the channel is in TRANSIENT_FAILURE."""
        ...


class PendingCalls:
    """One channel's pending calls, in order of arrival."""

    def __init__(self, target: str, loop: asyncio.AbstractEventLoop) -> None:
        """Start empty; `manager` is set before the first call arrives."""
        self.manager: Manager
        self._target = target
        self._loop = loop
        self._resolved = False
        self._waiting: dict[Call, None] = {}
        self._emptied: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        """Return how many calls are pending."""
        return len(self._waiting)

    def not_connected(self) -> NotConnected:
        """Ask for a connection; return the machine's input for an attempt that finds none.

        If the key is in backoff, its last failure also applies to calls that ask for a connection now (SH-3).
        """
        if not self.manager.want():
            return _WAITS
        self._note_resolved()
        return NotConnected(failing=True, resolved=self._resolved)

    def no_connection(self) -> NoConnection:
        """Return the machine's input for a pending call when a dial fails."""
        return NoConnection(resolved=self._resolved)

    def add(self, call: Call) -> None:
        """Store the call, and keep it alive, until it is removed."""
        self._waiting[call] = None

    def _note_resolved(self) -> None:
        error = self.manager.status().last_error
        self._resolved = self._resolved or (error is not None and error.stage is not Stage.RESOLVE)

    def discard(self, call: Call) -> None:
        """Remove a call that has a connection or has ended."""
        self._waiting.pop(call, None)
        if self._emptied is not None and not self._waiting and not self._emptied.done():
            self._emptied.set_result(None)

    def release(self) -> None:
        """Start all pending calls, as long as the connection stays up."""
        self._resolved = True
        waiting = tuple(self._waiting)
        for turn, call in enumerate(waiting):
            self._feed(call, _READY)
            if call in self._waiting:  # the connection was lost before the call could use it
                for other in waiting[turn + 1 :]:
                    self._feed(other, Missed())
                return

    def fail(self) -> None:
        """Notify the pending calls of a failed dial, which only wait-for-ready calls survive (CH-3)."""
        self._note_resolved()
        for call in tuple(self._waiting):
            self._feed(call, self.no_connection())

    def cancel(self) -> None:
        """Cancel every pending call, because the channel is closing."""
        for call in tuple(self._waiting):
            self._feed(call, CancelRequested())

    async def emptied(self, within: float) -> None:
        """Wait until no call is pending, up to `within` seconds."""
        if self._waiting:
            self._emptied = self._loop.create_future()
            await asyncio.wait([self._emptied], timeout=within)

    def error(self, code: grpc.StatusCode) -> NoConnectionError:
        """Return the error of a call that got no connection (CH-4)."""
        status = self.manager.status()
        details = explain(shown_target(self._target), status, waited=code is grpc.StatusCode.DEADLINE_EXCEEDED)
        return NoConnectionError(code, details=details, status=status)

    def _feed(self, call: Call, given: Input) -> None:
        """Feed an input to a call's machine; an exception removes the call, but must not keep the others waiting."""
        try:
            call.feed(given)
        except Exception:  # noqa: BLE001 - a clock or a source of jitter, which the program may supply
            _LOG.exception("a step of a pending call raised")
            self.discard(call)
