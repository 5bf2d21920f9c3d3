"""The texts on the page about troubleshooting are those that users get: each is provoked here."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import re
import ssl
import sys

import grpc
import grpc.aio
import pytest
import trustme
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived

import grpc_backoff
from grpc_backoff import Stage, aio, tls_files
from grpc_backoff.testing.front import FlakyFront, accept_close, http1_answer, settings_then_close, silent
from tests.certificates import AUTHORITY, client_credentials, server_credentials
from tests.docs.pages import read
from tests.peers import openssl_peer, peer, says
from tests.ports import port_of_localhost
from tests.programs import output
from tests.proxies import need, running, unused_port

STAGES = "|".join(stage.value for stage in Stage)
TABLE = re.findall(rf"^\| `({STAGES}): ([^`]*)`", read("troubleshooting.md"), re.MULTILINE)
"""The stage and the text in each row about attempts to connect."""
OTHER = [("grpc.ssl_target_name_override", "other.example.com")]
FAILED = "CERTIFICATE_VERIFY_FAILED"
FORBIDDEN = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n"
INVALID = [("grpc.service_config", '{"methodConfig": 1}')]
NO_FILES = "Too many open files"
NOT_HTTP2 = "Expected SETTINGS frame as the first frame"
SHORT = [("grpc.min_reconnect_backoff_ms", 500), ("grpc.initial_reconnect_backoff_ms", 500)]


@contextlib.asynccontextmanager
async def serving(credentials=None, health=None):
    server = grpc.aio.server()
    if health is not None:
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("grpc.health.v1.Health", health)])
    with port_of_localhost() as port:
        address = f"localhost:{port}"
        _ = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
        await server.start()
        yield address
        await server.stop(None)


@contextlib.asynccontextmanager
async def fronted(behaviour):
    async with FlakyFront(behaviour) as front:
        yield front.target


def nowhere(target):
    return contextlib.nullcontext(target)


def secure(credentials=server_credentials):
    return serving(credentials())


def stranger():
    return grpc.ssl_channel_credentials(trustme.CA().cert_pem.bytes())


def no_pem():
    return grpc.ssl_channel_credentials(b"no PEM")


def no_file():
    return tls_files(ca="/nowhere/ca.pem")


def no_pem_file():
    return tls_files(ca=__file__)


def credentials_of(issued, *others):
    chain = b"".join(pem.bytes() for pem in (issued.cert_chain_pems[0], *others))
    return grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), chain)])


def valid_in(year):
    first, last = (dt.datetime(year + more, 1, 1, tzinfo=dt.UTC) for more in (0, 1))
    return credentials_of(AUTHORITY.issue_cert("localhost", not_before=first, not_after=last))


def expired():
    return valid_in(2019)


def not_yet():
    return valid_in(2090)


def with_its_authority():
    authority = trustme.CA()
    return credentials_of(authority.issue_cert("localhost"), authority.cert_pem)


def without_its_chain():
    return credentials_of(AUTHORITY.create_child_ca().issue_cert("localhost"))


def tls_server(*protocols, **settings):
    """Return the context of a server with OpenSSL's TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("localhost", "127.0.0.1").configure_cert(context)
    AUTHORITY.configure_trust(context)
    context.set_alpn_protocols(list(protocols))
    for name, value in settings.items():
        setattr(context, name, value)
    return context


def wants_a_certificate():
    return openssl_peer(tls_server("h2", verify_mode=ssl.CERT_REQUIRED))


def chooses_no_protocol():
    return peer(says("hold"), tls=tls_server("http/1.1"))


def refuses_the_protocol():
    alert = bytes([21, 3, 3, 0, 2, 2, 120])  # a fatal alert, no_application_protocol (RFC 7301), as nginx sends it
    return peer(says("read", alert, "hold"))


@contextlib.asynccontextmanager
async def through_a_proxy(*answer):
    """Let the environment name an HTTP proxy; yield a target behind it."""
    async with peer(says("read", *answer, "hold")) as proxy:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("http_proxy", f"http://{proxy}")
            yield "shop.example.com:443"


@pytest.mark.parametrize(
    ("peer", "credentials", "options", "stage", "text"),
    [
        (lambda: nowhere("no.such.host.invalid:443"), None, [], Stage.RESOLVE, "Domain name not found"),
        (lambda: nowhere("::1:50051"), None, [], Stage.RESOLVE, "Misformatted domain name"),
        (lambda: nowhere("localhost:grpc"), None, [], Stage.RESOLVE, "Failed to parse port in name"),
        (lambda: nowhere("127.0.0.1:1"), no_file, [], Stage.CREDENTIALS, "cannot be read"),
        (lambda: nowhere("127.0.0.1:1"), no_pem_file, [], Stage.CREDENTIALS, "is not a PEM file"),
        (lambda: nowhere("ipv4:127.0.0.1"), None, [], Stage.RESOLVE, "the target uri is not valid"),
        (lambda: nowhere("127.0.0.1:1"), None, INVALID, Stage.UNKNOWN, "errors validating service config"),
        (lambda: nowhere("127.0.0.1:1"), None, [], Stage.TCP, "Connection refused"),
        (lambda: nowhere("unix:/nowhere/shop.sock"), None, [], Stage.TCP, "No such file or directory"),
        (secure, stranger, [], Stage.TLS, f"{FAILED}: unable to get local issuer certificate"),
        (secure, no_pem, [], Stage.TLS, "Failed to create security handshaker"),
        (lambda: secure(expired), client_credentials, [], Stage.TLS, f"{FAILED}: certificate has expired"),
        (lambda: secure(not_yet), client_credentials, [], Stage.TLS, f"{FAILED}: certificate is not yet valid"),
        (lambda: secure(with_its_authority), stranger, [], Stage.TLS, f"{FAILED}: self signed certificate"),
        (lambda: secure(without_its_chain), client_credentials, [], Stage.TLS, f"{FAILED}: unable to get local issuer"),
        (chooses_no_protocol, client_credentials, [], Stage.TLS, "Cannot check peer: missing selected ALPN property"),
        (refuses_the_protocol, client_credentials, [], Stage.TLS, "NO_APPLICATION_PROTOCOL"),
        (wants_a_certificate, client_credentials, [], Stage.TLS, "Unwrap failed"),
        (lambda: through_a_proxy(FORBIDDEN), None, [], Stage.TCP, "HTTP proxy returned response code 407"),
        (lambda: peer(says(b"SSH-2.0-OpenSSH_9.2\r\n", "hold")), None, [], Stage.SETTINGS, NOT_HTTP2),
        (secure, client_credentials, OTHER, Stage.TLS, "Hostname Verification Check failed"),
        (serving, client_credentials, [], Stage.TLS, "WRONG_VERSION_NUMBER"),
        (secure, None, [], Stage.SETTINGS, "Socket closed|Connection reset by peer"),
        (lambda: fronted(accept_close), None, [], Stage.SETTINGS, "Socket closed|Connection reset by peer"),
        (lambda: fronted(http1_answer), None, [], Stage.SETTINGS, "Trying to connect an http1.x server"),
        (lambda: fronted(silent), None, SHORT, Stage.SETTINGS, "no SETTINGS frame within the attempt's time limit"),
        (lambda: fronted(settings_then_close()), None, [], Stage.ESTABLISHED, "the connection was lost"),
    ],
)
async def test_no_connection(peer, credentials, options, stage, text):
    """CH-4, CH-11: the page lists the stage and the text of what happens, and the call's error has both."""
    async with peer() as target:
        if credentials is None:
            channel = aio.insecure_channel(target, options=options)
        else:
            channel = aio.secure_channel(target, credentials(), options=options)
        async with channel:
            with pytest.raises(aio.NoConnectionError) as error:
                await channel.unary_unary("/shop.Orders/Place")(b"", timeout=30)

    assert re.search(f"{stage.value}: .*?(?:{text})|{stage.value}: (?:{text})", error.value.details())
    listed = [row for row in read("troubleshooting.md").splitlines() if row.startswith(f"| `{stage.value}: ")]
    assert any(re.search(text, row) for row in listed)


async def not_serving(_request, _context):
    yield b"\x08\x02"
    await asyncio.sleep(60)


async def refuses(_request, context):
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
    yield b""


@pytest.mark.parametrize(
    ("watch", "text"),
    [(not_serving, "the server reports NOT_SERVING"), (refuses, "its health service ended the call with")],
)
async def test_no_healthy_server(watch, text):
    """CH-4, RO-1: the page lists what calls say while the only server does not serve."""
    handlers = {"Watch": grpc.unary_stream_rpc_method_handler(watch)}
    checked = [*SHORT, ("grpc.service_config", '{"healthCheckConfig": {"serviceName": ""}}')]
    async with serving(health=handlers) as target, aio.insecure_channel(target, options=checked) as channel:
        while True:  # at first, the server's health is not known, and it takes calls
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await channel.unary_unary("/shop.Orders/Place")(b"", timeout=30)
            if error.value.code() is not grpc.StatusCode.UNIMPLEMENTED:
                break

    assert isinstance(error.value, aio.NoConnectionError)
    assert f"health: {text}" in error.value.details()
    assert f"| `health: {text}" in read("troubleshooting.md")


def test_every_row_is_provoked():
    """The first table has no text that no test provokes."""
    tests = (test_no_connection, test_no_healthy_server)
    provoked = [row for test in tests for mark in test.pytestmark if mark.name == "parametrize" for row in mark.args[1]]
    texts = "|".join([*(row[-1] for row in provoked), NO_FILES])

    assert len(TABLE) >= 19
    for _, text in TABLE:
        assert any(each in text for each in texts.split("|")), text


# Calls.


@contextlib.asynccontextmanager
async def answering(act):
    """Serve HTTP/2, and answer each request with `act(connection, stream)`."""

    async def behave(reader, writer):
        connection = H2Connection(H2Configuration(client_side=False))
        connection.initiate_connection()
        writer.write(connection.data_to_send())
        while received := await reader.read(65536):
            for event in connection.receive_data(received):
                if isinstance(event, RequestReceived):
                    act(connection, event.stream_id)
            writer.write(connection.data_to_send())

    async with peer(behave) as target:
        yield target


def resets(code):
    return lambda: answering(lambda connection, stream: connection.reset_stream(stream, code))


def responds(status, *, page=False):
    def act(connection, stream):
        headers = [(":status", str(status)), ("content-type", "text/html")]
        connection.send_headers(stream, headers, end_stream=not page)
        if page:
            connection.send_data(stream, b"<html>", end_stream=True)

    return lambda: answering(act)


def goes_away(code):
    return lambda: answering(lambda connection, _stream: connection.close_connection(code, last_stream_id=0))


def handled(handler, *options):
    """Serve with grpcio and this handler."""

    @contextlib.asynccontextmanager
    async def serve():
        server = grpc.aio.server(options=options)
        methods = {"Place": grpc.unary_unary_rpc_method_handler(handler)}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("shop.Orders", methods)])
        with port_of_localhost() as port:
            server.add_insecure_port(f"localhost:{port}")
            await server.start()
            yield f"localhost:{port}"
            await server.stop(None)

    return serve


async def echo(request, _context):
    return request


async def slow(request, _context):
    await asyncio.sleep(30)
    return request


def headed(size):
    async def handler(request, context):
        await context.send_initial_metadata((("k", "x" * size),))
        return request

    return handler


AGED = [("grpc.max_connection_age_ms", 200), ("grpc.max_connection_age_grace_ms", 200)]
STRICT = [("grpc.http2.min_ping_interval_without_data_ms", 300_000), ("grpc.http2.max_ping_strikes", 1)]
EAGER = [("grpc.keepalive_time_ms", 1000), ("grpc.http2.max_pings_without_data", 0)]  # the core has no shorter time
ONCE = [("grpc.enable_retries", 0)]
SMALL = [("grpc.max_receive_message_length", 10)]
CALLS = read("troubleshooting.md").partition("## Calls")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    ("peer", "options", "code", "text"),
    [
        (resets(0), [], "INTERNAL", "Received RST_STREAM with error code 0"),
        (resets(1), [], "INTERNAL", "Received RST_STREAM with error code 1"),
        (resets(2), [], "INTERNAL", "Received RST_STREAM with error code 2"),
        (resets(5), [], "INTERNAL", "Received RST_STREAM with error code 5"),
        (resets(7), [], "UNAVAILABLE", "Received RST_STREAM with error code 7"),
        (resets(8), [], "CANCELLED", "Received RST_STREAM with error code 8"),
        (resets(11), [], "RESOURCE_EXHAUSTED", "Received RST_STREAM with error code 11"),
        (responds(200), [], "UNKNOWN", "No status received"),
        (responds(200, page=True), [], "UNKNOWN", "Data frame with END_STREAM flag received"),
        (responds(400), [], "INTERNAL", "Received http2 header with status: 400"),
        (responds(404), [], "UNIMPLEMENTED", "Received http2 header with status: 404"),
        (responds(413), [], "UNKNOWN", "Received http2 header with status: 413"),
        (responds(429), [], "UNAVAILABLE", "Received http2 header with status: 429"),
        (responds(502), [], "UNAVAILABLE", "Received http2 header with status: 502"),
        (responds(503), [], "UNAVAILABLE", "Received http2 header with status: 503"),
        (responds(504), [], "UNAVAILABLE", "Received http2 header with status: 504"),
        (goes_away(0), ONCE, "UNAVAILABLE", "GOAWAY received"),
        (goes_away(1), ONCE, "UNAVAILABLE", "Error code: 1; Debug Text:"),
        (goes_away(11), ONCE, "UNAVAILABLE", "Error code: 11"),
        (handled(echo, *SMALL), [], "RESOURCE_EXHAUSTED", "larger than max"),
        (handled(echo), SMALL, "RESOURCE_EXHAUSTED", "larger than max"),
        (handled(headed(20_000)), [], "RESOURCE_EXHAUSTED", "received metadata size exceeds hard limit"),
        (handled(slow, *AGED), [], "UNAVAILABLE", "max connection age"),
        (handled(slow, *STRICT), EAGER, "UNAVAILABLE", "Too many pings"),
        (serving, [], "UNIMPLEMENTED", "Method not found!"),
    ],
)
async def test_calls(peer, options, code, text):
    """CH-7: the page lists the text of a call that fails on a connection, and its code."""
    async with peer() as target, aio.insecure_channel(target, options=options) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await channel.unary_unary("/shop.Orders/Place")(b"x" * 100, timeout=60)

    found = re.search(text, error.value.details())
    assert (error.value.code().name, found and found[0]) == (code, text), error.value
    listed(text)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "upstream connect error or disconnect/reset before headers"),
        ({"cluster": {"load_assignment": {"endpoints": []}}}, "no healthy upstream"),
    ],
)
async def test_envoy(settings, text):
    """CH-7: the page lists the texts of Envoy whose server is down, or which knows no server."""
    need("envoy")
    with running("envoy", unused_port(), **settings) as proxy:
        async with aio.insecure_channel(proxy.target) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await channel.unary_unary("/shop.Orders/Place")(b"", timeout=60)

    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    assert error.value.details().startswith(text)
    listed(text)


async def test_the_soft_limit_of_metadata():
    """CH-7: the page lists the text of a call whose metadata is above the soft limit, which applies at random."""
    async with handled(headed(15_000))() as target, aio.insecure_channel(target) as channel:
        call = channel.unary_unary("/shop.Orders/Place")
        answers = await asyncio.gather(*(call(b"", timeout=60) for _ in range(40)), return_exceptions=True)
    assert any("received metadata size exceeds soft limit" in str(answer) for answer in answers)
    listed("received metadata size exceeds soft limit")


def listed(text):
    """Check that the table of calls has this text: whole, or its parts in one row."""
    parts = re.split(r"(?<=limit|error) |(?<=status:) |(?<=code) (?=\d)|(?<=exceeds) ", text)
    rows = [row for row in CALLS.splitlines() if row.startswith("| `") and all(f"{part}" in row for part in parts)]
    assert rows, text


class Raises(grpc.AuthMetadataPlugin):
    def __call__(self, context, callback):
        raise RuntimeError("no token")


async def test_a_plugin_that_raises():
    """CH-8: the page lists the text of a call whose credentials cannot be had."""
    credentials = grpc.composite_channel_credentials(client_credentials(), grpc.metadata_call_credentials(Raises()))
    async with secure() as target, aio.secure_channel(target, credentials) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="Getting metadata from plugin failed") as error:
            await channel.unary_unary("/shop.Orders/Place")(b"")

    assert "no token" in error.value.details()
    listed("Getting metadata from plugin failed")


@pytest.mark.parametrize("name", ["WrongLoopError", "ForkError", "OptionError", "PolicyWarning", "MissingExtra"])
def test_errors_exist(name):
    """Every error and warning in the third table is one of this library's."""
    import grpc_backoff.errors

    assert hasattr(grpc_backoff.errors, name) or hasattr(grpc_backoff, name)
    assert f"| `{name}" in read("troubleshooting.md")


async def test_a_closed_channel():
    """CH-1: the text after `close()` is the one on the page."""
    channel = aio.insecure_channel("127.0.0.1:1")
    await channel.close()
    with pytest.raises(grpc.aio.UsageError) as error:
        await channel.unary_unary("/shop.Orders/Place")(b"")
    assert f"UsageError: {error.value}" in read("troubleshooting.md")
    threaded = grpc_backoff.insecure_channel("127.0.0.1:1")
    threaded.close()
    with pytest.raises(ValueError, match="closed") as error:
        threaded.unary_unary("/shop.Orders/Place")(b"")
    assert f"ValueError: {error.value}" in read("troubleshooting.md")


# Programs that the system gives nothing more.

WITHOUT_FILES = """
import asyncio, os, resource
from grpc_backoff import aio

async def main():
    async with aio.insecure_channel("127.0.0.1:1") as channel:
        call = channel.unary_unary("/shop.Orders/Place")
        for tries in range(2):
            if tries:  # in the second try, the machinery runs already
                resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")), 4096))
                taken = []
                try:
                    while True:
                        taken.append(os.dup(0))
                except OSError:
                    channel.reset_connect_backoff()
            try:
                await call(b"", timeout=3, wait_for_ready=tries == 1)
            except aio.NoConnectionError as error:
                told = error.details()
        print(told)

asyncio.run(main())
"""
WITHOUT_THREADS = """
import resource, threading
import grpc_backoff

with grpc_backoff.insecure_channel("127.0.0.1:1") as channel:
    resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
    threading.stack_size(2**31)
    channel.unary_unary("/shop.Orders/Place").future(b"", timeout=20)
"""


@pytest.mark.parametrize(
    ("program", "text"),
    [(WITHOUT_FILES, NO_FILES), (WITHOUT_THREADS, "can't start new thread")],
    ids=["files", "threads"],
)
async def test_nothing_left(program, text):
    """CH-4: the page lists what a program says that has no free file, or can start no thread."""
    _, said = await output(sys.executable, "-c", program, within=60)

    assert text in said
    assert text in read("troubleshooting.md")
