"""Further probes of a server after a failed attempt, to distinguish causes that look the same from outside.

Each takes a few seconds at most, and finds nothing without an address: behind an HTTP proxy. None of them trusts the
server or sends data after a TLS handshake. If a probe fails, the explanation of the original failure does not change.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl

from grpc_backoff.config.target import DEFAULT_PORT, Address, Target
from grpc_backoff.connection.connector import ConnectError
from grpc_backoff.probe.dial import ALPN, Transport, reach, security_of
from grpc_backoff.probe.http2 import Http2Connector
from grpc_backoff.probe.stages import NoSettings, Security

_LIMIT = 3.0

_NO_CHECK_TIME = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, for which the module ssl has no name."""


async def look_in_plaintext(address: Address | None) -> bytes | None:
    """Start HTTP/2 without TLS; return the first bytes of the server, or None if SETTINGS arrive."""
    if address is None:
        return b""
    connector = Http2Connector(Target(str(address), str(address), DEFAULT_PORT, (address,)))
    try:
        await connector.connect(_LIMIT)
    except ConnectError as error:
        cause = error.__cause__
        return cause.head if isinstance(cause, NoSettings) else b""
    finally:
        await connector.close(None)
    return None


async def look_for_tls(
    address: Address | None, server_name: str, *, newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED
) -> Security | None:
    """Return what TLS negotiates if any certificate is accepted, and HTTP/1.1 too; None if the handshake fails."""
    tls = _taking_any_certificate()
    tls.maximum_version = newest
    tls.set_alpn_protocols([ALPN, "http/1.1"])
    found = await _shake_hands(address, server_name, tls)
    return found and found[0]


async def look_at_certificate(address: Address | None, server_name: str) -> Security | None:
    """Return what TLS negotiated and the server's certificate, valid or not; None if the handshake fails.

    The ssl module exposes the content of a certificate only if it was verified. The first handshake therefore fetches
    the certificate, and the second trusts exactly that one.
    """
    found = await _shake_hands(address, server_name, _taking_any_certificate())
    if found is None:
        return None
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.verify_flags = ssl.VerifyFlags(ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME)
    with contextlib.suppress(ssl.SSLError, ValueError):
        tls.load_verify_locations(cadata=found[1])
    found = await _shake_hands(address, server_name, tls)
    return found and found[0]


def _taking_any_certificate() -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname = False
    tls.verify_mode = ssl.CERT_NONE
    return tls


async def _shake_hands(address: Address | None, server_name: str, tls: ssl.SSLContext) -> tuple[Security, bytes] | None:
    """Make a TLS handshake and hang up; return what it negotiated and the server's certificate (DER)."""
    if address is None:
        return None
    with contextlib.suppress(ConnectError, TimeoutError):
        async with asyncio.timeout(_LIMIT):
            transport = Transport((await reach([address])).sock)
            try:
                made = await transport.secure(tls, server_name)
                found = security_of(made), made.getpeercert(binary_form=True) or b""
                await transport.close()
            finally:
                transport.abort()
        return found
    return None
