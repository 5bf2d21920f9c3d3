"""What both APIs do with grpcio's private parts."""

from __future__ import annotations

from types import SimpleNamespace

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
