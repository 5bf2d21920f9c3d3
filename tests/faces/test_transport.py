"""CH-8: what grpcio does below the calls goes on working on both faces: TLS, kinds of targets, balancing, keepalive."""

from __future__ import annotations

import json
import socket

import grpc
import pytest
import trustme

from tests.aio.test_drop_in_transport import client_credentials, server_credentials
from tests.sync.service import place

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
ROUND_ROBIN = [
    ("grpc.lb_policy_name", "round_robin"),
    ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
]


def called(face, target, options=(), **how):
    """Return the outcome of a call on a channel of its own."""
    with face.channel(target, options, **how) as channel:
        return channel.begin(timeout=20).outcome()


@pytest.mark.parametrize("mutual", [False, True])
def test_tls(kind, mutual):
    """CH-8: TLS, and mutual TLS."""
    with place(credentials=server_credentials(mutual=mutual)) as server:
        assert called(kind, server.target, credentials=client_credentials(mutual=mutual)).texts == ["a"]


def test_tls_that_fails(kind):
    """CH-8: a certificate of nobody's, or none where one is asked for, is UNAVAILABLE."""
    with place(credentials=server_credentials(mutual=True)) as server:
        for credentials in (client_credentials(), grpc.ssl_channel_credentials(trustme.CA().cert_pem.bytes())):
            assert called(kind, server.target, credentials=credentials).code is UNAVAILABLE


def test_unix_socket(kind, tmp_path):
    """CH-8: Unix sockets, absolute ones too."""
    path = tmp_path / "socket"
    with place(address=f"unix:{path}"):
        for target in (f"unix:{path}", f"unix://{path}"):
            assert called(kind, target).texts == ["a"]


@pytest.mark.parametrize("target", ["ipv4:127.0.0.1:{}", "dns:localhost:{}", "dns:///127.0.0.1:{}", "localhost:{}"])
def test_targets(kind, server, target):
    """CH-8: the usual kinds of names."""
    assert called(kind, target.format(server.port)).texts == ["a"]


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as found:
            found.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")
def test_ipv6(kind):
    """CH-8: ipv6 too, where the machine has it."""
    with place(address="[::1]:0") as server:
        assert called(kind, f"ipv6:[::1]:{server.bound}").texts == ["a"]


@pytest.mark.parametrize("option", ROUND_ROBIN, ids=["option", "service config"])
def test_round_robin(kind, option):
    """CH-8: calls spread over two servers."""
    with place() as one, place() as two:
        with kind.channel(f"ipv4:127.0.0.1:{one.port},127.0.0.1:{two.port}", [option]) as channel:
            for _ in range(1000):
                channel.unary(timeout=20)
                if one.servicer.got and two.servicer.got:
                    break
        assert one.servicer.got
        assert two.servicer.got


@pytest.mark.parametrize("phase", ["fresh", "ready"])
def test_options_of_grpc(kind, phase, server):
    """CH-9: options that are grpcio's own are taken."""
    options = [
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.primary_user_agent", "mine"),
        ("grpc.enable_retries", 0),
    ]
    with kind.channel(server.target, options) as channel:
        if phase == "ready":
            channel.ready()
        channel.unary(timeout=20)
    assert server.servicer.metadata[0]["user-agent"].startswith("mine")
