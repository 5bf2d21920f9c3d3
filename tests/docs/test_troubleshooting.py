"""The texts on the page about troubleshooting are those that users get: each is provoked here."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import re

import grpc
import grpc.aio
import pytest
import trustme

from grpc_backoff import Stage, aio
from grpc_backoff.testing.front import FlakyFront, accept_close, http1_answer, settings_then_close, silent
from tests.certificates import AUTHORITY, client_credentials, server_credentials
from tests.docs.pages import read

STAGES = "|".join(stage.value for stage in Stage)
TABLE = re.findall(rf"^\| `({STAGES}): ([^`]*)`", read("troubleshooting.md"), re.MULTILINE)
"""The stage and the text in each row about attempts to connect."""
OTHER = [("grpc.ssl_target_name_override", "other.example.com")]
FAILED = "CERTIFICATE_VERIFY_FAILED"
SHORT = [("grpc.min_reconnect_backoff_ms", 500), ("grpc.initial_reconnect_backoff_ms", 500)]


@contextlib.asynccontextmanager
async def serving(credentials=None, health=None):
    server = grpc.aio.server()
    if health is not None:
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("grpc.health.v1.Health", health)])
    address = "localhost:0"
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    await server.start()
    yield f"localhost:{port}"
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


def expired():
    issued = AUTHORITY.issue_cert(
        "localhost",
        not_before=dt.datetime(2019, 1, 1, tzinfo=dt.UTC),
        not_after=dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    )
    return grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes())])


@pytest.mark.parametrize(
    ("peer", "credentials", "options", "stage", "text"),
    [
        (lambda: nowhere("no.such.host.invalid:443"), None, [], Stage.RESOLVE, "Domain name not found"),
        (lambda: nowhere("127.0.0.1:1"), None, [], Stage.TCP, "Connection refused"),
        (lambda: nowhere("unix:/nowhere/shop.sock"), None, [], Stage.TCP, "No such file or directory"),
        (secure, stranger, [], Stage.TLS, f"{FAILED}: unable to get local issuer certificate"),
        (lambda: secure(expired), client_credentials, [], Stage.TLS, f"{FAILED}: certificate has expired"),
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
    texts = "|".join(row[-1] for row in provoked)

    assert len(TABLE) >= 11
    for _, text in TABLE:
        assert any(each in text for each in texts.split("|")), text


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
