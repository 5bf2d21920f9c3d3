"""Servers below gRPC: one counts the bytes that clients send, one does with each stream what a test specifies."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict

import h2.exceptions
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset

REFUSED_STREAM = 7
ENHANCE_YOUR_CALM = 11
_OK = [(":status", "200"), ("content-type", "application/grpc")]


def counting(sent):
    """Return a front behaviour that relays all bytes, and appends the size of each chunk for the server to a list."""

    async def relay(visit):
        reader, writer = await asyncio.open_connection(*visit.upstream)
        back = asyncio.create_task(_pump(reader, visit.writer))
        try:
            while data := await visit.reader.read(65536):
                sent.append(len(data))
                writer.write(data)
        finally:
            back.cancel()
            writer.transport.abort()

    return relay


async def _pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)


class Streams:
    """An HTTP/2 server that handles each stream with the next of a test's answers, and echoes once these have run out.

    An answer is the HTTP/2 error code with which to reset the stream, the text of a status UNAVAILABLE, or a function
    of the connection, the stream and the request's body; None echoes.

    Attributes:
        previous: for each stream, the value of `grpc-previous-rpc-attempts`; None for a first attempt.
        visits: for each stream, the number of its connection, from 0.
    """

    def __init__(self, *answers):
        self.answers = list(answers)
        self.previous = []
        self.visits = []
        self._count = 0

    async def __call__(self, visit):
        """Serve one connection; see `FlakyFront`."""
        number, self._count = self._count, self._count + 1
        wire = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        wire.initiate_connection()
        visit.writer.write(wire.data_to_send())
        bodies = defaultdict(bytes)
        while data := await visit.reader.read(65536):
            for event in wire.receive_data(data):
                if isinstance(event, RequestReceived):
                    self.visits.append(number)
                    self.previous.append(dict(event.headers).get("grpc-previous-rpc-attempts"))
                elif isinstance(event, DataReceived):
                    bodies[event.stream_id] += event.data
                elif isinstance(event, StreamEnded):
                    self._serve(visit, number, wire, event.stream_id, bodies.pop(event.stream_id))
            visit.writer.write(wire.data_to_send())

    def _serve(self, _visit, _number, wire, stream, body):
        self._answer(wire, stream, body)

    def _answer(self, wire, stream, body):
        answer = self.answers.pop(0) if self.answers else None
        if callable(answer):
            answer(wire, stream, body)
        elif isinstance(answer, int):
            wire.reset_stream(stream, answer)
        elif answer is not None:
            wire.send_headers(stream, [*_OK, ("grpc-status", "14"), ("grpc-message", answer)], end_stream=True)
        else:
            wire.send_headers(stream, _OK)
            wire.send_data(stream, body)
            wire.send_headers(stream, [("grpc-status", "0")], end_stream=True)


def cut(error=2, *, headers=(), messages=0):
    """Return an answer of headers and messages that is then cut: reset with this HTTP/2 error, or ended on DATA.

    With "data", the stream ends on a DATA frame; with "trailers", on trailers without a status.
    """

    def answer(wire, stream, body):
        wire.send_headers(stream, [*_OK, *headers])
        for _ in range(messages):
            wire.send_data(stream, body)
        if error == "data":
            wire.send_data(stream, b"", end_stream=True)
        elif error == "trailers":
            wire.send_headers(stream, [("last", "1")], end_stream=True)
        else:
            wire.reset_stream(stream, error)

    return answer


class Strict:
    """An HTTP/2 server that echoes each request after a while, and bears only so many RST_STREAMs on a connection.

    After one more, it ends the connection, and every call on it, with GOAWAY(ENHANCE_YOUR_CALM), as servers do that
    guard against rapid resets.

    Attributes:
        resets: how many RST_STREAMs each connection has received.
        streams: how many streams it has received in all.
        cut: how many connections it has ended.
    """

    def __init__(self, takes=0.1, bears=10, words=b"Maximum number of RST frames reached"):
        """Answer the requests after `takes` seconds, or after what `takes` returns for the number of a stream.

        `bears` may be a function of the number of a connection; -1 ends that connection at its first request.
        """
        self._takes = takes if callable(takes) else lambda _number: takes
        self._bears = bears if callable(bears) else lambda _number: bears
        self._words = words
        self.resets = []
        self.streams = self.cut = 0

    async def __call__(self, visit):
        """Serve one connection; see `FlakyFront`."""
        number = len(self.resets)
        self.resets.append(0)
        wire = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        wire.initiate_connection()
        visit.writer.write(wire.data_to_send())
        bodies, loop = defaultdict(bytes), asyncio.get_running_loop()

        def answer(stream, body):
            with contextlib.suppress(h2.exceptions.ProtocolError):  # the client has reset the stream
                wire.send_headers(stream, _OK)
                wire.send_data(stream, body)
                wire.send_headers(stream, [("grpc-status", "0")], end_stream=True)
                visit.writer.write(wire.data_to_send())

        asked = False
        while data := await visit.reader.read(65536):
            for event in wire.receive_data(data):
                if isinstance(event, DataReceived):
                    bodies[event.stream_id] += event.data
                elif isinstance(event, StreamEnded):
                    asked = True
                    loop.call_later(self._takes(self.streams), answer, event.stream_id, bodies.pop(event.stream_id))
                    self.streams += 1
                elif isinstance(event, StreamReset):
                    self.resets[number] += 1
            if asked and self.resets[number] > self._bears(number):
                self.cut += 1
                wire.close_connection(ENHANCE_YOUR_CALM, self._words)
                visit.writer.write(wire.data_to_send())
                return
            visit.writer.write(wire.data_to_send())
