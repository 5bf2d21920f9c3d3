"""What both APIs do with grpcio's private parts."""

from __future__ import annotations

from types import SimpleNamespace

import grpc
import pytest

from grpc_backoff.grpcio import private as grpcio


def test_a_service_that_is_not_counted(monkeypatch):
    """CH-1: a service is excluded from grpcio's own metrics once, in the form that grpcio compares."""
    excluded = []
    monkeypatch.setattr(grpcio, "_observability", SimpleNamespace(_SERVICES_TO_EXCLUDE=excluded))
    for name in ("a.A", "b.B", "a.A"):
        grpcio.exclude_service(name)
    assert excluded == [b"a.A", b"b.B"]


@pytest.mark.parametrize("observability", [None, SimpleNamespace()])
def test_another_release(observability, monkeypatch):
    """CH-1: with a release of grpcio that does not count calls, or does it differently, nothing is excluded."""
    monkeypatch.setattr(grpcio, "_observability", observability)
    grpcio.exclude_service("a.A")
    assert not grpcio.has_plugin()


def test_a_plugin(monkeypatch):
    """CH-1: a plugin that counts calls is noticed when it is set, and no longer when it is removed."""
    observability = SimpleNamespace(_OBSERVABILITY_PLUGIN=object())
    monkeypatch.setattr(grpcio, "_observability", observability)
    assert grpcio.has_plugin()
    observability._OBSERVABILITY_PLUGIN = None
    assert not grpcio.has_plugin()


def test_credentials():
    """SH-1: the PEMs in `ssl_channel_credentials` are read; other credentials have none that are known."""
    assert grpcio.inner_credentials(None) is None
    made = grpc.ssl_channel_credentials(b"root", b"key", b"chain")
    assert grpcio.pems_of(grpcio.inner_credentials(made)) == (b"root", b"key", b"chain")
    assert grpcio.pems_of(grpcio.inner_credentials(grpc.ssl_channel_credentials())) == (None, None, None)
    token = grpc.access_token_call_credentials("secret")
    for other in (grpc.composite_channel_credentials(made, token), grpc.local_channel_credentials()):
        assert grpcio.pems_of(grpcio.inner_credentials(other)) is None


@pytest.mark.parametrize("given", [{}, {"_private_key_signer": print}])
def test_credentials_of_another_release(given):
    """SH-1: credentials that keep their PEMs elsewhere, or have a signer, are not known by their PEMs."""
    pems = {"_pem_root_certificates": b"", "_private_key": b"", "_certificate_chain": b""} if given else {}
    assert grpcio.pems_of(type("SSLChannelCredentials", (), {**pems, **given})()) is None
