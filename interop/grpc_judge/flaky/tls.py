"""TLS for the flaky server: its certificate, and the server's side of a session without a socket.

A session uses the standard library's `SSLObject` directly, because asyncio's TLS transport does not report when a
ClientHello arrives, cannot send FIN alone, and waits half a minute for the close_notify of a client that has left.
"""

from __future__ import annotations

import contextlib
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

_CHUNK = 64 * 1024


@dataclass(frozen=True, slots=True)
class Tls:
    """A server's certificate and private key.

    Attributes:
        certificate: the certificate in PEM, followed by any intermediate certificates.
        key: the private key in PEM, without a password.
    """

    certificate: bytes
    key: bytes = field(repr=False)

    def context(self, *alpn: str) -> ssl.SSLContext:
        """Return a server-side context that offers these protocols by ALPN.

        Raises:
            ssl.SSLError: the certificate or the key cannot be read, or they do not match.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if alpn:
            context.set_alpn_protocols(list(alpn))
        with tempfile.TemporaryDirectory() as folder:  # private to this user; ssl reads keys only from files
            certificate, key = Path(folder, "certificate.pem"), Path(folder, "key.pem")
            certificate.write_bytes(self.certificate)
            key.write_bytes(self.key)
            context.load_cert_chain(certificate, key)
        return context


class TlsSession:
    """The server's side of one TLS session: bytes in, bytes out.

    Attributes:
        established: whether the handshake is complete.
        peer_closed: whether the client has sent close_notify.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self.established = False
        self.peer_closed = False
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    def receive(self, data: bytes) -> bytes:
        """Decrypt bytes from the client and return the plaintext. Send `outgoing` afterwards.

        Raises:
            ssl.SSLError: the bytes are not TLS, or the handshake failed.
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
        """Encrypt data for the client. `outgoing` then returns the encrypted bytes."""
        self._session.write(plain)

    def close(self) -> None:
        """Send close_notify, provided that the handshake has come far enough."""
        with contextlib.suppress(ssl.SSLError):
            self._session.unwrap()

    def outgoing(self) -> bytes:
        """Return the bytes to send to the client."""
        return self._outgoing.read()
