"""CH-8: grpcio's transport works as usual on both APIs: TLS, kinds of targets, load balancing and keepalive."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading

import grpc
import pytest
import trustme
from hyperframe.frame import GoAwayFrame

from grpc_backoff.config.core_options import first_values
from grpc_backoff.engine.core_connector import BaseConnector
from tests.both_apis.api import backoff_ms
from tests.both_apis.loops import on_a_thread
from tests.certificates import client_credentials, server_credentials
from tests.peers import SETTINGS, peer
from tests.sync.service import place

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
HEADERS = 1
ROUND_ROBIN = [
    ("grpc.lb_policy_name", "round_robin"),
    ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
]


def called(api, target, options=(), **how):
    """Make a call on a new channel; return its outcome."""
    with api.channel(target, options, **how) as channel:
        return channel.begin(timeout=20).outcome()


@pytest.mark.parametrize("mutual", [False, True])
def test_tls(kind, mutual):
    """CH-8: calls work over TLS and mutual TLS."""
    with place(credentials=server_credentials(mutual=mutual)) as server:
        assert called(kind, server.target, credentials=client_credentials(mutual=mutual)).texts == ["a"]


def test_tls_that_fails(kind):
    """CH-8: a missing client certificate or an untrusted server certificate fails the call with UNAVAILABLE."""
    with place(credentials=server_credentials(mutual=True)) as server:
        for credentials in (client_credentials(), grpc.ssl_channel_credentials(trustme.CA().cert_pem.bytes())):
            assert called(kind, server.target, credentials=credentials).code is UNAVAILABLE


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as found:
            found.bind(("::1", 0))
    except OSError:
        return False
    return True


LOCAL, UNIX = "127.0.0.1:0", "unix:{path}"
IPV6 = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")


@pytest.mark.parametrize(
    ("address", "target"),
    [
        *((LOCAL, target) for target in ("ipv4:127.0.0.1:{port}", "dns:localhost:{port}", "dns:///127.0.0.1:{port}")),
        (LOCAL, "localhost:{port}"),
        *((UNIX, target) for target in (UNIX, "unix://{path}")),
        pytest.param("[::1]:0", "ipv6:[::1]:{port}", marks=IPV6),
    ],
)
def test_targets(kind, tmp_path, address, target):
    """CH-8: calls work with targets of all kinds, and with plain host names."""
    path = tmp_path / "socket"
    with place(address=address.format(path=path)) as server:
        assert called(kind, target.format(port=server.bound, path=path)).texts == ["a"]


@pytest.mark.parametrize("option", ROUND_ROBIN, ids=["option", "service config"])
def test_round_robin(kind, option):
    """CH-8: `round_robin` spreads the calls over two servers."""
    with place() as one, place() as two:
        with kind.channel(f"ipv4:127.0.0.1:{one.port},127.0.0.1:{two.port}", [option]) as channel:
            for _ in range(1000):
                channel.unary(timeout=20)
                if one.servicer.got and two.servicer.got:
                    break
        assert one.servicer.got
        assert two.servicer.got


def test_options_of_grpc(in_phase, server):
    """CH-9: grpcio's own options are accepted and passed on."""
    options = [
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.primary_user_agent", "mine"),
        ("grpc.enable_retries", 0),
    ]
    with in_phase(server.target, options) as channel:
        channel.unary(timeout=20)
    assert server.servicer.metadata[0]["user-agent"].startswith("mine")


def complains(last):
    """Return the behaviour of a server that ends each connection with a call on it by GOAWAY too_many_pings.

    `last` is the stream that it names as the last one.
    """

    async def behave(reader, writer):
        writer.write(SETTINGS)
        await reader.readexactly(24)  # the preface
        kind = None
        while kind != HEADERS:
            length, kind = struct.unpack(">3sB", (await reader.readexactly(9))[:4])
            await reader.readexactly(int.from_bytes(length))
        await asyncio.sleep(0.2)  # for the second call
        writer.write(GoAwayFrame(0, last, error_code=11, additional_data=b"too_many_pings").serialize())
        await writer.drain()
        await asyncio.sleep(0.05)

    return behave


@pytest.mark.parametrize("last", [0, 2**31 - 1])
@pytest.mark.parametrize("method", ["Both", "Unary"])
def test_a_server_that_complains_about_pings(ours, monkeypatch, method, last):
    """CH-8: after GOAWAY too_many_pings, the next connections ping half as often, as gRFC A8 says.

    A connection counts once, however many of its calls fail.
    """
    times, options_for = [], BaseConnector._options_for

    def record(connector, limit):
        options = options_for(connector, limit)
        times.append(first_values(options)["grpc.keepalive_time_ms"])
        return options

    if last and grpc.__version__ == "1.63.0":
        pytest.skip("grpcio 1.63 says 'Socket closed' to calls that the server has accepted")
    monkeypatch.setattr(BaseConnector, "_options_for", record)
    options = [("grpc.keepalive_time_ms", 5000), *backoff_ms(50, 50)]
    with on_a_thread(peer(complains(last))) as (target, _), ours.channel(target, options) as channel:
        for _ in range(4):
            calls = [
                channel.begin(method, iter(["a", threading.Event()]) if method == "Both" else ["a"], timeout=60)
                for _ in range(2)
            ]
            assert [call.outcome(60).code for call in calls] == [UNAVAILABLE] * 2
    assert times[0] == 5000
    assert times[-1] >= 20_000, "a dial may start before the call's end is seen"
    assert all(time <= 5000 * 2**number for number, time in enumerate(times))
