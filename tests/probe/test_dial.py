"""The stages below HTTP/2, on real sockets: their results, their failures, and that they leave nothing open."""

from __future__ import annotations

import asyncio
import datetime as dt
import errno
import socket
import ssl
import time
from types import SimpleNamespace

import pytest
import trustme

from grpc_backoff import ConnectError, Stage
from grpc_backoff.config.target import parse_target
from grpc_backoff.probe import dial
from grpc_backoff.probe.dial import in_words, reach, resolve, secure, security_of
from grpc_backoff.testing.front import FlakyFront, accept_close, silent
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


class Keeper(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport


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


async def test_a_unix_socket_without_room(tmp_path):
    """CB-6: a Unix socket whose backlog is full fails to connect, although asyncio reports success."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as before:
        listener.bind(f"{tmp_path}/s")
        listener.listen(0)
        before.connect(f"{tmp_path}/s")
        async with nothing_left():
            found = await failure(reach([address(f"unix:{tmp_path}/s")]))
    assert found.failure.stage is Stage.TCP


@pytest.mark.parametrize("path", ["nowhere", "x" * 200])
async def test_no_unix_socket(tmp_path, path):
    """CH-11: a Unix socket that does not exist, or whose path is too long, fails at stage tcp."""
    async with nothing_left():
        found = await failure(reach([address(f"unix:{tmp_path}/{path}")]))
    assert found.failure.stage is Stage.TCP
    assert path in found.failure.reason


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


async def shake_hands(target, tls, server_name="localhost"):
    dialled = await reach([address(target)])
    return await secure(dialled.sock, tls, server_name, Keeper)


async def test_what_tls_agreed_on():
    """CH-11: `security_of` returns version, cipher, ALPN and the verified certificate."""
    async with peer(says("hold"), tls=server_tls(CERTIFICATE)) as target, nothing_left():
        tls = client_tls(CA)
        tls.set_alpn_protocols(["h2"])
        transport = (await shake_hands(target, tls)).transport
        found = security_of(transport)
        transport.abort()
        await asyncio.sleep(0.01)
    assert (found.version, found.alpn) == ("TLSv1.3", "h2")
    assert found.cipher
    assert found.certificate.subject.endswith("CN=orders")
    assert found.certificate.issuer.startswith("O=trustme")
    assert found.certificate.names == ("localhost", "127.0.0.1")
    assert found.certificate.not_after > dt.datetime.now(dt.UTC)


async def test_without_tls_there_is_nothing_to_agree_on(monkeypatch):
    """CH-11: without TLS, `security_of` returns None, even if Python lacks Unix sockets."""
    monkeypatch.setattr(dial, "socket", SimpleNamespace(**{**vars(socket), "AF_UNIX": None}))
    del dial.socket.AF_UNIX
    async with FlakyFront(silent) as front, nothing_left():
        transport = (await shake_hands(front.target, None)).transport
        assert security_of(transport) is None
        transport.abort()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("certificate", "words"),
    [
        (CA.issue_cert("other.example"), "Hostname mismatch"),
        (CA.issue_cert("localhost", not_after=dt.datetime(2020, 1, 1, tzinfo=dt.UTC)), "has expired"),
        (trustme.CA().issue_cert("localhost"), "unable to get local issuer certificate"),
    ],
)
async def test_a_certificate_that_is_not_accepted(certificate, words):
    """CH-11: a certificate that is not accepted fails at stage tls with OpenSSL's reason."""
    async with peer(says("hold"), tls=server_tls(certificate)) as target, nothing_left():
        found = await failure(shake_hands(target, client_tls(CA)))
    assert found.failure.stage is Stage.TLS
    assert words in found.failure.reason
    assert isinstance(found.__cause__, ssl.SSLCertVerificationError)


async def test_a_server_that_closes_during_the_handshake():
    """CH-11: if a server closes the connection during the handshake, the failure says so and is at stage tls."""
    async with FlakyFront(accept_close) as front, nothing_left():
        found = await failure(shake_hands(front.target, client_tls(CA)))
    assert found.failure.stage is Stage.TLS
    assert "closed the connection during the handshake" in found.failure.reason or "reset" in found.failure.reason


@pytest.mark.parametrize("name", [".example", "a..b", "", "a\0b", "x" * 300])
async def test_a_name_that_no_certificate_can_be_for(name, caplog):
    """CH-11: a name that no certificate can have fails at stage tls, closes the socket and logs nothing."""
    async with FlakyFront(silent) as front, nothing_left():
        found = await failure(shake_hands(front.target, client_tls(CA), name))
    assert found.failure.stage is Stage.TLS
    assert "no certificate can be issued for" in found.failure.reason
    assert caplog.records == []


async def test_cancelling_a_handshake_closes_its_socket():
    """CB-10: cancelling a handshake with a silent server closes the socket."""
    async with FlakyFront(silent) as front, nothing_left():
        attempt = asyncio.ensure_future(shake_hands(front.target, client_tls(CA)))
        while not front.visits:
            await asyncio.sleep(0.01)
        attempt.cancel()
        await asyncio.gather(attempt, return_exceptions=True)
        while front.visits[0].ended is None:
            await asyncio.sleep(0.01)


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
