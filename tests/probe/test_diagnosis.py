"""Every diagnosis, mostly with a real server that causes it."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import errno
import socket
import ssl

import grpc
import pytest
import trustme
from hyperframe.frame import SettingsFrame

from grpc_backoff import ConnectError, Failure, Stage
from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.config.target import parse_target
from grpc_backoff.connection.connector import Loss
from grpc_backoff.probe.diagnoses import Diagnosis
from grpc_backoff.probe.diagnosis import diagnose, diagnose_loss, diagnose_settings
from grpc_backoff.probe.http2 import Http2Connector
from grpc_backoff.probe.stages import NoSettings
from grpc_backoff.testing.front import FlakyFront, accept_close, accept_reset, http1_answer, settings_only, silent
from tests.echo import serving
from tests.peers import SETTINGS, client_tls, deaf_port, goaway, nothing_left, openssl_peer, peer, says, server_tls
from tests.proxies import need, running, unused_port

CA = trustme.CA()
CERTIFICATE = CA.issue_cert("localhost", "127.0.0.1", common_name="orders")
KEY = CERTIFICATE.private_key_pem.bytes(), CERTIFICATE.cert_chain_pems[0].bytes()
SLOW = 10.0
"""A time limit in seconds, much longer than anything here takes."""
TLS_ALERT = b"\x15\x03\x01\x00\x02\x02\x16"
HTTP1 = b"HTTP/1.1 400 Bad Request\r\n\r\n"
NOWHERE = parse_target("127.0.0.1:1").addresses[0]
PAST, FUTURE = dt.datetime(2020, 1, 2, tzinfo=dt.UTC), dt.datetime(2999, 1, 2, tzinfo=dt.UTC)


def tried(tls, address):
    """Return a connector whose attempt has failed at this address."""
    connector = Http2Connector("localhost:1", tls=client_tls(CA) if tls else None)
    connector.address = address
    return connector


async def diagnosis(target, stage, *words, tls=None, limit=5.0, shows_certificate=False):
    """Make an attempt that must fail at this stage and return its diagnosis; check that nothing is left open.

    The words must be in the failure's reason, in the diagnosis's meaning or in its advice.
    """
    async with nothing_left():
        connector = Http2Connector(target, tls=tls, shows_certificate=shows_certificate)
        with pytest.raises(ConnectError) as caught:
            await asyncio.wait_for(connector.connect(limit), SLOW)
        assert caught.value.failure.stage is stage
        assert stage is not Stage.SETTINGS or isinstance(caught.value.__cause__, NoSettings)
        found = await diagnose(caught.value, connector)
    assert isinstance(found, Diagnosis)
    assert found.meaning.endswith(".")
    assert found.advice.endswith(".")
    said = f"{caught.value.failure.reason}\n{found.meaning}\n{found.advice}"
    assert [word for word in words if word not in said] == []
    return found


# Name resolution and TCP.


def alert(name):
    """Return the error of a handshake that the server has ended with this alert, by OpenSSL's name."""
    error = ssl.SSLError(1, name)
    error.reason = name
    return error


@pytest.mark.parametrize(
    ("stage", "cause", "words"),
    [
        (Stage.RESOLVE, socket.gaierror(socket.EAI_NONAME, "Name not known"), "does not know this host name"),
        (Stage.RESOLVE, socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "No name server answered"),
        (Stage.RESOLVE, TimeoutError(), "No name server answered"),
        (Stage.TCP, OSError(errno.EHOSTUNREACH, ""), "no route to the host"),
        (Stage.TCP, OSError(errno.ENETUNREACH, ""), "no route to the host"),
        (Stage.TCP, OSError(errno.ETIMEDOUT, ""), "No answer"),
        (Stage.TCP, OSError(errno.EACCES, ""), "not allowed to connect"),
        (Stage.TCP, OSError(errno.EMFILE, ""), "No socket connection could be made"),
        (Stage.TLS, alert("TLSV1_ALERT_NO_APPLICATION_PROTOCOL"), "does not offer HTTP/2 by ALPN"),
        (Stage.TLS, alert("TLSV1_ALERT_PROTOCOL_VERSION"), "none of the TLS versions"),
        (Stage.TLS, alert("UNSUPPORTED_PROTOCOL"), "none of the TLS versions"),
        (Stage.TLS, alert("SSLV3_ALERT_HANDSHAKE_FAILURE"), "no TLS parameters in common"),
        (Stage.TLS, alert("TLSV1_UNRECOGNIZED_NAME"), "no certificate for the requested name"),
        (Stage.TLS, alert("TLSV1_ALERT_UNKNOWN_CA"), "requires a client certificate"),
    ],
)
async def test_causes(stage, cause, words):
    """CH-11: errors that depend on the machine, or that do not occur on loopback, have their own diagnoses."""
    error = ConnectError(Failure(stage, ""))
    error.__cause__ = cause
    tls = stage is Stage.TLS
    found = await diagnose(error, tried(tls, NOWHERE if tls else None))
    assert words in found.meaning


@pytest.mark.parametrize("name", ["a..b", "x" * 300])
async def test_no_such_name(name):
    """CH-11: the diagnosis of a malformed host name says that no such host exists."""
    words = "this is not a host name", "does not know this host name"
    await diagnosis(f"{name}:1", Stage.RESOLVE, *words)


async def test_packets_that_vanish():
    """CB-3: if a connection request gets no answer within the limit, the diagnosis says that there was none."""
    with deaf_port() as target:
        await diagnosis(target, Stage.TCP, "No answer", limit=0.3)


async def test_no_socket_file(tmp_path):
    """CH-11: the diagnosis of a missing Unix socket says that the file does not exist."""
    await diagnosis(f"unix:{tmp_path}/nowhere", Stage.TCP, "/nowhere: ", "no such socket file")


async def test_a_unix_socket_without_room(tmp_path):
    """CB-6, CH-11: the diagnosis of a Unix socket whose backlog is full says that it accepts no more connections.

    The attempt fails, although asyncio reports success.
    """
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as before:
        listener.bind(f"{tmp_path}/s")
        listener.listen(0)
        before.connect(f"{tmp_path}/s")
        await diagnosis(f"unix:{tmp_path}/s", Stage.TCP, "accepts no more connections")


async def test_a_unix_socket_without_a_server(tmp_path):
    """CH-11: a Unix socket without a server, a socket of another type and an overlong path have different diagnoses."""
    with socket.socket(socket.AF_UNIX) as dead, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        dead.bind(f"{tmp_path}/dead")
        other.bind(f"{tmp_path}/other")
        await diagnosis(f"unix:{tmp_path}/dead", Stage.TCP, "nothing is listening on it", "outlives its server")
        await diagnosis(f"unix:{tmp_path}/other", Stage.TCP, "another type")
    with pytest.raises(OptionError, match="expected"):
        await diagnosis(f"unix:{tmp_path}/{'x' * 200}", Stage.TCP, "too long")


async def test_a_unix_socket_of_another_server(tmp_path):
    """CH-11: advice for a Unix socket mentions the socket instead of a port."""
    async with peer(says("read", HTTP1), path=f"{tmp_path}/s") as target:
        found = await diagnosis(target, Stage.SETTINGS, "HTTP/1 server", "Use the socket of the gRPC server")
    assert " port" not in found.meaning + found.advice


# Servers of another kind, and servers that break off.


@contextlib.asynccontextmanager
async def nobody():
    """Yield a target where nobody listens."""
    async with FlakyFront(silent) as front:
        await front.refuse()
        yield front.target


def front(behaviour):
    return lambda: FlakyFront(behaviour)


def plain(*steps):
    return lambda: peer(says(*steps))


def with_tls(*steps):
    return lambda: peer(says(*steps), tls=server_tls(CERTIFICATE))


def openssl(certificate=CERTIFICATE, **how):
    return lambda: openssl_peer(server_tls(certificate, **how))


def at(server, stage, *words, secure=False, limit=5.0):
    """Return a server, the stage at which attempts fail there, words of failure and diagnosis, and how to dial."""
    return server, stage, words, {"tls": client_tls(CA) if secure else None, "limit": limit}


MAIL = b"220 mail\x1b[2J\r\n"
SSH = b"SSH-2.0-x\r\n"
HANGS_UP = ("it had sent nothing", "The server accepts the connection and hangs up.", "upstream is down")
SERVERS = {
    "nobody": at(nobody, Stage.TCP, ": Connection refused", "Nothing is listening at this address."),
    "HTTP/1": at(
        front(http1_answer),
        Stage.SETTINGS,
        *("it answered in HTTP/1: 'HTTP/1.1 400 Bad Request'", "This is an HTTP/1 server.", "port of the gRPC server"),
    ),
    "HTTP/1 behind TLS": at(with_tls("read", HTTP1), Stage.SETTINGS, "This is an HTTP/1 server.", secure=True),
    "HTTP/1, by TLS": at(front(http1_answer), Stage.TLS, "a plaintext port of an HTTP/1 server", secure=True),
    "mail": at(plain("read", MAIL, "hold"), Stage.SETTINGS, "This is not a gRPC server: see its answer above."),
    "mail, by TLS": at(plain("read", MAIL, "hold"), Stage.TLS, r"; it sent '220 mail\x1b[2J\r\n'", secure=True),
    "SSH": at(plain("read", SSH, "hold"), Stage.SETTINGS, "it does not speak HTTP/2"),
    "SSH, by TLS": at(
        plain("read", SSH, "hold"),
        Stage.TLS,
        "This is not a TLS port: in plaintext, it does not speak HTTP/2",
        secure=True,
    ),
    "another frame": at(plain("read", goaway(), "hold"), Stage.SETTINGS, "its first frame was GoAway"),
    "half a frame, and silence": at(
        plain("read", SETTINGS[:10], "hold"), Stage.SETTINGS, "stops in the middle of its first frame", limit=0.3
    ),
    "forbidden SETTINGS": at(
        plain("read", SettingsFrame(0, settings={5: 1}).serialize(), "hold"),
        Stage.SETTINGS,
        *("its SETTINGS frame is not valid", "speaks HTTP/2, but its SETTINGS are not valid"),
    ),
    "half a frame": at(
        plain("read", SETTINGS[:10]), Stage.SETTINGS, "it stopped in the middle of its SETTINGS frame", "hangs up."
    ),
    "TLS": at(plain("read", TLS_ALERT), Stage.SETTINGS, "it answered in TLS", "port: it answers in TLS.", "--tls"),
    "grpc's TLS port": at(
        lambda: serving(credentials=grpc.ssl_server_credentials([KEY])), Stage.SETTINGS, "This is a TLS port"
    ),
    "grpc's plaintext port, by TLS": at(
        serving,
        Stage.TLS,
        *("wrong version number", "a plaintext port: it speaks HTTP/2 without TLS.", "insecure_channel"),
        secure=True,
    ),
    "SETTINGS, by TLS": at(front(settings_only), Stage.TLS, "it speaks HTTP/2 without TLS", secure=True),
    "a close": at(front(accept_close), Stage.SETTINGS, *HANGS_UP),
    "a reset": at(front(accept_reset), Stage.SETTINGS, *HANGS_UP),
    "a close at the handshake": at(front(accept_close), Stage.TLS, "hangs up during the TLS handshake", secure=True),
    "a close behind TLS": at(  # as of a proxy
        with_tls("read"),
        Stage.SETTINGS,
        *("The server hangs up right after the TLS handshake.", "upstream is down"),
        secure=True,
    ),
    # CB-3: silence, which takes three seconds beyond the limit.
    "silence": at(front(silent), Stage.SETTINGS, "accepts the connection but sends nothing", limit=0.3),
    "silence at the handshake": at(front(silent), Stage.TLS, "does not answer", secure=True, limit=0.3),
    "silence behind TLS": at(with_tls("hold"), Stage.SETTINGS, "sends nothing", secure=True, limit=0.5),
    "no ALPN": at(openssl(alpn=()), Stage.TLS, "does not offer HTTP/2 by ALPN", "negotiated by ALPN", secure=True),
    "only HTTP/1 by ALPN": at(
        openssl(alpn=("http/1.1",)),
        Stage.TLS,
        *("a TLS port that speaks only http/1.1", "negotiated by ALPN"),
        secure=True,
    ),
    "a name instead of an address": at(
        openssl(CA.issue_cert("localhost")), Stage.TLS, "is for a different name", secure=True
    ),
}


@pytest.mark.parametrize(("server", "stage", "words", "how"), SERVERS.values(), ids=SERVERS)
async def test_servers(server, stage, words, how):
    """CB-3, CB-6, CH-11: an attempt fails with a stage and a reason, and its diagnosis has a meaning and advice."""
    async with server() as place:
        target = f"127.0.0.1:{place}" if isinstance(place, int) else getattr(place, "target", place)
        await diagnosis(target, stage, *words, **how)


@pytest.mark.parametrize("alpn", [("h2",), ("http/1.1",), ()])
async def test_a_tls_port_spoken_to_in_plaintext(alpn):
    """CH-11: if a TLS port was dialled in plaintext, a TLS handshake detects it and also shows its ALPN."""
    async with openssl_peer(server_tls(CERTIFICATE, alpn=alpn)) as target:
        found = await diagnosis(target, Stage.SETTINGS)
    assert "This is a TLS port: a TLS handshake succeeds (TLSv1.3)." in found.meaning
    assert "--tls" in found.advice
    assert ("gRPC needs h2" in found.meaning) is (alpn != ("h2",))
    assert ("http/1.1" in found.meaning) is (alpn == ("http/1.1",))


# Certificates.


@pytest.mark.parametrize(
    ("certificate", "reason", "meaning", "advice"),
    [
        (CA.issue_cert("localhost", not_after=PAST), "has expired", "expired on 2020-01-02 00:00 UTC.", "Renew"),
        (CA.issue_cert("localhost", not_before=FUTURE), "", "becomes valid only on 2999-01-02 00:00 UTC.", "clock"),
        (
            CA.issue_cert("orders.example", "10.0.0.1"),
            "Hostname mismatch",
            "for orders.example, 10.0.0.1, issued by",
            "ssl_target_name_override",
        ),
        (
            trustme.CA().issue_cert("localhost"),
            "unable to get local issuer certificate",
            "not signed by a trusted CA",
            "--ca",
        ),
    ],
)
async def test_a_certificate_that_is_not_accepted(certificate, reason, meaning, advice):
    """CH-11: for a rejected certificate, OpenSSL's reason, the problem, the certificate's subject and some advice."""
    async with openssl_peer(server_tls(certificate)) as place:
        target = place.replace("127.0.0.1", "localhost")
        await diagnosis(target, Stage.TLS, reason, meaning, "It is O=trustme", advice, tls=client_tls(CA))


async def test_a_certificate_that_signs_itself(tmp_path):
    """CH-11: a self-signed certificate is diagnosed as not signed by a trusted CA."""
    alone = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (tmp_path / "pem").write_bytes(alone.private_key_pem.bytes() + alone.cert_pem.bytes())
    tls.load_cert_chain(tmp_path / "pem")
    async with openssl_peer(tls) as target:
        await diagnosis(target, Stage.TLS, "not signed by a trusted CA", tls=client_tls(CA))


async def test_a_certificate_that_is_not_shown_again():
    """CH-11: if the server is gone before its certificate can be fetched again, the first failure is diagnosed."""
    error = ConnectError(Failure(Stage.TLS, ""))
    async with openssl_peer(server_tls(trustme.CA().issue_cert("localhost"))) as target:
        connector = Http2Connector(target, tls=client_tls(CA))
        with pytest.raises(ConnectError) as caught:
            await connector.connect(5.0)
    error.__cause__ = caught.value.__cause__
    found = await diagnose(error, connector)
    assert found.meaning == "The server's certificate is not signed by a trusted CA."


# Client certificates.


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("shows_certificate", [False, True])
async def test_a_client_certificate_is_wanted(newest, shows_certificate):
    """CH-11: a missing client certificate and a rejected client certificate have different diagnoses.

    Both fail at stage tls, even though TLS 1.3 reports them after the handshake.
    """
    stranger = trustme.CA().issue_cert("client.example") if shows_certificate else None
    words = ["The server does not accept the client certificate."]
    if not shows_certificate:
        words = ["requires a client certificate.", "--cert"]
        words += ["certificate required"] if newest is ssl.TLSVersion.TLSv1_3 else []
    async with openssl_peer(server_tls(CERTIFICATE, clients=CA, newest=newest)) as target:
        tls = client_tls(CA, certificate=stranger)
        await diagnosis(target, Stage.TLS, *words, tls=tls, shows_certificate=shows_certificate)


async def test_a_grpc_server_that_wants_a_client_certificate():
    """CH-11: a grpc server that hangs up for lack of a client certificate is not taken for a broken proxy."""
    server = grpc.ssl_server_credentials([KEY], root_certificates=CA.cert_pem.bytes(), require_client_auth=True)
    async with serving(credentials=server) as port:
        words = "like one that requires a client certificate"
        await diagnosis(f"127.0.0.1:{port}", Stage.SETTINGS, words, tls=client_tls(CA))
        stranger = trustme.CA().issue_cert("client.example")
        words = "may have rejected the client certificate"
        tls = client_tls(CA, certificate=stranger)
        await diagnosis(f"127.0.0.1:{port}", Stage.SETTINGS, words, tls=tls, shows_certificate=True)


# After SETTINGS.


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (Loss("GOAWAY NO_ERROR", graceful=True), "shutting down"),
        (Loss("GOAWAY ENHANCE_YOUR_CALM"), "then GOAWAY with an error"),
        (Loss("the server closed the connection"), "closed the connection at once"),
        (Loss("it announced a frame of 16777215 bytes"), "not valid HTTP/2"),
        (Loss("it violated HTTP/2: Invalid stream ID for peer."), "not valid HTTP/2"),
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
    for stage in (Stage.RESOLVE, Stage.TCP, Stage.TLS, Stage.SETTINGS):
        for tls in (False, True):
            assert (await diagnose(ConnectError(Failure(stage, "")), tried(tls, NOWHERE))).meaning


def also_listens(name, port, file):
    """Return the settings with which a proxy also listens with TLS, but without HTTP/2, as it does by default."""
    if name == "nginx":
        keys = f"ssl_certificate {file}; ssl_certificate_key {file};"
        return {"server": f"listen 127.0.0.1:{port} ssl; {keys}"}
    lines = [
        "LoadModule ssl_module /usr/lib/apache2/modules/mod_ssl.so",
        f"Listen 127.0.0.1:{port}",
        f"<VirtualHost 127.0.0.1:{port}>",
        "Protocols http/1.1",
        "SSLEngine on",
        f"SSLCertificateFile {file}",
        "</VirtualHost>",
    ]
    return {"lines": "\n".join(lines)}


@pytest.mark.parametrize("name", ["nginx", "apache2"])
async def test_a_tls_port_without_http2(tmp_path, name):
    """CH-11: nginx answers ALPN with an alert and plaintext with a page, Apache ALPN with what was not offered."""
    need(name)
    file, port = tmp_path / "server.pem", unused_port()
    CERTIFICATE.private_key_and_cert_chain_pem.write_to_path(file)
    with running(name, unused_port(), **also_listens(name, port, file)):
        target = f"127.0.0.1:{port}"
        await diagnosis(target, Stage.TLS, "a TLS port that speaks only http/1.1", "Enable HTTP/2", tls=client_tls(CA))
        await diagnosis(target, Stage.SETTINGS, "This is a TLS port", "negotiates http/1.1, but gRPC needs h2")
