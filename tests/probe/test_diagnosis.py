"""Every diagnosis, mostly with a real server that causes it."""

from __future__ import annotations

import asyncio
import datetime as dt
import errno
import os
import socket
import ssl

import grpc
import pytest
import trustme

from grpc_backoff import ConnectError, Failure, Stage
from grpc_backoff.connection.connector import Loss
from grpc_backoff.probe.diagnosis import (
    Circumstances,
    Diagnosis,
    diagnose,
    diagnose_loss,
    diagnose_settings,
    read_reason,
)
from grpc_backoff.probe.http2 import Http2Connector
from grpc_backoff.probe.stages import Reached
from grpc_backoff.testing.front import FlakyFront, accept_close, accept_reset, http1_answer, settings_only, silent
from tests.echo import serving
from tests.peers import client_tls, deaf_port, nothing_left, openssl_peer, peer, says, server_tls

CA = trustme.CA()
CERTIFICATE = CA.issue_cert("localhost", "127.0.0.1", common_name="orders")
PAST, FUTURE = dt.datetime(2020, 1, 2, tzinfo=dt.UTC), dt.datetime(2999, 1, 2, tzinfo=dt.UTC)


async def diagnosis(target, *, tls=None, limit=5.0, shows_certificate=False):
    """Make an attempt that must fail and return its diagnosis; check that nothing is left open."""
    reached = []

    def seen(record):
        if isinstance(record, Reached):
            reached.append(record.address)

    async with nothing_left():
        connector = Http2Connector(target, tls=tls, on_stage=seen)
        with pytest.raises(ConnectError) as caught:
            await connector.connect(limit)
        tried = Circumstances(
            address=reached[0] if reached else None,
            server_name=connector.server_name,
            tls=tls is not None,
            shows_certificate=shows_certificate,
            unix=target.startswith("unix"),
        )
        found = await diagnose(caught.value, tried)
    assert isinstance(found, Diagnosis)
    assert found.meaning.endswith(".")
    assert found.advice.endswith(".")
    return found


# Name resolution and TCP.


@pytest.mark.parametrize("name", ["no-such-host.invalid", "a..b", "x" * 300])
async def test_no_such_name(name):
    """CH-11: the diagnosis of an unknown or malformed host name says that no such host exists."""
    error = ConnectError(Failure(Stage.RESOLVE, ""))
    if name == "no-such-host.invalid":  # a resolver's error depends on the machine
        error.__cause__ = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        found = await diagnose(error, Circumstances(address=None, server_name=name, tls=False))
    else:
        found = await diagnosis(f"{name}:1")
    assert "does not know this host name" in found.meaning


@pytest.mark.parametrize("cause", [socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), TimeoutError()])
async def test_no_name_server(cause):
    """CH-11: if name resolution fails temporarily or times out, the diagnosis blames the name server."""
    error = ConnectError(Failure(Stage.RESOLVE, ""))
    error.__cause__ = cause
    found = await diagnose(error, Circumstances(address=None, server_name="x", tls=False))
    assert "No name server answered" in found.meaning


async def test_refused():
    """CH-11: the diagnosis of a refused connection says that nothing is listening."""
    async with FlakyFront(silent) as front:
        await front.refuse()
        assert "Nothing is listening at this address" in (await diagnosis(front.target)).meaning


async def test_packets_that_vanish():
    """CB-3: if a connection request gets no answer within the limit, the diagnosis says that there was none."""
    with deaf_port() as target:
        assert "No answer" in (await diagnosis(target, limit=0.3)).meaning


async def test_no_socket_file(tmp_path):
    """CH-11: the diagnosis of a missing Unix socket says that the file does not exist."""
    assert "no such socket file" in (await diagnosis(f"unix:{tmp_path}/s")).meaning


async def test_a_unix_socket_without_room(tmp_path):
    """CH-11: the diagnosis of a Unix socket whose backlog is full says that it accepts no more connections."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as before:
        listener.bind(f"{tmp_path}/s")
        listener.listen(0)
        before.connect(f"{tmp_path}/s")
        assert "accepts no more connections" in (await diagnosis(f"unix:{tmp_path}/s")).meaning


async def test_a_unix_socket_without_a_server(tmp_path):
    """CH-11: a Unix socket without a server, a socket of another type and an overlong path have different diagnoses."""
    with socket.socket(socket.AF_UNIX) as dead, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        dead.bind(f"{tmp_path}/dead")
        other.bind(f"{tmp_path}/other")
        found = await diagnosis(f"unix:{tmp_path}/dead")
        assert "nothing is listening on it" in found.meaning
        assert "outlives its server" in found.advice
        assert "another type" in (await diagnosis(f"unix:{tmp_path}/other")).meaning
    assert "too long" in (await diagnosis(f"unix:{tmp_path}/{'x' * 200}")).meaning


async def test_a_unix_socket_of_another_server(tmp_path):
    """CH-11: advice for a Unix socket mentions the socket instead of a port."""

    async def answer(reader, writer):
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_unix_server(answer, f"{tmp_path}/s"):
        found = await diagnosis(f"unix:{tmp_path}/s")
    assert "HTTP/1 server" in found.meaning
    assert "Use the socket of the gRPC server" in found.advice
    assert " port" not in found.meaning + found.advice


TO_ALL = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: "
HANDSHAKE = (
    f"{TO_ALL}Tls handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:1:SSL routines:OPENSSL_internal:"
)


@pytest.mark.parametrize(
    ("stage", "reason", "words"),
    [
        # Messages of grpcio 1.85.1.
        (
            Stage.TCP,
            f"{TO_ALL}Failed to connect to remote host: Connection refused",
            "Nothing is listening at this address",
        ),
        (
            Stage.RESOLVE,
            "errors resolving a: [field:hostname lookup error: Domain name not found]",
            "does not know this host name",
        ),
        (Stage.TLS, f"{HANDSHAKE}WRONG_VERSION_NUMBER: Invalid certificate verification context: OK", "not a TLS port"),
        (Stage.TLS, f"{HANDSHAKE}CERTIFICATE_VERIFY_FAILED: certificate has expired: OK", "expired"),
        (
            Stage.TLS,
            f"{HANDSHAKE}CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate: OK",
            "not signed by a trusted CA",
        ),
        (Stage.SETTINGS, f"{TO_ALL}Custom verification: Hostname Verification Check failed.", "a different name"),
        (Stage.SETTINGS, f"{TO_ALL}Cannot check peer: missing selected ALPN property.", "by ALPN"),
        (Stage.SETTINGS, f"{TO_ALL}(Trying to connect an http1.x server (HTTP status 400))", "HTTP/1"),
        (Stage.SETTINGS, "no SETTINGS frame within 1 s of the attempt's start", "sent nothing"),
        (
            Stage.SETTINGS,
            f"{TO_ALL}Failed parsing HTTP/2 (Expected SETTINGS frame as the first frame, got frame type 79)",
            "does not speak HTTP/2",
        ),
        (Stage.SETTINGS, f"{TO_ALL}Socket closed", "TLS port"),
        (Stage.SETTINGS, f"{TO_ALL}recvmsg:Connection reset by peer (104)", "TLS port"),
    ],
)
def test_what_the_core_says(stage, reason, words):
    """CH-11: a channel's failure is diagnosed from the core's message alone, without contacting the server."""
    assert words in read_reason(Failure(stage, reason), tls=False, unix=False).meaning


def test_what_the_core_says_elsewhere():
    """CH-11: with TLS or a Unix socket, the same message means something else; an unknown message has no diagnosis."""
    closed = Failure(Stage.SETTINGS, f"{TO_ALL}Socket closed")
    refused = Failure(Stage.TCP, "unix:/a: connect failed: addr: unix:/a error: Connection refused")
    assert "client certificate" in read_reason(closed, tls=True, unix=False).meaning
    assert "nothing is listening on it" in read_reason(refused, tls=False, unix=True).meaning
    assert "TLS socket" in read_reason(closed, tls=False, unix=True).meaning
    assert read_reason(Failure(Stage.TCP, "what is this?"), tls=False, unix=False) is None


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EHOSTUNREACH, "no route to the host"),
        (errno.ENETUNREACH, "no route to the host"),
        (errno.ETIMEDOUT, "No answer"),
        (errno.EACCES, "not allowed to connect"),
        (errno.EMFILE, "No socket connection could be made"),
    ],
)
async def test_what_the_system_says_of_a_socket(number, words):
    """CH-11: socket errors that cannot occur on loopback, simulated here, have their own diagnoses."""
    error = ConnectError(Failure(Stage.TCP, ""))
    error.__cause__ = OSError(number, os.strerror(number))
    found = await diagnose(error, Circumstances(address=None, server_name="x", tls=False))
    assert words in found.meaning


# Plaintext to a server of another kind.


@pytest.mark.parametrize("alpn", [("h2",), ("http/1.1",), ()])
async def test_a_tls_port_spoken_to_in_plaintext(alpn):
    """CH-11: if a TLS port was dialled in plaintext, a TLS handshake detects it and also shows its ALPN."""
    async with openssl_peer(server_tls(CERTIFICATE, alpn=alpn)) as target:
        found = await diagnosis(target)
    assert "This is a TLS port: a TLS handshake succeeds (TLSv1.3)." in found.meaning
    assert "--tls" in found.advice
    assert ("gRPC needs h2" in found.meaning) is (alpn != ("h2",))
    assert ("http/1.1" in found.meaning) is (alpn == ("http/1.1",))


async def test_a_grpc_tls_port_spoken_to_in_plaintext():
    """CH-11: the TLS port of a grpc server is detected as well, although the server only hangs up."""
    key = CERTIFICATE.private_key_pem.bytes(), CERTIFICATE.cert_chain_pems[0].bytes()
    async with serving(credentials=grpc.ssl_server_credentials([key])) as port:
        assert "This is a TLS port" in (await diagnosis(f"127.0.0.1:{port}")).meaning


async def test_an_answer_in_tls():
    """CH-11: a server that answers with TLS records is diagnosed as a TLS port even if no handshake succeeds."""
    async with peer(says("read", b"\x15\x03\x01\x00\x02\x02\x16")) as target:
        found = await diagnosis(target)
    assert found.meaning == "This is a TLS port: it answers in TLS."
    assert "--tls" in found.advice


async def test_an_http1_server():
    """CH-11: a server that answers in HTTP/1 is diagnosed as an HTTP/1 server."""
    async with FlakyFront(http1_answer) as front:
        found = await diagnosis(front.target)
    assert found.meaning == "This is an HTTP/1 server."
    assert "port of the gRPC server" in found.advice


async def test_something_else():
    """CH-11: an unknown protocol is diagnosed as such; in TLS's place, with what the server sent, escaped."""
    async with peer(says("read", b"220 mail\x1b[2J\r\n", "hold")) as target:
        assert (await diagnosis(target)).meaning == "This is not a gRPC server: see its answer above."
        assert r"it sent '220 mail\x1b[2J\r\n'" in (await diagnosis(target, tls=client_tls(CA))).meaning


async def test_silent_after_accept():
    """CB-3: the diagnosis of a silent server says that it sends nothing. Takes three seconds beyond the limit."""
    async with FlakyFront(silent) as front:
        found = await diagnosis(front.target, limit=0.3)
    assert "accepts the connection but sends nothing" in found.meaning


@pytest.mark.parametrize("behaviour", [accept_close, accept_reset])
async def test_closed_after_accept(behaviour):
    """CH-11: a server that hangs up in plaintext and in TLS is diagnosed as hanging up."""
    async with FlakyFront(behaviour) as front:
        found = await diagnosis(front.target)
    assert found.meaning == "The server accepts the connection and hangs up."
    assert "upstream is down" in found.advice


# TLS to a server of another kind.


async def test_a_plaintext_grpc_server_spoken_to_in_tls():
    """CH-11: a plaintext grpc server that was dialled with TLS is detected by starting HTTP/2 in plaintext."""
    async with serving() as port:
        found = await diagnosis(f"localhost:{port}", tls=client_tls(CA))
    assert "This is a plaintext port: it speaks HTTP/2 without TLS." in found.meaning
    assert "insecure_channel" in found.advice


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (http1_answer, "a plaintext port of an HTTP/1 server"),
        (settings_only, "it speaks HTTP/2 without TLS"),
        (accept_close, "hangs up during the TLS handshake"),
    ],
)
async def test_no_tls_port(behaviour, words):
    """CH-11: if a TLS handshake fails, the diagnosis describes the server's behaviour in plaintext."""
    async with FlakyFront(behaviour) as front:
        assert words in (await diagnosis(front.target, tls=client_tls(CA))).meaning


async def test_another_protocol_spoken_to_in_tls():
    """CH-11: a server of another protocol that was dialled with TLS is diagnosed as not being a TLS port."""
    async with peer(says("read", b"SSH-2.0-x\r\n", "hold")) as target:
        assert (
            "This is not a TLS port: in plaintext, it does not speak HTTP/2"
            in (await diagnosis(target, tls=client_tls(CA))).meaning
        )


async def test_silent_at_the_handshake():
    """CB-3: the diagnosis of a silent TLS handshake says that nothing answers. Takes three seconds beyond the limit."""
    async with FlakyFront(silent) as front:
        found = await diagnosis(front.target, tls=client_tls(CA), limit=0.3)
    assert "does not answer" in found.meaning


# Certificates.


@pytest.mark.parametrize(
    ("certificate", "words", "advice"),
    [
        (CA.issue_cert("localhost", not_after=PAST), "expired on 2020-01-02 00:00 UTC.", "Renew"),
        (CA.issue_cert("localhost", not_before=FUTURE), "becomes valid only on 2999-01-02 00:00 UTC.", "clock"),
        (
            CA.issue_cert("orders.example", "10.0.0.1"),
            "for orders.example, 10.0.0.1, issued by",
            "ssl_target_name_override",
        ),
        (trustme.CA().issue_cert("localhost"), "not signed by a trusted CA", "--ca"),
    ],
)
async def test_a_certificate_that_is_not_accepted(certificate, words, advice):
    """CH-11: for a rejected certificate, the diagnosis gives the problem, the certificate's subject and some advice."""
    async with openssl_peer(server_tls(certificate)) as target:
        found = await diagnosis(target.replace("127.0.0.1", "localhost"), tls=client_tls(CA))
    assert words in found.meaning
    assert "It is O=trustme" in found.meaning
    assert advice in found.advice


async def test_a_certificate_for_another_address():
    """CH-11: if the target is an IP address that is not in the certificate, the diagnosis is a name mismatch."""
    async with openssl_peer(server_tls(CA.issue_cert("localhost"))) as target:
        assert "is for a different name" in (await diagnosis(target, tls=client_tls(CA))).meaning


async def test_a_certificate_that_signs_itself(tmp_path):
    """CH-11: a self-signed certificate is diagnosed as not signed by a trusted CA."""
    alone = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (tmp_path / "pem").write_bytes(alone.private_key_pem.bytes() + alone.cert_pem.bytes())
    tls.load_cert_chain(tmp_path / "pem")
    async with openssl_peer(tls) as target:
        assert "not signed by a trusted CA" in (await diagnosis(target, tls=client_tls(CA))).meaning


async def test_a_certificate_that_is_not_shown_again():
    """CH-11: if the server is gone before its certificate can be fetched again, the first failure is diagnosed."""
    error = ConnectError(Failure(Stage.TLS, ""))
    async with openssl_peer(server_tls(trustme.CA().issue_cert("localhost"))) as target:
        connector = Http2Connector(target, tls=client_tls(CA))
        with pytest.raises(ConnectError) as caught:
            await connector.connect(5.0)
    error.__cause__ = caught.value.__cause__
    tried = Circumstances(address=connector.target.addresses[0], server_name="localhost", tls=True)
    found = await diagnose(error, tried)
    assert found.meaning == "The server's certificate is not signed by a trusted CA."


# ALPN.


@pytest.mark.parametrize(
    ("alpn", "words"), [((), "does not offer HTTP/2 by ALPN"), (("http/1.1",), "a TLS port that speaks only http/1.1")]
)
async def test_no_http2_behind_tls(alpn, words):
    """CH-11: if the server does not agree on h2 by ALPN, a second handshake determines which protocol it speaks."""
    async with openssl_peer(server_tls(CERTIFICATE, alpn=alpn)) as target:
        found = await diagnosis(target, tls=client_tls(CA))
    assert words in found.meaning
    assert "ALPN" in found.advice


# Client certificates.


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("shows_certificate", [False, True])
async def test_a_client_certificate_is_wanted(newest, shows_certificate):
    """CH-11: a missing client certificate and a rejected client certificate have different diagnoses."""
    stranger = trustme.CA().issue_cert("client.example") if shows_certificate else None
    async with openssl_peer(server_tls(CERTIFICATE, clients=CA, newest=newest)) as target:
        tls = client_tls(CA, certificate=stranger)
        found = await diagnosis(target, tls=tls, shows_certificate=shows_certificate)
    if shows_certificate:
        assert found.meaning == "The server does not accept the client certificate."
    else:
        assert "requires a client certificate" in found.meaning
        assert "--cert" in found.advice


async def test_a_grpc_server_that_wants_a_client_certificate():
    """CH-11: a grpc server that hangs up for lack of a client certificate is not taken for a broken proxy."""
    key = CERTIFICATE.private_key_pem.bytes(), CERTIFICATE.cert_chain_pems[0].bytes()
    server = grpc.ssl_server_credentials([key], root_certificates=CA.cert_pem.bytes(), require_client_auth=True)
    async with serving(credentials=server) as port:
        found = await diagnosis(f"127.0.0.1:{port}", tls=client_tls(CA))
        assert "like one that requires a client certificate" in found.meaning
        stranger = trustme.CA().issue_cert("client.example")
        tls = client_tls(CA, certificate=stranger)
        found = await diagnosis(f"127.0.0.1:{port}", tls=tls, shows_certificate=True)
        assert "may have rejected the client certificate" in found.meaning


async def test_a_proxy_behind_tls_whose_upstream_is_down():
    """CH-11: if a server that requires no certificate hangs up after the handshake, a broken proxy is suspected."""
    async with peer(says("read"), tls=server_tls(CERTIFICATE)) as target:
        found = await diagnosis(target, tls=client_tls(CA))
    assert found.meaning == "The server hangs up right after the TLS handshake."
    assert "upstream is down" in found.advice


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (["read", b"HTTP/1.1 400 Bad Request\r\n\r\n"], "This is an HTTP/1 server."),
        (["hold"], "sends nothing"),
    ],
)
async def test_no_settings_behind_tls(steps, words):
    """CH-11: if no SETTINGS follow a TLS handshake, the diagnosis says what the server sent instead."""
    async with peer(says(*steps), tls=server_tls(CERTIFICATE)) as target:
        assert words in (await diagnosis(target, tls=client_tls(CA), limit=0.5)).meaning


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("TLSV1_ALERT_NO_APPLICATION_PROTOCOL", "does not offer HTTP/2 by ALPN"),
        ("TLSV1_ALERT_PROTOCOL_VERSION", "none of the TLS versions"),
        ("UNSUPPORTED_PROTOCOL", "none of the TLS versions"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", "no TLS parameters in common"),
        ("TLSV1_UNRECOGNIZED_NAME", "no certificate for the requested name"),
        ("TLSV1_ALERT_UNKNOWN_CA", "requires a client certificate"),
    ],
)
async def test_what_a_server_says_as_it_breaks_off_tls(reason, words):
    """CH-11: each TLS alert has its own diagnosis, which is found by OpenSSL's name for the alert."""
    error = ConnectError(Failure(Stage.TLS, ""))
    error.__cause__ = ssl.SSLError(1, reason)
    error.__cause__.reason = reason
    address = Http2Connector("127.0.0.1:1").target.addresses[0]
    found = await diagnose(error, Circumstances(address=address, server_name="x", tls=True))
    assert words in found.meaning


# After SETTINGS.


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (Loss("GOAWAY NO_ERROR", graceful=True), "shutting down"),
        (Loss("GOAWAY ENHANCE_YOUR_CALM"), "then GOAWAY with an error"),
        (Loss("the server closed the connection"), "a proxy whose upstream is down"),
    ],
)
def test_lost_at_once(loss, words):
    """CB-7: the diagnosis of a connection that ends right after SETTINGS depends on how it ended."""
    assert words in diagnose_loss(loss).meaning


def test_settings_that_allow_no_call():
    """CH-11: SETTINGS that allow no concurrent streams are diagnosed as SETTINGS that allow no calls."""
    assert "no calls on it" in diagnose_settings({"MAX_CONCURRENT_STREAMS": 0}).meaning
    assert diagnose_settings({"MAX_CONCURRENT_STREAMS": 1}) is None
    assert diagnose_settings({}) is None


async def test_a_cause_that_is_not_known():
    """CH-11: a failure without a known cause, for instance from a custom connector, also has a diagnosis."""
    address = Http2Connector("127.0.0.1:1").target.addresses[0]
    for stage in (Stage.RESOLVE, Stage.TCP, Stage.TLS, Stage.SETTINGS):
        for tls in (False, True):
            found = await diagnose(
                ConnectError(Failure(stage, "")), Circumstances(address=address, server_name="localhost", tls=tls)
            )
            assert found.meaning
