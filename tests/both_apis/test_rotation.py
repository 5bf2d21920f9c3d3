"""PO-10: credentials that are read for each attempt, and files that are watched, on both APIs.

The servers use real TLS. The waits are in real time, with slack for a slow machine.
"""

from __future__ import annotations

import contextlib
import threading
import time

import grpc
import pytest
import trustme

import grpc_backoff
from grpc_backoff.aio import core_connector as aio_connector
from grpc_backoff.sync import core_connector as sync_connector
from tests.both_apis.api import backoff_ms
from tests.sync.service import place, until

FAST = backoff_ms(50, 100)


class Issuer:
    """Issues certificates by a CA of its own and writes the files that trust and prove them."""

    def __init__(self, folder):
        self.folder = folder
        self.paths = {"ca": folder / "ca.pem", "certificate": folder / "client.pem", "key": folder / "client.key"}
        self.renew()

    def renew(self):
        """Begin to use another CA."""
        self.authority = trustme.CA()

    def server(self):
        """Return a server's credentials; its clients need a certificate of the same CA."""
        issued = self.authority.issue_cert("localhost", "127.0.0.1")
        pair = issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes()
        return grpc.ssl_server_credentials([pair], self.authority.cert_pem.bytes(), True)

    def write(self, *names):
        """Write the client's files, or only these."""
        issued = self.authority.issue_cert("client@example.org")
        contents = {
            "ca": self.authority.cert_pem.bytes(),
            "certificate": issued.cert_chain_pems[0].bytes(),
            "key": issued.private_key_pem.bytes(),
        }
        for name in names or contents:
            new = self.folder / "new"
            new.write_bytes(contents[name])
            new.replace(self.paths[name])

    def files(self, check_every=0.05):
        return grpc_backoff.tls_files(**self.paths, check_every=check_every)

    def credentials(self):
        """Return the client's credentials, as a function of a program may."""
        self.write()
        return grpc.ssl_channel_credentials(*(self.paths[name].read_bytes() for name in ("ca", "key", "certificate")))


@pytest.fixture
def issuer(tmp_path):
    made = Issuer(tmp_path)
    made.write()
    return made


@pytest.fixture
def opened(ours, issuer):
    """A function that runs a server, and opens a channel to it that reads its credentials from a source."""

    @contextlib.contextmanager
    def opens(source, options=FAST):
        with (
            place(None, issuer.server()) as server,
            ours.channel(f"localhost:{server.port}", options, credentials=source) as channel,
        ):
            yield server, channel

    return opens


def rotate(issuer, server):
    """Let the server come back with a certificate of another CA; write the client's files first."""
    issuer.renew()
    issuer.write()
    server.kill()
    server.credentials = issuer.server()
    server.start()


@pytest.mark.parametrize("security", ["files", "function"])
def test_the_server_comes_back_with_another_ca(opened, issuer, security):
    """PO-10: the first attempt after the server is back succeeds, and no call that waits for it fails."""
    with opened(issuer.files(check_every=60) if security == "files" else issuer.credentials) as (server, channel):
        assert channel.unary("a") == "a"
        for text in "bcd":
            rotate(issuer, server)
            assert channel.unary(text, wait_for_ready=True, timeout=20) == text


def test_credentials_with_which_nothing_can_be_dialled(ours, issuer, monkeypatch):
    """CB-4, PO-10: if no channel can be made with the credentials, that is why the attempt has failed, at once."""
    for connector in (aio_connector.CoreConnector, sync_connector.CoreConnector):
        monkeypatch.setattr(connector, "make_channel", lambda *_: 1 / 0)
    with ours.channel("localhost:1", backoff_ms(60_000, 60_000), credentials=issuer.credentials) as channel:
        outcome = channel.begin(timeout=30).outcome(60)
    assert outcome.code is grpc.StatusCode.UNAVAILABLE
    assert "ZeroDivisionError" in outcome.details


def test_a_change_replaces_the_connection(opened, issuer):
    """PO-10: files that change lead to a new connection, while the old one serves; half of a change does not."""
    with opened(issuer.files()) as (_, channel):
        assert channel.unary("a") == "a"
        issuer.write("certificate")  # does not match the key
        time.sleep(0.3)
        assert channel.own.connection_status().made == 1
        issuer.write()
        until(lambda: channel.own.connection_status().made == 2)
        assert channel.unary("b") == "b"


def refused(channel):
    """Make a call that fails, because there are no credentials; return the reason."""
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary("a")
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    error = channel.own.connection_status().last_error
    assert error.stage is grpc_backoff.Stage.CREDENTIALS
    return error.reason


def test_files_that_are_missing(opened, issuer, caplog):
    """PO-10: without credentials an attempt fails and says why; later, the earlier ones go on, with one warning."""
    issuer.paths["key"].rename(issuer.folder / "elsewhere")
    with opened(issuer.files()) as (server, channel):
        assert "client.key' cannot be read: No such file or directory" in refused(channel)
        issuer.write()
        assert channel.unary("b", wait_for_ready=True, timeout=20) == "b"
        issuer.paths["ca"].write_bytes(b"-----BEGIN CERTIFICATE-----\nMII")
        until(lambda: warnings_of_pem(caplog))
        server.kill()
        server.start()
        assert channel.unary("c", wait_for_ready=True, timeout=20) == "c"
    assert len(warnings_of_pem(caplog)) == 1


def warnings_of_pem(caplog):
    """Return the warnings of a broken file; a look in the midst of writing may have warned of that as well."""
    ending = "ca.pem' is not a PEM file of certificates; the earlier credentials stay in use"
    return [record for record in caplog.records if record.getMessage().endswith(ending)]


def broken():
    raise RuntimeError("no vault")


def leaves():
    raise SystemExit("no vault")


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (broken, "the function for credentials raised RuntimeError: no vault"),
        (leaves, "the function for credentials raised SystemExit: no vault"),
        (lambda: None, "the function for credentials returned None, not grpc.ChannelCredentials"),
    ],
)
def test_a_function_that_fails(opened, issuer, function, reason):
    """PO-10: the attempt fails at its stage `credentials`, and the channel recovers when the function does."""
    answers = [function]

    def ask():
        return answers[0]()

    with opened(ask) as (_, channel):
        assert refused(channel) == reason
        answers[0] = issuer.credentials
        assert channel.unary("b", wait_for_ready=True, timeout=20) == "b"


def test_a_function_that_blocks(opened, issuer):
    """PO-10: the attempt ends at its limit, nothing else waits, and no thread is added for the next attempt."""
    blocked, asked = threading.Event(), []

    def block():
        asked.append(1)
        blocked.wait(60)
        return issuer.credentials()

    with opened(block, backoff_ms(50, 100, 500)) as (_, channel):
        assert refused(channel) == "no credentials after 0.25 s"
        until(lambda: channel.own.connection_status().attempt > 2)
        assert len(asked) == 1
        blocked.set()
        assert channel.unary("b", wait_for_ready=True, timeout=20) == "b"


def test_nothing_is_left(opened, issuer):
    """PO-12: the thread that checks the files ends with the last channel."""
    with opened(issuer.files(check_every=60)) as (_, channel):
        assert channel.unary("a") == "a"
        assert "grpc-backoff-files" in {thread.name for thread in threading.enumerate()}
    until(lambda: "grpc-backoff-files" not in {thread.name for thread in threading.enumerate()})


def test_arguments(ours):
    """CH-10: anything but credentials raises an error that says what was expected."""
    with pytest.raises(TypeError, match=r"^credentials=<str>: expected grpc.ChannelCredentials, tls_files\(...\) or a"):
        ours.make("localhost:1", credentials="ca.pem")
