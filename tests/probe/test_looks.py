"""The extra connections that a diagnosis makes to examine a server, tested with real servers."""

from __future__ import annotations

import asyncio
import ssl

import trustme

from grpc_backoff.config.target import parse_target
from grpc_backoff.probe.looks import look_at_certificate, look_for_tls, look_in_plaintext
from grpc_backoff.testing.front import FlakyFront, silent
from tests.peers import nothing_left, openssl_peer, peer, server_tls

CERTIFICATE = trustme.CA().issue_cert("localhost")


def address(target):
    [found] = parse_target(target).addresses
    return found


async def test_when_nobody_is_there_any_more():
    """CH-11: if the server can no longer be reached, both functions report that they found nothing."""
    async with FlakyFront(silent) as front, nothing_left():
        await front.refuse()
        assert await look_in_plaintext(address(front.target)) == b""
        assert await look_for_tls(address(front.target), "localhost") is None
        assert await look_at_certificate(address(front.target), "localhost") is None


async def test_for_tls():
    """CH-11: `look_for_tls` accepts any certificate and HTTP/1.1 and sends nothing after the handshake."""
    heard = []

    async def behave(reader, writer):
        heard.append(await reader.read())

    async with peer(behave, tls=server_tls(CERTIFICATE, alpn=("http/1.1",))) as target, nothing_left():
        found = await look_for_tls(address(target), "another.example")
    assert (found.version, found.alpn) == ("TLSv1.3", "http/1.1")
    assert b"".join(heard) == b""


async def test_for_tls_with_a_server_that_does_not_say_goodbye():
    """CB-3: `look_for_tls` does not wait for the server's end of the TLS closing handshake."""
    over = asyncio.Event()

    async def behave(reader, writer):
        writer.transport.pause_reading()
        await over.wait()

    async with nothing_left(), peer(behave, tls=server_tls(CERTIFICATE)) as target:
        assert await look_for_tls(address(target), "localhost") is not None
        over.set()


async def test_for_an_older_tls():
    """CH-11: `newest` limits the TLS version that `look_for_tls` offers."""
    async with openssl_peer(server_tls(CERTIFICATE)) as target:
        found = await look_for_tls(address(target), "localhost", newest=ssl.TLSVersion.TLSv1_2)
    assert found.version == "TLSv1.2"


async def test_a_silent_server_is_not_waited_for_long(monkeypatch):
    """CB-3: each connection made for a diagnosis has its own time limit."""
    monkeypatch.setattr("grpc_backoff.probe.looks._LIMIT", 0.2)
    async with FlakyFront(silent) as front, nothing_left():
        assert await look_for_tls(address(front.target), "localhost") is None
        assert await look_in_plaintext(address(front.target)) == b""
