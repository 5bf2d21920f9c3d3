"""A client that sends only what a test tells it to, and records every frame that it receives.

It works on raw bytes: h2 writes its requests, and hyperframe parses the answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import time
from dataclasses import dataclass

import trustme
from h2.config import H2Configuration
from h2.connection import H2Connection
from hpack import Decoder
from hyperframe.frame import Frame, HeadersFrame

from grpc_judge.flaky import Tls

WITHIN = 20  # seconds; data that comes at once may be late on a busy machine
SOON = 0.3  # seconds without a byte that count as silence
EMPTY_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + EMPTY_SETTINGS
PATH = "/any.v1.Service/Method"
HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", PATH),
    (":authority", "test"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
]

_AUTHORITY = trustme.CA()
_CERTIFICATE = _AUTHORITY.issue_cert("127.0.0.1", "::1")
ROOT = _AUTHORITY.cert_pem.bytes()
TLS = Tls(b"".join(pem.bytes() for pem in _CERTIFICATE.cert_chain_pems), _CERTIFICATE.private_key_pem.bytes())
LINGER_ZERO = struct.pack("ii", 1, 0)


def trusting(*alpn):
    """Return a client's TLS context that trusts the server's certificate."""
    context = ssl.create_default_context(cadata=ROOT.decode())
    context.set_alpn_protocols(list(alpn))
    return context


def message(payload):
    """Frame a payload as a gRPC message."""
    return struct.pack(">?I", False, len(payload)) + payload


@dataclass
class Heard:
    """A frame, and the time at which its last byte arrived."""

    at: float
    frame: Frame


class Client:
    """A client's connection.

    Attributes:
        began: when it began to connect, which is before the server's clock starts for it.
        opened: when the connection was open, including the TLS handshake.
        raw: all bytes received, after decryption.
        moments: when each chunk arrived, and how many bytes there were by then.
        heard: the frames received.
    """

    def __init__(self, began, reader, writer):
        self.began, self.reader, self.writer = began, reader, writer
        self.h2 = H2Connection(H2Configuration(client_side=True))
        self.opened = time.monotonic()
        self.raw, self.moments, self.heard = b"", [], []
        self._parsed, self._reading_frames = 0, True
        self._decoder = Decoder()

    @classmethod
    async def open(cls, server, *, tls=False, alpn=("h2",)):
        secured = {"ssl": trusting(*alpn), "server_hostname": "127.0.0.1"} if tls else {}
        began = time.monotonic()
        return cls(began, *await asyncio.open_connection("127.0.0.1", server.port, **secured))

    @classmethod
    async def open_late(cls, server):
        """Connect as soon as the port no longer refuses it."""
        async with asyncio.timeout(WITHIN):
            while True:
                with contextlib.suppress(ConnectionRefusedError):
                    return await cls.open(server)
                await asyncio.sleep(0.01)

    @classmethod
    async def open_narrow(cls, server):
        """Connect with a small receive buffer."""
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        began = time.monotonic()
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", server.port))
        return cls(began, *await asyncio.open_connection(sock=sock))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.writer.transport.abort()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def send(self, data):
        self.writer.write(data)

    def hello(self):
        """Send the connection preface."""
        self.h2.initiate_connection()
        self.send(self.h2.data_to_send())

    def request(self, payload=b"hello", *, ends=True):
        """Send a unary request and return its stream. With `ends=False`, leave the stream open for more."""
        stream = self.h2.get_next_available_stream_id()
        self.h2.send_headers(stream, HEADERS)
        self.h2.send_data(stream, message(payload), end_stream=ends)
        self.send(self.h2.data_to_send())
        return stream

    def finish(self, stream):
        """End a request's stream."""
        self.h2.end_stream(stream)
        self.send(self.h2.data_to_send())

    def of(self, kind, stream=None):
        """Return the frames of a kind that were received."""
        return [
            heard.frame for heard in self.heard if type(heard.frame) is kind and stream in {None, heard.frame.stream_id}
        ]

    async def until(self, kind, stream=None, count=1):
        """Receive until `count` frames of a kind have arrived; return the last of them."""
        async with asyncio.timeout(WITHIN):
            while len(self.of(kind, stream)) < count:
                if not await self._listen():
                    raise EOFError(f"the server closed; heard {[heard.frame for heard in self.heard]}")
        return self.of(kind, stream)[count - 1]

    async def until_end(self):
        """Receive until the server ends the connection; return "closed" or "reset"."""
        async with asyncio.timeout(WITHIN):
            try:
                while await self._listen():
                    pass
            except ConnectionResetError:
                return "reset"
        return "closed"

    async def silence(self, seconds=SOON):
        """Return the first bytes that arrive, b"" at FIN, or None if nothing arrives within the time limit.

        Neither these bytes nor any later ones are parsed as frames.
        """
        try:
            data = await asyncio.wait_for(self.reader.read(65536), seconds)
        except TimeoutError:
            return None
        self._reading_frames = False
        return data

    def headers(self, stream):
        """Return the header blocks of a stream: the headers, then the trailers."""
        return [frame.decoded for frame in self.of(HeadersFrame, stream)]

    async def leave(self, *, reset=False):
        """End the connection with FIN or, if `reset`, with RST."""
        if reset:
            with contextlib.suppress(OSError, AttributeError):  # the connection has already ended
                self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
            self.writer.transport.abort()
        else:
            self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    async def _listen(self):
        data = await self.reader.read(65536)
        self.raw += data
        self.moments.append((time.monotonic(), len(self.raw)))
        while self._reading_frames and len(self.raw) - self._parsed >= 9:
            header = memoryview(self.raw)[self._parsed : self._parsed + 9]
            frame, length = Frame.parse_frame_header(header)
            if len(self.raw) - self._parsed < 9 + length:
                break
            frame.parse_body(memoryview(self.raw)[self._parsed + 9 : self._parsed + 9 + length])
            if isinstance(frame, HeadersFrame):
                frame.decoded = dict(self._decoder.decode(frame.data))
            self._parsed += 9 + length
            self.heard.append(Heard(time.monotonic(), frame))
        return bool(data)
