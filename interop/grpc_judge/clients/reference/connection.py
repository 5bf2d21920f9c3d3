"""The reference client's HTTP/2 connection: the preface, the server's SETTINGS, and calls."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import cast

from h2.config import H2Configuration
from h2.connection import ConnectionInputs, ConnectionState, H2Connection, H2ConnectionStateMachine
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError

from grpc_judge.clients.peer_program import CALL_ID, METHOD, CallFailed
from grpc_judge.clients.reference.habits import Habits

_NO_MESSAGE = bytes(5)
_UNAVAILABLE = b"14"
_TYPE, _TYPE_END, _SETTINGS = 3, 4, b"\x04"
"""Where a frame's type begins and ends, and the type of SETTINGS, the first frame of every HTTP/2 server."""
_SETTINGS_ACK = b"\x00\x00\x00\x04\x01\x00\x00\x00\x00"


class NotTakenError(Exception):
    """The server did not process the call, so it may be repeated."""


class _StateMachine(H2ConnectionStateMachine):
    """Keeps a connection open after GOAWAY, which h2 would not: accepted calls may finish (RFC 9113, 6.8)."""

    _transitions = H2ConnectionStateMachine._transitions | {  # noqa: SLF001 - h2 has no public way
        (ConnectionState.CLIENT_OPEN, ConnectionInputs.RECV_GOAWAY): (None, ConnectionState.CLIENT_OPEN)
    }


class Connection(asyncio.Protocol):
    """An HTTP/2 connection.

    Attributes:
        ready: completes when the server's SETTINGS arrive; has an exception if they do not.
        ended: completes with the reason when the connection closes, or when it drains and takes no new calls.
        heard: called whenever bytes arrive.
        served: whether the server has answered a call, with any status.
        paid: whether it has answered one with another status than UNAVAILABLE.
    """

    def __init__(self, habits: Habits) -> None:
        """Create the protocol; asyncio then connects it to a transport."""
        loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self._h2.state_machine = _StateMachine()
        self._habits = habits
        self._calls: dict[int, asyncio.Future[None]] = {}
        self._status: dict[int, bytes] = {}
        self._reason = "closed"
        self.ready: asyncio.Future[None] = loop.create_future()
        self.ready.add_done_callback(_heed)
        self.ended: asyncio.Future[str] = loop.create_future()
        self.heard: Callable[[], object] = lambda: None
        self.served = False
        self.paid = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the client preface without waiting for the server."""
        self._transport = cast("asyncio.Transport", transport)
        self._h2.initiate_connection()
        self._send()

    def data_received(self, data: bytes) -> None:
        """Process bytes from the server."""
        self.heard()
        if not self.ready.done() and data[_TYPE:_TYPE_END] not in {b"", _SETTINGS}:
            self._reason = "garbage"
            self.abort()
            return
        try:
            events = self._h2.receive_data(data)
        except ProtocolError:
            self._reason = "garbage"
            self.abort()
            return
        for event in events:
            self._take(event)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail every call that has no answer yet."""
        if isinstance(exc, ConnectionResetError):
            self._reason = "reset"
        self._end(self._reason)
        for call in self._calls.values():
            if not call.done():
                call.set_exception(CallFailed("UNAVAILABLE"))
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(self._reason))

    async def call(self, headers: list[tuple[str, str]]) -> None:
        """Make a call with these headers.

        Raises:
            NotTakenError: the server did not process the call.
            CallFailed: the call failed.
        """
        try:
            stream = self._h2.get_next_available_stream_id()
            self._h2.send_headers(stream, headers)
            self._h2.send_data(stream, _NO_MESSAGE, end_stream=True)
        except ProtocolError as error:
            raise NotTakenError from error
        self._calls[stream] = asyncio.get_running_loop().create_future()
        self._send()
        try:
            await self._calls[stream]
        except asyncio.CancelledError:
            with contextlib.suppress(ProtocolError):
                self._h2.reset_stream(stream, ErrorCodes.CANCEL)
                self._send()
            raise
        finally:
            del self._calls[stream]
            self._close_if_idle()

    def abort(self) -> None:
        """Close the connection immediately."""
        if self._transport is not None:
            self._transport.abort()

    def _take(self, event: Event) -> None:
        match event:
            case RemoteSettingsChanged() if not self.ready.done():
                self.ready.set_result(None)
            case DataReceived(stream_id=stream, flow_controlled_length=length):
                self._h2.acknowledge_received_data(length, stream)
            case (
                ResponseReceived(stream_id=stream, headers=headers)
                | TrailersReceived(stream_id=stream, headers=headers)
            ):
                self._status[stream] = dict(headers).get(b"grpc-status", b"")
            case StreamEnded(stream_id=stream):
                self.served = True
                status = self._status.pop(stream, b"")
                self.paid = self.paid or status != _UNAVAILABLE
                failed = CallFailed("UNAVAILABLE" if status == _UNAVAILABLE else "UNKNOWN")
                self._settle(stream, None if status == b"0" else failed)
            case StreamReset(stream_id=stream, error_code=code):
                refused = code == ErrorCodes.REFUSED_STREAM
                self._settle(stream, NotTakenError() if refused else CallFailed("INTERNAL"))
            case ConnectionTerminated(last_stream_id=last, error_code=code):
                self._reason = "goaway" if code else "drained"
                self._taken_leave_of(last or 0)

    def _taken_leave_of(self, last: int) -> None:
        """Handle a GOAWAY: calls above `last` were not processed."""
        if last and not self._habits.heeds_goaway:
            return
        self._end(self._reason)
        for stream in list(self._calls):
            if stream > last or self._habits.repeats_running:
                self._settle(stream, NotTakenError())
            elif self._habits.ends_running:
                self._settle(stream, CallFailed("UNAVAILABLE"))
        self._close_if_idle()

    def _settle(self, stream: int, error: Exception | None) -> None:
        call = self._calls.get(stream)
        if call is None or call.done():
            return
        if error is None:
            call.set_result(None)
        else:
            call.set_exception(error)

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)

    def _close_if_idle(self) -> None:
        if self.ended.done() and not any(not call.done() for call in self._calls.values()):
            self.close()

    def close(self) -> None:
        """Close the connection with FIN."""
        if self._transport is not None:
            self._transport.close()

    def _send(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            data = self._h2.data_to_send()
            self._transport.write(data if self._habits.acknowledges else data.replace(_SETTINGS_ACK, b""))


def _heed(outcome: asyncio.Future[None]) -> None:
    """Retrieve the exception of a future that may have no waiter, so that asyncio does not log it."""
    if not outcome.cancelled():
        outcome.exception()


def headers(authority: str, scheme: str, number: str) -> list[tuple[str, str]]:
    """Return the headers of the call with this id."""
    return [
        (":method", "POST"),
        (":scheme", scheme),
        (":path", METHOD),
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        (CALL_ID, number),
    ]
