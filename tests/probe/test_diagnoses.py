"""What a channel's failure means, by the text that grpc's core has written."""

from __future__ import annotations

import pytest

from grpc_backoff import Failure, Stage
from grpc_backoff.probe.diagnoses import read_reason

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
        (
            Stage.RESOLVE,
            "errors resolving ::1:1: [field:hostname lookup error:address lookup failed: Misformatted domain name]",
            "not a host name",
        ),
        (
            Stage.RESOLVE,
            "errors resolving a:b: [field:hostname lookup error:Failed to parse port in name: a:b]",
            "is not a port",
        ),
        (Stage.TLS, f"{HANDSHAKE}WRONG_VERSION_NUMBER: Invalid certificate verification context: OK", "not a TLS port"),
        (Stage.TLS, f"{HANDSHAKE}CERTIFICATE_VERIFY_FAILED: certificate has expired: OK", "expired"),
        (
            Stage.TLS,
            f"{HANDSHAKE}CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate: OK",
            "not signed by a trusted CA",
        ),
        (Stage.TLS, f"{TO_ALL}Failed to create security handshaker.", "cannot be used"),
        (Stage.RESOLVE, "the target uri is not valid: ipv4:127.0.0.1", "cannot read this target"),
        (Stage.UNKNOWN, "errors validating service config: [field:a error:is not an array]", "grpc.service_config"),
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
