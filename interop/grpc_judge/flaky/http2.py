"""The server's half of an HTTP/2 connection, built on h2. Its output, starting with SETTINGS, can be held back.

Input is always read from the first byte on, even if it is never answered, so the record shows when each client's
preface was complete. Requests are passed to a `Service`.
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

from grpc_judge.flaky.record import Record
from grpc_judge.flaky.wire import Wire

LAST_STREAM = 2**31 - 1
"""The highest possible stream id."""

_CALL_ID = b"call-id"
"""The request header that contains the id of the call."""

_TOLERATED = 10_000
"""How many streams h2 allows. Those above the announced limit are refused here, one by one."""

_HELD = 1024 * 1024
"""How many bytes may be held back. A connection whose held-back output would exceed this is reset."""

_PONG = 1.0
"""How long a drain waits for the client to answer its PING, in seconds."""


class _StateMachine(H2ConnectionStateMachine):
    """Keeps a connection open after the client's GOAWAY, which h2 would not: answers may follow (RFC 9113, 6.8)."""

    _transitions = H2ConnectionStateMachine._transitions | {  # noqa: SLF001 - h2 has no public way
        (ConnectionState.SERVER_OPEN, ConnectionInputs.RECV_GOAWAY): (None, ConnectionState.SERVER_OPEN)
    }


class Service:
    """Handles the requests of one connection. This base class does not answer them."""

    def handle(self, http2: Http2, event: Event) -> None:
        """Handle an event from h2. Anything written to `http2.h2` is sent afterwards."""

    def close(self) -> None:
        """Release all resources, because the connection has ended."""


class Http2:
    """The server's half of one HTTP/2 connection.

    Attributes:
        h2: the state machine, through which services answer. `flush` sends what was written to it.
        settings: the bytes of the server's SETTINGS frame.
        over: whether h2 has seen the end of the connection, after which nothing may be written to it.
    """

    def __init__(self, wire: Wire, record: Record, service: Service, max_streams: int) -> None:
        """Send nothing until `send_settings`, which allows `max_streams` concurrent requests."""
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
        """Send SETTINGS, and all output that was held back until then."""
        self._wire.write(self.settings)
        self.speak()

    def speak(self) -> None:
        """Stop holding output back. The caller must have sent the bytes of `settings`."""
        self._record.note("settings_sent")
        self._speaking = True
        self._wire.write(bytes(self._held))
        self._held.clear()
        if self._hopeless:
            self._wire.close()

    def flush(self) -> None:
        """Send what h2 has written, or hold it back."""
        self._emit(self.h2.data_to_send())

    def receive(self, data: bytes) -> None:
        """Process bytes from the client."""
        if self.over:
            return
        try:
            events = self.h2.receive_data(data)
        except ProtocolError:
            self.close()
            self.flush()  # send the GOAWAY that gives the reason
            self._hang_up()
            return
        for event in events:
            with contextlib.suppress(ProtocolError):
                # h2 has read ahead, so the client may already have reset the stream or sent GOAWAY after this event.
                self._handle(event)
        self.flush()

    def settle(self, stream: int, outcome: str) -> None:
        """Record the outcome of a request."""
        self._record.settled(stream, outcome)
        self._open.discard(stream)
        if not self._open:
            self._idle.set()

    def goaway(self, code: ErrorCodes, last_stream: int, debug: bytes = b"") -> None:
        """Send GOAWAY and keep the connection open; requests above `last_stream` are not accepted.

        The frame is built with hyperframe, because h2 would end the connection at a GOAWAY, and running calls would be
        lost.
        """
        self.flush()
        frame = GoAwayFrame(0, last_stream_id=last_stream, error_code=code, additional_data=debug)
        self._emit(frame.serialize())
        self._last_stream = last_stream
        for stream in [stream for stream in self._open if stream > last_stream]:
            self.settle(stream, "refused")

    async def drain(self, grace: float) -> None:
        """Shut down gracefully, as in a rolling restart: a client that handles GOAWAY correctly does not lose calls.

        The first GOAWAY still accepts every request that is on its way. The answer to a PING shows that the client has
        read that GOAWAY. A second GOAWAY then names the last stream that is served, and running calls have `grace`
        seconds to finish.
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
        """Close the service, because the connection has ended."""
        self.over = True
        self._idle.set()
        self._pong.set()
        self._service.close()

    def _announce(self) -> bytes:
        """Announce the limit to the client but set a higher one in h2, which would end a connection that exceeds it.

        A client may send requests before it has read the limit. RFC 9113 (5.1.2) requires those streams to be refused.
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
        """Close the connection, but not while output is held back, because a silent server must stay silent."""
        self._hopeless = True
        if self._speaking:
            self._wire.close()

    def _handle(self, event: Event) -> None:
        match event:
            case RemoteSettingsChanged():
                self._record.note("preface")
            case SettingsAcknowledged():
                self._record.note("settings_acknowledged")
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
        """Record a request; return whether to pass it to the service."""
        path, call = (headers.get(name, b"").decode(errors="backslashreplace") for name in (b":path", _CALL_ID))
        self._record.requested(stream, path, call)
        told = stream > self._last_stream  # GOAWAY told the client
        if not told and len(self._open) < self._max_streams:
            self._open.add(stream)
            return True
        self._record.settled(stream, "refused")
        if not told:
            self.h2.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
        return False

    def _farewell(self) -> None:
        """Handle the client's GOAWAY: the client makes no more requests and closes once it has its answers."""
        if not self._open:
            self.close()


async def _within(seconds: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):  # Python 3.11's wait_for may lose a cancellation
            await event.wait()
