"""SH-1: which channels share a schedule."""

from __future__ import annotations

from dataclasses import replace

import grpc
import pytest
import trustme

from grpc_backoff.config.channel_settings import read_channel
from grpc_backoff.engine.channel import channel_key
from grpc_backoff.policy.presets import CONNECT

ROOT = trustme.CA().cert_pem.bytes()
ISSUED = trustme.CA().issue_cert("client.example")
PAIR = ISSUED.private_key_pem.bytes(), ISSUED.cert_chain_pems[0].bytes()
OPTIONS = (("grpc.keepalive_time_ms", 1000),)


def key(target="server:1", credentials=None, policy=CONNECT, options=OPTIONS, compression=None):
    return channel_key(read_channel(target, options, {"policy": policy}), credentials, compression)


def test_same():
    """SH-1: channels that dial the same target in the same way have equal keys, even if given other objects."""
    assert key() == key(policy=replace(CONNECT), options=list(OPTIONS))
    assert hash(key()) == hash(key(policy=replace(CONNECT)))


def test_order_of_options():
    """SH-1, CH-9: the order of options does not matter, and if an option is repeated, only the first one counts."""
    first, second = ("grpc.keepalive_time_ms", 1000), ("grpc.keepalive_timeout_ms", 2000)
    assert key(options=(first, second)) == key(options=(second, first))
    assert key(options=(first,)) == key(options=(first, (b"grpc.keepalive_time_ms", 5)))
    assert key(options=(first, ("grpc.keepalive_time_ms", 5))) != key(options=(("grpc.keepalive_time_ms", 5), first))


@pytest.mark.parametrize(
    "other",
    [
        {"target": "server:2"},
        {"credentials": grpc.ssl_channel_credentials()},
        {"policy": replace(CONNECT, min_connect_timeout=5)},
        {"options": ()},
        {"options": (("grpc.keepalive_time_ms", 2000),)},
        {"compression": grpc.Compression.Gzip},
    ],
    ids=lambda other: next(iter(other)),
)
def test_different(other):
    """SH-1: any other target, credentials, policy, options or compression gives a different key."""
    assert key() != key(**other)


def test_tls_by_its_pems():
    """SH-1: TLS credentials created separately for each channel give the same key if their PEMs are equal."""
    assert key(credentials=grpc.ssl_channel_credentials(ROOT)) == key(credentials=grpc.ssl_channel_credentials(ROOT))
    assert key(credentials=grpc.ssl_channel_credentials()) == key(credentials=grpc.ssl_channel_credentials())
    mutual = [key(credentials=grpc.ssl_channel_credentials(ROOT, *PAIR)) for _ in range(2)]
    assert mutual[0] == mutual[1]
    assert mutual[0] != key(credentials=grpc.ssl_channel_credentials(ROOT))
    assert key(credentials=grpc.ssl_channel_credentials(b"a")) != key(credentials=grpc.ssl_channel_credentials(b"b"))


def test_other_credentials_by_identity():
    """SH-1: credentials other than plain TLS are compared by the identity of grpcio's inner object."""
    token = grpc.access_token_call_credentials("secret")
    made = [grpc.composite_channel_credentials(grpc.ssl_channel_credentials(ROOT), token) for _ in range(2)]
    assert key(credentials=made[0]) == key(credentials=made[0])
    assert key(credentials=made[0]) == key(credentials=grpc.ChannelCredentials(made[0]._credentials))
    assert key(credentials=made[0]) != key(credentials=made[1])
    local = [grpc.local_channel_credentials() for _ in range(2)]
    assert key(credentials=local[0]) != key(credentials=local[1])


@pytest.mark.parametrize("name", ["grpc.use_local_subchannel_pool", b"grpc.use_local_subchannel_pool"])
def test_a_pool_of_its_own(name):
    """SH-1: a channel with its own subchannel pool shares nothing; if that option is repeated, the first one counts."""
    assert key(options=[(name, 1)]) is None
    assert key(options=[(name, 0), (name, 1)]) is not None


def test_an_option_that_cannot_be_compared():
    """SH-1: a channel with an unhashable option value shares nothing, but works."""

    class Pointer:
        __hash__ = None

        def __int__(self):
            return 1

    assert key(options=[("grpc.something", Pointer())]) is None
    assert key(compression=Pointer()) is None


def test_once_for_shared_settings():
    """SH-1: insecure channels with the same settings have one key for each compression; those with TLS, equal ones."""
    first, second = (read_channel("server:1", OPTIONS, {}) for _ in range(2))
    assert channel_key(first, None, None) is channel_key(second, None, None)
    assert channel_key(first, None, grpc.Compression.Gzip) != channel_key(first, None, None)
    secure = [channel_key(setup, grpc.ssl_channel_credentials(ROOT), None) for setup in (first, second)]
    assert secure[0] == secure[1]
    assert secure[0] != channel_key(first, None, None)
    assert channel_key(read_channel("server:1", [("grpc.use_local_subchannel_pool", 1)], {}), None, None) is None


def test_it_shows_nothing_secret():
    """CH-10: the `repr` of a key contains neither PEMs nor options."""
    text = repr(key(credentials=grpc.ssl_channel_credentials(ROOT, *PAIR), options=[("grpc.secret", "hidden")]))
    assert text == "Key('server:1')"
