"""`grpc-backoff connect --probe` with real sockets: its output, its exit status and its arguments."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import ssl
import sys

import grpc
import pytest
import trustme
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from grpc_backoff.cli.probe import probe, read_arguments
from grpc_backoff.cli.stage_report import StageReport
from grpc_backoff.cli.trust import Trust
from grpc_backoff.cli.view import LineView
from grpc_backoff.policy.presets import CONNECT
from grpc_backoff.probe.http2 import Http2Connector
from grpc_backoff.testing.front import FlakyFront, accept_close, settings_only, settings_then_close, silent
from tests.both_apis.wire import Streams
from tests.cli.running import LIMIT, check_refused, connect, invoke, line_with, on_terminal, running
from tests.echo import serving
from tests.peers import SETTINGS, goaway, nothing_left, openssl_peer, peer, says, server_tls
from tests.proxies import AT_HAND, need, unused_port
from tests.proxies import running as running_proxy

CA = trustme.CA()
CERTIFICATE = CA.issue_cert("localhost", "127.0.0.1", common_name="orders")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("grpc_proxy", "https_proxy", "http_proxy", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"):
        monkeypatch.delenv(name, raising=False)


async def probed(*arguments, **how):
    return await connect("--probe", *arguments, **how)


async def test_a_server_that_is_up():
    """CH-11: each stage prints a line, the last with the server's SETTINGS, and the status is 0."""
    async with serving() as port:
        lines = await probed(f"localhost:{port}")
    assert [line.split()[0] for line in lines[:3]] == ["resolve", "tcp", "settings"]
    assert f"127.0.0.1:{port}" in lines[1]
    assert "MAX_FRAME_SIZE 4194304" in lines[2]
    assert lines[3].startswith("health ")
    assert lines[3].endswith("the server answers calls: UNIMPLEMENTED 'Method not found!'")
    assert lines[-1].startswith("READY after ")


async def test_json_lines():
    """CH-11: `--json` writes one object per line; the last is the summary."""
    async with FlakyFront(settings_only) as front:
        lines = await probed(front.target, "--json", "--timeout", 2)
        assert len(front.visits) == 1
    objects = [json.loads(line) for line in lines]
    assert [(each["event"], each.get("stage")) for each in objects] == [
        ("stage", "resolve"),
        ("stage", "tcp"),
        ("stage", "settings"),
        ("answer", None),
        ("diagnosis", None),  # this server answers no calls
        ("summary", None),
    ]
    assert objects[3]["answered_by"] == "neither"
    assert objects[2]["settings"]["MAX_CONCURRENT_STREAMS"] == 100
    assert objects[-1]["ready"] is True


@pytest.mark.parametrize("name", AT_HAND)
async def test_a_proxy_whose_server_is_down(name):
    """CH-11: at READY, the probe says that a proxy answers in place of the server, how, and what to do."""
    need(name)
    with running_proxy(name, unused_port()) as proxy:
        lines = await probed(proxy.target)
        [answer] = [json.loads(line) for line in await probed(proxy.target, "--json") if '"answer"' in line]
    [health] = [line for line in lines if line.startswith("health ")]
    assert "a proxy answered a call in place of the server: " in health
    assert "The connection ends at a proxy, and the server behind it has not answered the call." in lines
    assert any(line.startswith("-> Check whether that server is up, its address in the proxy's") for line in lines)
    assert lines[-1].startswith("READY after ")
    said = {
        "envoy": (200, "UNAVAILABLE", "envoy"),
        "nginx": (502, None, "nginx"),
        "haproxy": (503, None, ""),
        "nghttpx": (502, None, "nghttpx"),
        "apache2": (503, None, "Apache"),
        "caddy": (502, None, "Caddy"),
    }
    http, status, server = said[name]
    assert (answer["answered_by"], answer["http"], answer["status"]) == ("proxy", http, status)
    assert (answer["server"] or "").startswith(server)


@pytest.mark.parametrize("name", AT_HAND)
async def test_a_proxy_whose_server_is_up(name):
    """CH-11: through a proxy, the probe says that the server answers; here, it has no health service."""
    need(name)
    async with serving() as port:
        with running_proxy(name, port) as proxy:
            lines = await probed(proxy.target)
    [health] = [line for line in lines if line.startswith("health ")]
    assert "the server answers calls: UNIMPLEMENTED 'Method not found!'" in health
    assert not any(line.startswith("-> ") for line in lines)


@pytest.mark.parametrize(("status", "advice"), [("SERVING", False), ("NOT_SERVING", True)])
async def test_a_server_with_a_health_service(status, advice):
    """CH-11, RO-1: the probe shows what the server's own health service says."""
    servicer = health.aio.HealthServicer()
    await servicer.set("", health_pb2.HealthCheckResponse.ServingStatus.Value(status))
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    lines = await probed(f"127.0.0.1:{port}")
    await server.stop(None)
    assert any(line.startswith("health ") and line.endswith(f"the server answers calls: {status}") for line in lines)
    assert any("says that it is NOT_SERVING" in line for line in lines) is advice


async def test_a_stream_that_is_reset():
    """CH-11: a call that is cut on a connection that stays is shown, with the error code."""
    async with FlakyFront(Streams(11)) as front:
        lines = await probed(front.target)
    assert any(line.startswith("health ") and line.endswith("a call was cut: RST_STREAM 11") for line in lines)
    assert any("the stream of a call on it was reset" in line for line in lines)


async def test_tls(tmp_path):
    """CH-8, CH-11: with TLS, the probe prints the version, ALPN and the server's certificate."""
    CA.cert_pem.write_to_path(tmp_path / "ca.pem")
    CA.issue_cert("client.example").private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
    files = ("--ca", tmp_path / "ca.pem", "--cert", tmp_path / "client.pem", "--key", tmp_path / "client.pem")
    async with peer(says(SETTINGS, "hold"), tls=server_tls(CERTIFICATE, clients=CA)) as target:
        lines = await probed(target, *files)
    [version] = [line for line in lines if line.startswith("tls ")]
    assert "TLSv1.3, ALPN h2" in version
    assert any("certificate: O=trustme" in line and "CN=orders" in line for line in lines)
    assert any("for: localhost, 127.0.0.1" in line for line in lines)
    assert any("until: 3000-01-01" in line for line in lines)


async def test_a_name_for_the_certificate(tmp_path):
    """CH-8: `--option grpc.ssl_target_name_override=NAME` has the same effect as the option of a channel."""
    CA.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = CA.issue_cert("orders.example")
    async with peer(says(SETTINGS, "hold"), tls=server_tls(certificate)) as target:
        arguments = (target, "--ca", tmp_path / "ca.pem")
        await probed(*arguments, status=1)
        await probed(*arguments, "--option", "grpc.ssl_target_name_override=orders.example")


async def test_a_failure_says_what_to_do(tmp_path):
    """CH-11: a failure prints the stage, the reason, its meaning and advice; the status is 1."""
    async with openssl_peer(server_tls(CERTIFICATE)) as target:
        lines = await probed(target, status=1)
    assert any(line.startswith("settings ") and f"FAILED: {target}: " in line for line in lines)
    assert any(line.startswith("This is a TLS port: a TLS handshake succeeds") for line in lines)
    assert any(line.startswith("-> Use TLS: --tls here") for line in lines)
    assert lines[-1].startswith("failed at stage settings after ")


async def test_a_failure_in_json():
    """CH-11: with `--json`, a failure is reported with its stage, error and diagnosis."""
    async with FlakyFront(silent) as front:
        await front.refuse()
        lines = await probed(front.target, "--json", status=1)
    objects = [json.loads(line) for line in lines]
    assert [each["event"] for each in objects] == ["stage", "failed", "diagnosis", "summary"]
    assert objects[1]["stage"] == objects[3]["stage"] == "tcp"
    assert objects[1]["error"] == objects[3]["error"] == f"{front.target}: Connection refused"
    assert objects[3]["ready"] is False


async def test_timeout_is_the_limit_of_the_attempt():
    """CB-3: `--timeout` limits all stages together, and the error names the one that hung."""
    async with FlakyFront(silent) as front:
        lines = await probed(front.target, "--timeout", "0.5", status=1)
        assert front.visits[0].ended - front.visits[0].at < 10  # without the option 20 s
    assert any("no SETTINGS frame within 0.5 s" in line for line in lines)


async def test_a_peer_that_is_gone_behind_its_settings():
    """CB-6, CB-7: if the peer hangs up after SETTINGS, the status is 0, and the likely cause of the loss is printed."""
    async with FlakyFront(settings_then_close(0.0)) as front:
        lines = await probed(front.target)
    assert any(line.startswith("established ") and "LOST: " in line for line in lines)
    assert any("closed the connection at once" in line for line in lines)
    assert lines[-1].startswith("READY after ")


async def test_a_server_that_allows_no_call():
    """CH-11: if a server's SETTINGS make the connection useless, the probe prints a remark."""
    frame = SETTINGS.replace(b"\x00\x03\x00\x00\x00\x64", b"\x00\x03\x00\x00\x00\x00")
    async with peer(says(frame, "hold")) as target:
        lines = await probed(target)
    assert any("MAX_CONCURRENT_STREAMS is 0" in line for line in lines)


async def test_what_a_server_says_is_made_harmless():
    """CH-11: control characters from a server are escaped before they reach the terminal."""
    async with peer(says("read", b"HTTP/1.1 200 \x1b]0;owned\x07\r\n")) as target:
        lines = await probed(target, status=1)
    assert all(line.isprintable() for line in lines)
    assert any("owned" in line for line in lines)


async def test_the_address_that_failed_is_looked_at():
    """CH-8: if several addresses fail, the one that got furthest is diagnosed."""
    async with openssl_peer(server_tls(CERTIFICATE)) as tls_port, FlakyFront(silent) as refusing:
        await refusing.refuse()
        lines = await probed(f"ipv4:{tls_port},{refusing.target}", status=1)
    assert any(line.startswith("This is a TLS port") for line in lines)
    assert any("trying the next address" in line for line in lines)


def tunnels(port, allowed):
    """Return the settings with which Apache is also an HTTP proxy, on another port, for CONNECT to one port."""
    lines = [
        "LoadModule proxy_connect_module /usr/lib/apache2/modules/mod_proxy_connect.so",
        f"Listen 127.0.0.1:{port}",
        f"<VirtualHost 127.0.0.1:{port}>",
        "Protocols http/1.1",
        "ProxyRequests On",
        f"AllowCONNECT {allowed}",
        "</VirtualHost>",
    ]
    return {"lines": "\n".join(lines)}


async def through(proxy, target, *arguments, **how):
    return await probed(target, *arguments, env={**os.environ, "http_proxy": proxy, "no_proxy": ""}, **how)


@pytest.mark.parametrize("secure", [False, True], ids=["plaintext", "TLS"])
async def test_through_a_proxy(tmp_path, secure):
    """CH-8: the probe goes through the HTTP proxy that a channel would use, here Apache, and names the way."""
    need("apache2")
    CA.cert_pem.write_to_path(tmp_path / "ca.pem")
    keys = [(CERTIFICATE.private_key_pem.bytes(), CERTIFICATE.cert_chain_pems[0].bytes())]
    credentials = grpc.ssl_server_credentials(keys) if secure else None
    async with serving(credentials=credentials) as port:
        proxy = unused_port()
        with running_proxy("apache2", unused_port(), **tunnels(proxy, port)):
            arguments = ["--ca", tmp_path / "ca.pem"] if secure else []
            lines = await through(f"http://127.0.0.1:{proxy}", f"localhost:{port}", *arguments)
            forbidden = await through(f"http://127.0.0.1:{proxy}", "localhost:1", status=1)
    assert lines[0] == "http_proxy is set: connecting through that HTTP proxy, as a channel does"
    assert any(f"connected to 127.0.0.1:{proxy}" in line for line in lines)
    assert any("through the HTTP proxy: HTTP/1.0 200 Connection Established" in line for line in lines)
    assert lines[-1].startswith("READY after ")
    assert "The HTTP proxy forbids this host or port." in forbidden


@pytest.mark.parametrize(
    ("answers", "meaning"),
    [
        ([b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"], "The HTTP proxy wants a user and a password."),
        ([b"HTTP/1.1 502 Bad Gateway\r\n\r\n"], "The HTTP proxy could not connect to the server."),
        ([b"HTTP/1.1 418 I'm a teapot\r\n\r\n"], "The HTTP proxy does not make the tunnel."),
        ([b"SSH-2.0-x\r\n"], "The HTTP proxy does not make the tunnel."),
        ([b"HTTP/1.1 200 OK\r\n"], "The HTTP proxy does not make the tunnel."),
        ([], "The HTTP proxy does not make the tunnel."),
    ],
)
async def test_a_proxy_that_makes_no_tunnel(answers, meaning):
    """CH-8: the probe says what an HTTP proxy answers, without the password in its URL, which the proxy gets."""
    asked = []

    async def behave(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        for answer in answers:
            writer.write(answer)

    async with peer(behave) as proxy:
        lines = await through(f"http://user:se%20cret@{proxy}", "shop.example.com", status=1)
    assert meaning in lines
    assert lines[-1].startswith("failed at stage tcp")
    assert "cret" not in "".join(lines)
    assert asked[0].startswith(b"CONNECT shop.example.com:443 HTTP/1.1\r\nHost: shop.example.com:443\r\n")
    assert b"Proxy-Authorization: Basic dXNlcjpzZSBjcmV0\r\n" in asked[0]


async def test_a_proxy_that_is_down():
    """CH-8: if nothing listens at the proxy's address, the probe says that the address is the proxy's."""
    lines = await through(f"http://127.0.0.1:{unused_port()}", "shop.example.com", status=1)
    assert "Nothing is listening at this address." in lines
    assert any(line.endswith("This is the address of the HTTP proxy.") for line in lines)


async def test_a_proxy_that_is_not_known():
    """CH-8: if the proxy's name cannot be resolved, the probe says whose name it is."""
    lines = await through("http://no.such.host.invalid:3128", "shop.example.com", status=1)
    assert any(line.endswith("This is the name of the HTTP proxy.") for line in lines)


def test_a_proxy_with_a_wrong_url(monkeypatch):
    """CH-8, CH-10: a URL that names no host is an error without the URL, which may have a password."""
    monkeypatch.setenv("http_proxy", "http://user:secret@[::1")
    monkeypatch.setenv("no_proxy", "")
    done = invoke("connect", "shop.example.com", "--probe")
    check_refused(done, "expected a URL such as")
    assert "secret" not in done.output


@pytest.mark.parametrize(("tls", "stage"), [(False, "settings"), (True, "tls")])
async def test_a_server_behind_a_proxy_that_hangs_up(tls, stage):
    """CH-8: behind a proxy, nothing more is dialled to explain a failure: only the first connection is made."""
    visits = []

    async def behave(reader, writer):
        visits.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

    async with peer(behave) as proxy:
        lines = await through(f"http://{proxy}", "shop.example.com", *(["--tls"] if tls else []), status=1)
    assert lines[-1].startswith(f"failed at stage {stage}")
    assert len(visits) == 1


@pytest.mark.parametrize(
    "variables",
    [
        {"http_proxy": "http://proxy.invalid:3128", "no_proxy": "127.0.0.1"},
        {"http_proxy": "https://proxy.invalid:3128"},
    ],
)
async def test_a_proxy_that_does_not_apply(variables):
    """CH-8: the probe mentions no proxy that a channel to this target would not use."""
    async with FlakyFront(settings_only) as front:
        lines = await probed(front.target, env={**os.environ, **variables})
    assert not any("proxy" in line for line in lines if "is set" in line)


async def test_on_a_terminal():
    """CH-11: on a terminal, the probe shows colours and a spinner, and restores the cursor at the end."""
    async with FlakyFront(accept_close) as front:
        shown = await on_terminal(front.target, "--probe", term="xterm-256color")
    assert "FAILED" in shown
    assert "\x1b[" in shown
    assert "failed at stage " in shown


async def test_interrupt_is_no_traceback():
    """CB-10: Ctrl-C during a stage closes the socket and prints "Aborted!" without a traceback."""
    async with FlakyFront(silent) as front, running(front.target, "--probe") as process:
        await line_with(process, "tcp ")
        process.send_signal(signal.SIGINT)
        _, errors = await asyncio.wait_for(process.communicate(), LIMIT)
    assert process.returncode == 1
    assert errors.endswith(b"\nAborted!\n")
    assert b"Traceback" not in errors


async def test_nothing_is_left():
    """CB-10: a probe in this process leaves nothing behind, whether it succeeds or fails."""
    for behaviour, ready in ((settings_only, True), (accept_close, False)):
        async with FlakyFront(behaviour) as front, nothing_left():
            assert await probe(Http2Connector(front.target), 20.0, StageReport(LineView())) is ready


class Broken(StageReport):
    """A report that raises an exception when a stage has passed."""

    def resolved(self, took, addresses):
        raise ValueError(addresses)


@pytest.mark.parametrize("behaviour", [settings_only, accept_close])
async def test_a_report_that_raises(behaviour, caplog):
    """CH-11: an exception from the report is raised, and no socket is left open."""
    gc.collect()  # what other tests have left may log when it is collected
    caplog.clear()
    async with FlakyFront(behaviour) as front, nothing_left():
        with pytest.raises(ValueError, match="AF_INET"):
            await probe(Http2Connector(front.target), 20.0, Broken(LineView()))
    assert caplog.records == []


async def test_settings_and_goaway_in_one():
    """CB-7: a connection that ends with its SETTINGS is READY and lost, and no call is made on it."""
    async with peer(says("read", SETTINGS + goaway(0, b"bye"), "hold")) as target:
        lines = await probed(target)
    assert any("LOST: GOAWAY NO_ERROR, 'bye'" in line for line in lines)
    assert not any("a call" in line for line in lines)


# Arguments of the command line.


def test_files_that_hold_something_else(tmp_path):
    """CH-10: PEM files with the wrong content, mismatched keys and encrypted keys are refused."""
    from cryptography.hazmat.primitives import serialization

    CA.cert_pem.write_to_path(tmp_path / "ca.pem")
    one, two = CA.issue_cert("one.example"), CA.issue_cert("two.example")
    one.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    two.private_key_pem.write_to_path(tmp_path / "key.pem")
    key = serialization.load_pem_private_key(one.private_key_pem.bytes(), None)
    (tmp_path / "encrypted.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    cases = [
        (["--ca", tmp_path / "key.pem"], "--ca"),
        (["--cert", tmp_path / "cert.pem", "--key", tmp_path / "key.pem"], "--cert and --key"),
        (["--cert", tmp_path / "cert.pem", "--key", tmp_path / "encrypted.pem"], "encrypted"),
    ]
    for arguments, word in cases:
        check_refused(invoke("connect", "--probe", "127.0.0.1:1", *arguments), word)


def test_without_h2_one_line_says_what_to_install(monkeypatch):
    """Without h2, the command names the extra to install and exits with status 1."""
    monkeypatch.setitem(sys.modules, "h2", None)
    packages = "pip install 'grpc-backoff[probe]', or '.[probe]' in a checkout"
    done = invoke("connect", "--probe", "127.0.0.1:1")
    check_refused(done, f"Error: connect --probe needs the extra 'probe': {packages}\n", status=1)


def read(**given):
    defaults = {"trust": None, "options": [], "timeout": None}
    return read_arguments("localhost:1", **{**defaults, **given})


def test_the_limit_is_the_policys():
    """CB-3: without `--timeout`, the limit is MIN_CONNECT_TIMEOUT."""
    assert read()[1] == CONNECT.min_connect_timeout
    assert read(timeout=3.0)[1] == 3.0


def test_certificates_are_checked_as_grpc_checks_them(monkeypatch, tmp_path):
    """CH-8: trusted CAs may come from grpc's environment variable, and may be certificates that are not self-signed."""
    assert read()[0].tls is None
    CA.cert_pem.write_to_path(tmp_path / "ca.pem")
    made = ssl.create_default_context

    def newer(**how):
        context = made(**how)
        context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
        return context

    monkeypatch.setattr(ssl, "create_default_context", newer)
    monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(tmp_path / "ca.pem"))
    context = read(trust=Trust())[0].tls
    assert len(context.get_ca_certs()) == 1
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
