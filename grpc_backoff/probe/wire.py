"""The bytes of an HTTP/2 connection on which a client opens no stream: what came goes in, what to send comes out.

No socket and no clock here. h2 does the protocol; this says what of it matters to a connector: that the server's
SETTINGS frame arrived and what is in it, and that the server ended the connection, in HTTP/2's words or against its
rules. Whatever bytes a server sends, nothing raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from grpc_backoff.connection.connector import Loss
from grpc_backoff.errors import MissingExtra

try:
    from h2.config import H2Configuration
    from h2.connection import H2Connection
    from h2.errors import ErrorCodes
    from h2.events import ConnectionTerminated, Event, RemoteSettingsChanged
    from h2.settings import SettingCodes, Settings
    from hyperframe.exceptions import HyperframeError
    from hyperframe.frame import ExtensionFrame, Frame, SettingsFrame
except ImportError as error:
    raise MissingExtra("probe") from error

__all__ = ["Wire", "describe"]

_FRAME_HEADER = 9
_SETTING = 6
_DEFAULT_FRAME_SIZE = 16384
_HEAD = 128
"""How much of what came first is kept, to tell what the server is if it does not speak HTTP/2."""
_SHOWN = 32
_DEBUG_DATA = 200
"""How much is shown of a GOAWAY's debug data."""

_GRPC_SETTINGS = {0xFE03: "GRPC_ALLOW_TRUE_BINARY_METADATA", 0xFE04: "GRPC_PREFERRED_RECEIVE_CRYPTO_FRAME_SIZE"}


class Wire:
    """One connection's bytes.

    Attributes:
        head: the first bytes that came.
        settings: what the server's SETTINGS frames said so far, by RFC 9113's names; None before the first of them.
        loss: how the connection ended, as far as bytes can tell; nothing is read after it.
    """

    def __init__(self) -> None:
        """Have the client's preface ready to be sent: no server push, as every gRPC client says."""
        self.head = b""
        self.settings: Mapping[str, int] | None = None
        self.loss: Loss | None = None
        self._unread = bytearray()
        self._h2 = H2Connection(H2Configuration(client_side=True))
        self._h2.local_settings = Settings(client=True, initial_values={SettingCodes.ENABLE_PUSH: 0})
        self._h2.initiate_connection()

    def to_send(self) -> bytes:
        """Return what is to be sent by now: the preface, acknowledgements of SETTINGS and PING, a GOAWAY."""
        return bytes(self._h2.data_to_send())

    def say_goodbye(self) -> None:
        """Have GOAWAY(NO_ERROR) ready to be sent; nothing that comes afterwards is read."""
        if self.loss is None:
            self._h2.close_connection()
            self.loss = Loss("it was closed on this side", graceful=True)

    def feed(self, data: bytes) -> None:
        """Take in what came.

        h2 gets one frame at a time. It would forget the good frames before a bad one in the same data, and takes the
        PING that servers send right behind their GOAWAY for a bad one.
        """
        self.head += data[: _HEAD - len(self.head)]
        self._unread += data
        while self.loss is None:
            frame = self._next_frame()
            if frame is None:
                break
            self._take(frame)

    def _next_frame(self) -> bytes | None:
        if len(self._unread) < _FRAME_HEADER:
            return None
        length = int.from_bytes(self._unread[:3])
        if self.settings is None and not _begins_with_settings(self._unread):
            self._break_off(describe(self.head), ErrorCodes.PROTOCOL_ERROR)
        elif length > self._h2.max_inbound_frame_size:  # said before it is all there: nobody fills our memory
            self._break_off(f"it announced a frame of {length} bytes", ErrorCodes.FRAME_SIZE_ERROR)
        elif len(self._unread) >= _FRAME_HEADER + length:
            frame = bytes(self._unread[: _FRAME_HEADER + length])
            del self._unread[: _FRAME_HEADER + length]
            return frame
        return None

    def _break_off(self, reason: str, code: ErrorCodes) -> None:
        self._h2.close_connection(code)
        self.loss = Loss(reason)

    def _take(self, frame: bytes) -> None:
        try:
            events = self._h2.receive_data(frame)
        except Exception as error:  # noqa: BLE001 - whatever a server's bytes do to the parser, they are the server's
            self.loss = Loss(f"it broke HTTP/2's rules: {error}")  # h2 has a GOAWAY ready to be sent
            return
        for event in events:
            self._note(event)

    def _note(self, event: Event) -> None:
        match event:
            case RemoteSettingsChanged():
                said = {_name(code): change.new_value for code, change in event.changed_settings.items()}
                self.settings = MappingProxyType({**(self.settings or {}), **said})
            case ConnectionTerminated():
                code = event.error_code
                name = code.name if isinstance(code, ErrorCodes) else f"{code:#x}"
                said_why = (event.additional_data or b"")[:_DEBUG_DATA].decode("utf-8", "backslashreplace")
                why = f", {said_why!r}" if said_why else ""
                self.loss = Loss(f"GOAWAY {name}{why}", graceful=code == ErrorCodes.NO_ERROR)


def _begins_with_settings(data: bytes | bytearray) -> bool:
    """Return whether the first frame is the SETTINGS frame that a server has to begin with (RFC 9113, 3.4)."""
    frame, length = _frame(data)
    return isinstance(frame, SettingsFrame) and "ACK" not in frame.flags and length % _SETTING == 0


def describe(head: bytes) -> str:
    """Say what a server is that began with these bytes, and from which no SETTINGS frame came."""
    if head.startswith(b"HTTP/"):
        line = head.partition(b"\n")[0].decode("ascii", "backslashreplace").rstrip("\r")
        return f"it answered in HTTP/1: {line!r}"
    if head.startswith((b"\x15\x03", b"\x16\x03")):  # alert, handshake; 3 is the version of TLS and of SSL 3 before it
        return "it answered in TLS"
    if len(head) < _FRAME_HEADER:
        return f"it said no more than {head!r}"
    if _begins_with_settings(head):
        return "it stopped within its SETTINGS frame"
    frame, length = _frame(head)
    if frame is None or isinstance(frame, ExtensionFrame) or length > _DEFAULT_FRAME_SIZE:
        return f"it does not speak HTTP/2, it said {head[:_SHOWN]!r}"
    return f"its first frame was {type(frame).__name__.removesuffix('Frame')}, not SETTINGS"


def _frame(data: bytes | bytearray) -> tuple[Frame | None, int]:
    """Read a frame's header; no frame where it is none."""
    try:
        return Frame.parse_frame_header(memoryview(bytes(data[:_FRAME_HEADER])))
    except HyperframeError:
        return None, 0


def _name(code: int) -> str:
    if isinstance(code, SettingCodes):
        return code.name
    return _GRPC_SETTINGS.get(code, f"{code:#06x}")
