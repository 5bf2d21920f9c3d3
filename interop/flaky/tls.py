"""TLS for the flaky server: its certificate, and the server's side of one session, without a socket.

A session is the standard library's own `SSLObject`, fed by hand: asyncio's TLS transport does not report when a
ClientHello came, cannot send FIN alone, and waits for half a minute for the farewell of a client that has left.
"""

from __future__ import annotations

import contextlib
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Tls", "TlsSession"]

_CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class Tls:
    """What a server proves itself with.

    Attributes:
        certificate: its certificate in PEM, followed by those of the authorities between it and the root, if any.
        key: its private key in PEM, without a password.
    """

    certificate: bytes
    key: bytes = field(repr=False)

    def context(self, *alpn: str) -> ssl.SSLContext:
        """Return a server's context that offers the protocols `alpn`.

        Raises:
            ssl.SSLError: the certificate or the key cannot be read, or they do not belong together.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if alpn:
            context.set_alpn_protocols(list(alpn))
        with tempfile.TemporaryDirectory() as folder:  # only its owner can enter; ssl reads from files alone
            certificate, key = Path(folder, "certificate.pem"), Path(folder, "key.pem")
            certificate.write_bytes(self.certificate)
            key.write_bytes(self.key)
            context.load_cert_chain(certificate, key)
        return context


class TlsSession:
    """The server's side of one TLS session: bytes in, bytes out.

    Attributes:
        established: whether the handshake is done.
        peer_closed: whether the client said that it will send no more.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self.established = False
        self.peer_closed = False
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def receive(self, data: bytes) -> bytes:
        """Take what the client sent, and return what it says in plain; `outgoing` may have an answer then.

        Raises:
            ssl.SSLError: it is not TLS, or the handshake failed.
        """
        self._incoming.write(data)
        plain = bytearray()
        with contextlib.suppress(ssl.SSLWantReadError):
            if not self.established:
                self._session.do_handshake()
                self.established = True
            while chunk := self._session.read(_CHUNK):
                plain += chunk
            self.peer_closed = True
        return bytes(plain)

    def send(self, plain: bytes) -> None:
        """Encrypt what the client shall read."""
        self._session.write(plain)

    def close(self) -> None:
        """Say that no more will be sent, if the handshake has come so far that it can be said."""
        with contextlib.suppress(ssl.SSLError):
            self._session.unwrap()

    def outgoing(self) -> bytes:
        """Return what is to be sent to the client."""
        return self._outgoing.read()
