"""The server's half of one HTTP/2 connection, on h2. What it has to say can be held back, its SETTINGS first.

It reads from the first byte on, whether or not it ever answers: so the record knows of every client when its preface
was complete. Requests go to a `Service`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from h2.config import H2Configuration
from h2.connection import ConnectionInputs, ConnectionState, H2Connection, H2ConnectionStateMachine
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    PingAckReceived,
    RemoteSettingsChanged,
    RequestReceived,
    SettingsAcknowledged,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError
from hyperframe.frame import GoAwayFrame

from interop.flaky.record import Record
from interop.flaky.wire import Wire

__all__ = ["LAST_STREAM", "Http2", "Service"]

LAST_STREAM = 2**31 - 1
"""The highest id that a stream can have."""

_CALL_ID = b"call-id"
"""The header under which a client says which call a request belongs to."""

_TOLERATED = 10_000
"""Streams that h2 lets through; those above the announced number are refused here, one by one."""

_HELD = 1024 * 1024
"""The most that is held back, in bytes: a client that asks for more answers unheard is cut off."""

_PONG = 1.0
"""How long a drain waits for the client's answer to its PING, in seconds."""


class _StateMachine(H2ConnectionStateMachine):
    """To h2 a client's GOAWAY is the end of the connection. RFC 9113 (6.8) has it wait for answers behind it."""

    _transitions = H2ConnectionStateMachine._transitions | {  # noqa: SLF001 - h2 has no other way to say so
        (ConnectionState.SERVER_OPEN, ConnectionInputs.RECV_GOAWAY): (None, ConnectionState.SERVER_OPEN)
    }


class Service:
    """What becomes of the requests on one connection. This one leaves them unanswered."""

    def handle(self, http2: Http2, event: Event) -> None:
        """Take an event of h2's; what is written to `http2.h2` is sent after it."""

    def close(self) -> None:
        """End: the connection is gone."""


class Http2:
    """The server's half of one HTTP/2 connection.

    Attributes:
        h2: the state machine, for services to answer with; `flush` sends what it has written.
        settings: the bytes of the server's SETTINGS frame.
        over: whether h2 has seen the end of the connection; it must not be written to any more.
    """

    def __init__(self, wire: Wire, record: Record, service: Service, max_streams: int) -> None:
        """Say nothing until `send_settings`; then allow `max_streams` requests at a time."""
        self._wire = wire
        self._record = record
        self._service = service
        self._max_streams = max_streams
        self._last_stream = LAST_STREAM
        self._open: set[int] = set()
        self._idle = asyncio.Event()
        self._pong = asyncio.Event()
        self._held = bytearray()
        self._speaking = False
        self._hopeless = False
        self.over = False
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        self.h2.state_machine = _StateMachine()
        self.settings = self._announce()

    def send_settings(self) -> None:
        """Send SETTINGS, and what was held back behind it."""
        self._wire.write(self.settings)
        self.speak()

    def speak(self) -> None:
        """Hold nothing back any more; the bytes of `settings` are sent."""
        self._record.settings_sent()
        self._speaking = True
        self._wire.write(bytes(self._held))
        self._held.clear()
        if self._hopeless:
            self._wire.close()

    def flush(self) -> None:
        """Send what h2 has written, or hold it back."""
        self._emit(self.h2.data_to_send())

    def receive(self, data: bytes) -> None:
        """Take what the client sent."""
        if self.over:
            return
        try:
            events = self.h2.receive_data(data)
        except ProtocolError:
            self.close()
            self.flush()  # the GOAWAY that says why
            self._hang_up()
            return
        for event in events:
            with contextlib.suppress(ProtocolError):
                # h2 has read on: behind this event, the client may have reset the stream, or taken its leave.
                self._handle(event)
        self.flush()

    def settle(self, stream: int, outcome: str) -> None:
        """Note what became of a request."""
        self._record.settled(stream, outcome)
        self._open.discard(stream)
        if not self._open:
            self._idle.set()

    def goaway(self, code: ErrorCodes, last_stream: int, debug: bytes = b"") -> None:
        """Send GOAWAY and go on: requests above `last_stream` are not taken.

        The frame is hyperframe's, since to h2 a GOAWAY is the end of the connection, and running calls would be lost.
        """
        self.flush()
        frame = GoAwayFrame(0, last_stream_id=last_stream, error_code=code, additional_data=debug)
        self._emit(frame.serialize())
        self._last_stream = last_stream
        for stream in [stream for stream in self._open if stream > last_stream]:
            self.settle(stream, "refused")

    async def drain(self, grace: float) -> None:
        """Take leave as a server does that is replaced: no call is lost on a client that reads GOAWAY as it is meant.

        First a GOAWAY that still takes every request that is on its way; when the answer to a PING shows that it was
        read, one with the last stream that is served. Running calls then have `grace` seconds to finish.
        """
        if self.over:
            return
        self.goaway(ErrorCodes.NO_ERROR, LAST_STREAM)
        self.h2.ping(b"draining")
        self.flush()
        await _within(_PONG, self._pong)
        self.goaway(ErrorCodes.NO_ERROR, self.h2.highest_inbound_stream_id)
        if self._open and not self.over:
            self._idle.clear()
            await _within(grace, self._idle)

    def close(self) -> None:
        """End: the connection is gone."""
        self.over = True
        self._idle.set()
        self._pong.set()
        self._service.close()

    def _announce(self) -> bytes:
        """Tell the client of one limit, and h2 of another: to h2, a stream too many is the connection's end.

        A client may send requests before it has read the limit, and RFC 9113 (5.1.2) wants the streams refused.
        """
        settings = self.h2.local_settings
        settings.max_concurrent_streams = self._max_streams
        settings.acknowledge()
        self.h2.initiate_connection()
        settings.max_concurrent_streams = _TOLERATED
        settings.acknowledge()
        return self.h2.data_to_send()

    def _emit(self, data: bytes) -> None:
        if self._speaking:
            self._wire.write(data)
        elif len(self._held) + len(data) <= _HELD:
            self._held += data
        else:
            self._wire.reset()

    def _hang_up(self) -> None:
        """Close the connection, or do it as soon as nothing is held back any more: who is silent stays so."""
        self._hopeless = True
        if self._speaking:
            self._wire.close()

    def _handle(self, event: Event) -> None:
        match event:
            case RemoteSettingsChanged():
                self._record.prefaced()
            case SettingsAcknowledged():
                self._record.settings_acknowledged()
            case PingAckReceived():
                self._pong.set()
            case RequestReceived(stream_id=stream, headers=headers):
                if not self._admit(stream, dict(headers)):
                    return
            case DataReceived(stream_id=stream, flow_controlled_length=length) if stream not in self._open:
                self.h2.acknowledge_received_data(length, stream)
                return
            case StreamEnded(stream_id=stream) if stream not in self._open:
                return
            case StreamReset(stream_id=stream):
                self.settle(stream, "reset")
            case ConnectionTerminated():
                self._farewell()
                return
        self._service.handle(self, event)

    def _admit(self, stream: int, headers: Mapping[bytes, bytes]) -> bool:
        """Note a request; return whether the service may have it."""
        path, call = (headers.get(name, b"").decode(errors="backslashreplace") for name in (b":path", _CALL_ID))
        self._record.requested(stream, path, call)
        told = stream > self._last_stream  # by GOAWAY
        if not told and len(self._open) < self._max_streams:
            self._open.add(stream)
            return True
        self._record.settled(stream, "refused")
        if not told:
            self.h2.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
        return False

    def _farewell(self) -> None:
        """Take the client's GOAWAY: it makes no more requests, and closes when it has its answers."""
        if not self._open:
            self.close()


async def _within(seconds: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):  # Python 3.11's wait_for loses a cancellation that comes with the event
            await event.wait()
