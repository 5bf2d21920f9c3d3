"""Services that answer requests: one echoes them, and one resets their streams.

Both implement just enough of gRPC: the headers and trailers of an answer. A unary request is a single message, so its
bytes can be sent back as a valid answer.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from h2.errors import ErrorCodes
from h2.events import (
    DataReceived,
    Event,
    RemoteSettingsChanged,
    RequestReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)

from grpc_judge.flaky.http2 import Http2, Service

_HEADERS = [(b":status", b"200"), (b"content-type", b"application/grpc")]
_OK = [(b"grpc-status", b"0")]
_UNAVAILABLE = [(b"grpc-status", b"14"), (b"grpc-message", b"the upstream is down")]
_TOO_LARGE = [(b"grpc-status", b"8"), (b"grpc-message", b"the request is larger than 4 MiB")]
_LARGEST = 4 * 1024 * 1024 + 5
"""The largest allowed request in bytes, including its prefix: gRPC's default."""


@dataclass(slots=True, eq=False)
class _Call:
    """One request in progress.

    Attributes:
        headers: the headers of its answer.
        message: the bytes received; once `answered` is set, the bytes that remain to be sent.
        answered: whether the headers of the answer have been sent.
        timer: calls back when the latency has passed.
    """

    headers: list[tuple[bytes, bytes]]
    message: bytearray = field(default_factory=bytearray)
    answered: bool = False
    timer: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()


class Echo(Service):
    """Answers every complete request with its own bytes and status OK, respecting flow control."""

    def __init__(self, latency: float = 0.0) -> None:
        """Answer each call after `latency` seconds."""
        self._latency = latency
        self._calls: dict[int, _Call] = {}

    def handle(self, http2: Http2, event: Event) -> None:
        """Process input, answer requests, and continue answers when the client's window opens."""
        match event:
            case RequestReceived(stream_id=stream, headers=headers):
                encoding = [pair for pair in headers if pair[0] == b"grpc-encoding"]  # for decoding the answer
                self._calls[stream] = _Call([*_HEADERS, *encoding])
            case DataReceived(stream_id=stream, data=data, flow_controlled_length=length):
                self._take(http2, stream, data, length)
            case StreamEnded(stream_id=stream):
                self._ended(http2, stream)
            case StreamReset(stream_id=stream):
                self._drop(stream)
            case WindowUpdated() | RemoteSettingsChanged():
                for stream in [stream for stream, call in self._calls.items() if call.answered]:
                    self._push(http2, stream)

    def close(self) -> None:
        """Drop all calls without answering them."""
        for stream in list(self._calls):
            self._drop(stream)

    def _take(self, http2: Http2, stream: int, data: bytes, length: int) -> None:
        http2.h2.acknowledge_received_data(length, stream)
        call = self._calls[stream]
        call.message += data
        if len(call.message) > _LARGEST:
            self._drop(stream)
            http2.settle(stream, "refused")
            http2.h2.send_headers(stream, [*_HEADERS, *_TOO_LARGE], end_stream=True)
            http2.h2.reset_stream(stream, ErrorCodes.NO_ERROR)  # stop the client from sending more

    def _ended(self, http2: Http2, stream: int) -> None:
        if self._latency:
            loop = asyncio.get_running_loop()
            self._calls[stream].timer = loop.call_later(self._latency, self._answer, http2, stream)
        else:
            self._answer(http2, stream)

    def _answer(self, http2: Http2, stream: int) -> None:
        call = self._calls[stream]
        call.answered = True
        http2.h2.send_headers(stream, call.headers)
        self._push(http2, stream)
        http2.flush()

    def _push(self, http2: Http2, stream: int) -> None:
        """Send as much as the client's window allows, followed by the trailers after the last byte."""
        h2, message = http2.h2, self._calls[stream].message
        while message and (room := min(h2.local_flow_control_window(stream), h2.max_outbound_frame_size)) > 0:
            h2.send_data(stream, bytes(message[:room]))
            del message[:room]
        if not message:
            h2.send_headers(stream, _OK, end_stream=True)
            self._drop(stream)
            http2.settle(stream, "ok")

    def _drop(self, stream: int) -> None:
        if call := self._calls.pop(stream, None):
            call.cancel()


class Unavailable(Service):
    """Answers every request with UNAVAILABLE, as a proxy does whose upstream is down."""

    def handle(self, http2: Http2, event: Event) -> None:
        """Answer each new request at once."""
        if isinstance(event, RequestReceived):
            http2.h2.send_headers(event.stream_id, [*_HEADERS, *_UNAVAILABLE], end_stream=True)
            http2.settle(event.stream_id, "unavailable")


class BreakOff(Service):
    """Starts to answer each request and then resets its stream."""

    def __init__(self, data: bytes, code: ErrorCodes) -> None:
        """Send headers and as much of `data` as the client's window allows, then RST_STREAM with `code`."""
        self._data = data
        self._code = code

    def handle(self, http2: Http2, event: Event) -> None:
        """Answer each new request with headers and data, then reset its stream."""
        if not isinstance(event, RequestReceived):
            return
        stream = event.stream_id
        http2.h2.send_headers(stream, _HEADERS)
        if data := self._data[: max(0, http2.h2.local_flow_control_window(stream))]:
            http2.h2.send_data(stream, data)
        http2.h2.reset_stream(stream, self._code)
        http2.settle(stream, "reset")
