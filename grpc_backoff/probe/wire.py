"""The client's side of an HTTP/2 connection with one stream at most, as bytes in and bytes out.

This module uses no sockets and no clocks. h2 implements the protocol; this module extracts what a connector needs to
know: that the server's SETTINGS frame arrived and what it contains, how a call was answered, and that the server ended
the connection, properly or by violating the protocol. No input from a server makes it raise an exception.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from grpc_backoff.base.base_errors import MissingExtra
from grpc_backoff.connection.connector import Loss
from grpc_backoff.probe.reply import Reply

try:
    from h2.config import H2Configuration
    from h2.connection import H2Connection
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
    from h2.settings import SettingCodes, Settings
    from hyperframe.exceptions import HyperframeError
    from hyperframe.frame import ExtensionFrame, Frame, SettingsFrame
except ImportError as error:
    raise MissingExtra("probe", "connect --probe") from error

TLS_ALERT, TLS_HANDSHAKE = b"\x15\x03", b"\x16\x03"
"""How records of TLS begin; 3 is the version of TLS, and of SSL 3 before it."""

HALF, INVALID = "it stopped in the middle of its SETTINGS frame", "its SETTINGS frame is not valid"
"""What `describe` says of servers that speak HTTP/2."""
VIOLATIONS = ("it violated HTTP/2", "it announced a frame of")
"""How the reason begins if this side has ended the connection because of what the server sent."""

_FRAME_HEADER = 9
_SETTING = 6
_DEFAULT_FRAME_SIZE = 16384
_HEAD = 128
"""How many of the first bytes are kept, to identify a server that does not speak HTTP/2."""
_SHOWN = 32
_DEBUG_DATA = 200
"""How much of a GOAWAY's debug data is shown."""

_MOST_BODY = 64
"""How much of a response's body is kept."""
_LONGEST_VALUE = 200
"""How much of a header's value is kept."""
_EMPTY_MESSAGE = bytes(5)

_GRPC_SETTINGS = {0xFE03: "GRPC_ALLOW_TRUE_BINARY_METADATA", 0xFE04: "GRPC_PREFERRED_RECEIVE_CRYPTO_FRAME_SIZE"}


class Wire:
    """The state of one connection. Call `feed` with the bytes that arrive and send those that `to_send` returns.

    Attributes:
        head: the first bytes received.
        settings: the server's SETTINGS so far, by their names in RFC 9113; None before the first frame.
        loss: how the connection ended, as far as the bytes show; nothing is read after that.
        reply: how the call was answered; None before the end of its stream.
    """

    def __init__(self) -> None:
        """Prepare the client's preface, with server push disabled, as in every gRPC client."""
        self.head = b""
        self.settings: Mapping[str, int] | None = None
        self.loss: Loss | None = None
        self.reply: Reply | None = None
        self._received = Reply({}, {})
        self._message_of = 0  # the stream whose message is still to be sent
        self._unread = bytearray()
        self._h2 = H2Connection(H2Configuration(client_side=True))
        self._h2.local_settings = Settings(client=True, initial_values={SettingCodes.ENABLE_PUSH: 0})
        self._h2.initiate_connection()

    def to_send(self) -> bytes:
        """Return the bytes to send now: the preface, acknowledgements of SETTINGS and PING, a GOAWAY."""
        return bytes(self._h2.data_to_send())

    def call(self, method: str, authority: str, scheme: str) -> None:
        """Prepare a unary call with an empty message. SETTINGS must have arrived, and allow a stream."""
        headers = {
            ":method": "POST",
            ":scheme": scheme,
            ":path": method,
            ":authority": authority,
            "te": "trailers",
            "content-type": "application/grpc",
            "user-agent": "grpc-backoff",
        }
        self._message_of = self._h2.get_next_available_stream_id()
        self._h2.send_headers(self._message_of, [*headers.items()])
        self._send_message()

    def _send_message(self) -> None:
        """Send the call's message as soon as the server's flow control has room for it."""
        if self._message_of and self._h2.local_flow_control_window(self._message_of) >= len(_EMPTY_MESSAGE):
            self._h2.send_data(self._message_of, _EMPTY_MESSAGE, end_stream=True)
            self._message_of = 0

    def say_goodbye(self) -> None:
        """Prepare GOAWAY(NO_ERROR); anything that arrives afterwards is ignored."""
        if self.loss is None:
            self._h2.close_connection()
            self.loss = Loss("it was closed on this side", graceful=True)

    def feed(self, data: bytes) -> None:
        """Process received data.

        h2 is given one frame at a time. Otherwise it would discard valid frames that precede an invalid one in the same
        data, and treat the PING that servers send right after their GOAWAY as invalid.
        """
        self.head += data[: _HEAD - len(self.head)]
        self._unread += data
        while self.loss is None and (frame := self._next_frame()) is not None:
            try:
                events = self._h2.receive_data(frame)
            except Exception as error:  # noqa: BLE001 - the parser may raise anything for invalid input
                self.loss = Loss(f"{VIOLATIONS[0]}: {error}")  # h2 has prepared a GOAWAY
                return
            for event in events:
                self._note(event)
            if self.loss is None and self.reply is None:
                self._send_message()

    def _next_frame(self) -> bytes | None:
        if len(self._unread) < _FRAME_HEADER:
            return None
        length = int.from_bytes(self._unread[:3])
        if self.settings is None and not _begins_with_settings(self._unread):
            self._break_off(describe(self.head), ErrorCodes.PROTOCOL_ERROR)
        elif length > self._h2.max_inbound_frame_size:  # reject it before it arrives, so that it cannot fill memory
            self._break_off(f"{VIOLATIONS[1]} {length} bytes", ErrorCodes.FRAME_SIZE_ERROR)
        elif len(self._unread) >= _FRAME_HEADER + length:
            frame = bytes(self._unread[: _FRAME_HEADER + length])
            del self._unread[: _FRAME_HEADER + length]
            return frame
        return None

    def _break_off(self, reason: str, code: ErrorCodes) -> None:
        self._h2.close_connection(code)
        self.loss = Loss(reason)

    def _note(self, event: Event) -> None:
        match event:
            case RemoteSettingsChanged():
                changed = {_name(code): change.new_value for code, change in event.changed_settings.items()}
                self.settings = MappingProxyType({**(self.settings or {}), **changed})
            case ResponseReceived():
                self._received = self._received._replace(headers=_read_headers(event.headers))
            case TrailersReceived():
                self._received = self._received._replace(trailers=_read_headers(event.headers))
            case DataReceived():
                body = (self._received.body + (event.data or b""))[:_MOST_BODY]
                self._received = self._received._replace(body=body)
            case StreamEnded():
                self.reply = self._received
            case StreamReset():
                self.reply = self.reply or self._received._replace(reset=int(event.error_code))
            case ConnectionTerminated():
                code = event.error_code
                name = code.name if isinstance(code, ErrorCodes) else f"{code:#x}"
                said_why = (event.additional_data or b"")[:_DEBUG_DATA].decode("utf-8", "backslashreplace")
                why = f", {said_why!r}" if said_why else ""
                self.loss = Loss(f"GOAWAY {name}{why}", graceful=code == ErrorCodes.NO_ERROR)


def _read_headers(pairs: Iterable[tuple[bytes | str, bytes | str]] | None) -> Mapping[str, str]:
    """Return headers as text, of any bytes."""
    texts = (tuple(text if isinstance(text, str) else text.decode("latin-1") for text in pair) for pair in pairs or ())
    return {name: value[:_LONGEST_VALUE] for name, value in texts}


def _begins_with_settings(data: bytes | bytearray) -> bool:
    """Return whether the first frame is the SETTINGS frame with which a server must begin (RFC 9113, 3.4)."""
    frame, length = _frame(data)
    return isinstance(frame, SettingsFrame) and "ACK" not in frame.flags and length % _SETTING == 0


def describe(head: bytes) -> str:
    """Describe a server that sent these bytes first, and no SETTINGS frame."""
    if head.startswith(b"HTTP/"):
        line = head.partition(b"\n")[0].decode("ascii", "backslashreplace").rstrip("\r")
        return f"it answered in HTTP/1: {line!r}"
    if head.startswith((TLS_ALERT, TLS_HANDSHAKE)):
        return "it answered in TLS"
    if len(head) < _FRAME_HEADER:
        return f"it sent only {_text(head)}"
    frame, length = _frame(head)
    if _begins_with_settings(head):
        return INVALID if len(head) >= min(_HEAD, _FRAME_HEADER + length) else HALF
    if frame is None or isinstance(frame, ExtensionFrame) or length > _DEFAULT_FRAME_SIZE:
        return f"it does not speak HTTP/2; it sent {_text(head[:_SHOWN])}"
    bad = isinstance(frame, SettingsFrame)
    kind = "malformed, or only an acknowledgement" if bad else type(frame).__name__.removesuffix("Frame")
    return f"its first frame was {kind}, not SETTINGS"


def _frame(data: bytes | bytearray) -> tuple[Frame | None, int]:
    """Parse a frame header and return the frame and its length; the frame is None if the header is not valid."""
    try:
        return Frame.parse_frame_header(memoryview(bytes(data[:_FRAME_HEADER])))
    except HyperframeError:
        return None, 0


def _text(data: bytes) -> str:
    """Return bytes as quoted text, with escapes for what is not printable ASCII."""
    return repr(data)[1:]


def _name(code: int) -> str:
    if isinstance(code, SettingCodes):
        return code.name
    return _GRPC_SETTINGS.get(code, f"{code:#06x}")
