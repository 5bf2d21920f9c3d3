"""The stages below HTTP/2, on real sockets: their results, their failures, and that they leave nothing open."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import errno
import socket
import ssl
import time

import pytest
import trustme

from grpc_backoff import ConnectError, Stage
from grpc_backoff.config.target import parse_target
from grpc_backoff.probe import dial
from grpc_backoff.probe.dial import Transport, in_words, reach, resolve, security_of
from grpc_backoff.testing.front import FlakyFront, silent
from tests.peers import client_tls, deaf_port, nothing_left, peer, says, server_tls

CA = trustme.CA()
CERTIFICATE = CA.issue_cert("localhost", "127.0.0.1", common_name="orders")
SLOW = 5.0
"""A time limit in seconds, much longer than anything here takes."""


def address(target):
    [found] = parse_target(target).addresses
    return found


async def failure(awaitable):
    with pytest.raises(ConnectError) as caught:
        await asyncio.wait_for(awaitable, SLOW)
    return caught.value


# Name resolution.


async def test_an_address_is_not_resolved(monkeypatch):
    """CH-8: an IP address is used unchanged, without a resolver."""
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", None)
    assert [str(each) for each in await resolve(parse_target("127.0.0.1:80"))] == ["127.0.0.1:80"]


async def test_a_name_is_resolved():
    """CH-8: a name is resolved by the system's resolver."""
    assert "127.0.0.1:80" in [str(each) for each in await resolve(parse_target("localhost:80"))]


async def test_families_take_turns(monkeypatch):
    """CH-8: addresses keep the resolver's order, but alternate between IPv6 and IPv4, without duplicates."""
    places = [(socket.AF_INET6, f"::{n}") for n in (1, 2, 3)] + [(socket.AF_INET, f"127.0.0.{n}") for n in (1, 1, 2)]

    async def answer(*_, **__):
        rest = {socket.AF_INET6: (80, 0, 0), socket.AF_INET: (80,)}
        return [(family, socket.SOCK_STREAM, 6, "", (host, *rest[family])) for family, host in places]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", answer)
    found = await resolve(parse_target("orders.example:80"))
    assert [each.sockaddr[0] for each in found] == ["::1", "127.0.0.1", "::2", "127.0.0.2", "::3"]


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("no-such-host.invalid", ""),
        ("a..b", "this is not a host name"),
        ("x" * 300, "this is not a host name"),
        ("a\0b", ""),
    ],
)
async def test_no_such_name(host, words):
    """CH-11: a name that does not exist fails at stage resolve, and the reason contains it."""
    found = (await failure(resolve(parse_target(f"{host}:1")))).failure
    assert found.stage is Stage.RESOLVE
    assert host in found.reason
    assert words in found.reason


# TCP.


async def test_the_first_address_that_answers_is_taken():
    """CH-8: the first address that accepts is used; addresses that failed before are returned with their errors."""
    async with FlakyFront(silent) as dead, FlakyFront(silent) as front, nothing_left():
        await dead.refuse()
        dialled = await reach([address(dead.target), address(front.target)])
        assert dialled.address == address(front.target)
        assert [in_words(error) for error in dialled.failed.values()] == ["Connection refused"]
        dialled.sock.close()


async def test_an_address_that_swallows_packets_does_not_hold_up_the_next():
    """CB-3: while an address does not answer, the next is tried in parallel after 0.25 s (Happy Eyeballs)."""
    with deaf_port() as deaf:
        async with FlakyFront(silent) as front, nothing_left():
            began = time.monotonic()
            dialled = await asyncio.wait_for(reach([address(deaf), address(front.target)]), SLOW)
            assert time.monotonic() - began >= dial._STAGGER - 0.05
            assert dialled.address == address(front.target)
            assert dialled.failed == {}
            dialled.sock.close()


async def test_all_addresses_fail():
    """CH-11: if all addresses fail, the failure is at stage tcp, and the reason lists every address."""
    async with FlakyFront(silent) as one, FlakyFront(silent) as two:
        await one.refuse()
        await two.refuse()
        async with nothing_left():
            found = await failure(reach([address(one.target), address(two.target)]))
        assert found.failure.stage is Stage.TCP
        assert found.failure.reason == f"{one.target}: Connection refused; {two.target}: Connection refused"
        assert found.__cause__.errno == errno.ECONNREFUSED


@pytest.mark.parametrize(
    ("errors", "telling"),
    [
        ([OSError(errno.ENETUNREACH, ""), ConnectionRefusedError()], 1),
        ([ConnectionRefusedError(), OSError(errno.EHOSTUNREACH, "")], 0),
        ([OSError(errno.ENETUNREACH, ""), OSError(errno.ETIMEDOUT, "")], 1),
    ],
)
def test_the_most_telling_error(errors, telling):
    """CH-11: if all addresses fail and one of them refused, that error is the cause; otherwise it is the last error."""
    assert dial._most_telling(errors) is errors[telling]


async def test_cancelling_closes_every_socket():
    """CB-10: cancelling while two addresses are being tried closes both sockets."""
    with deaf_port() as one, deaf_port() as two:
        async with nothing_left():
            attempt = asyncio.ensure_future(reach([address(one), address(two)]))
            await asyncio.sleep(2 * dial._STAGGER)
            attempt.cancel()
            await asyncio.gather(attempt, return_exceptions=True)


async def test_of_two_that_answer_at_once_one_is_kept():
    """CB-1: if two addresses accept at the same time, the socket that is not used is closed."""
    async with FlakyFront(silent) as front:
        for _ in range(20):
            async with nothing_left():
                tasks = [asyncio.ensure_future(dial._connected(address(front.target))) for _ in range(2)]
                await asyncio.wait(tasks)
                await dial._discard(tasks)


# TLS.


@contextlib.asynccontextmanager
async def transport_to(target):
    transport = Transport((await reach([address(target)])).sock)
    try:
        yield transport
    finally:
        transport.abort()


async def test_what_tls_agreed_on():
    """CH-11: `security_of` returns version, cipher, ALPN and the verified certificate."""
    async with peer(says("hold"), tls=server_tls(CERTIFICATE)) as target, nothing_left():
        tls = client_tls(CA)
        tls.set_alpn_protocols(["h2"])
        async with transport_to(target) as transport:
            found = security_of(await transport.secure(tls, "localhost"))
    assert (found.version, found.alpn) == ("TLSv1.3", "h2")
    assert found.cipher
    assert found.certificate.subject.endswith("CN=orders")
    assert found.certificate.issuer.startswith("O=trustme")
    assert found.certificate.names == ("localhost", "127.0.0.1")
    assert found.certificate.not_after > dt.datetime.now(dt.UTC)


@pytest.mark.parametrize("tls", [False, True])
async def test_bytes_come_and_go(tls):
    """CH-11: a transport carries any number of bytes in both directions, and says when the server has ended it."""

    async def behave(reader, writer):
        writer.write(await reader.readexactly(300_000))

    served = peer(behave, tls=server_tls(CERTIFICATE) if tls else None)
    async with served as target, nothing_left(), transport_to(target) as transport:
        if tls:
            await transport.secure(client_tls(CA), "localhost")
        sent, received = bytes(range(250)) * 1200, b""
        await transport.send(sent)
        while data := await asyncio.wait_for(transport.receive(), SLOW):
            received += data
        await transport.close(b"too late")
        await transport.close()
    assert received == sent


@pytest.mark.parametrize("name", [".example", "a..b", "", "a\0b", "x" * 300])
async def test_a_name_that_no_certificate_can_be_for(name, caplog):
    """CH-11: a name that no certificate can have fails at stage tls, closes the socket and logs nothing."""
    async with FlakyFront(silent) as front, nothing_left(), transport_to(front.target) as transport:
        found = await failure(transport.secure(client_tls(CA), name))
    assert found.failure.stage is Stage.TLS
    assert "no certificate can be issued for" in found.failure.reason
    assert caplog.records == []


@pytest.mark.parametrize("text", ["Jan  1 00:00:00 10000 GMT", "Bad time value", ""])
def test_a_certificate_may_say_nonsense(text):
    """CB-6: an invalid time in a certificate is read as None, without an error."""
    assert dial._moment(text) is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "Temporary failure"),
        (ssl.SSLError(1, "[SSL: X] y"), "('"),
        (ConnectionResetError(), "ConnectionResetError"),
        (OSError("AF_UNIX path too long"), "AF_UNIX path too long"),
    ],
)
def test_errors_in_words(error, words):
    """CH-11: a socket error's text contains no numbers or addresses and is never empty."""
    assert in_words(error) == words or isinstance(error, ssl.SSLError)
    assert in_words(error)
