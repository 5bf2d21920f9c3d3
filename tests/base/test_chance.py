"""The default source of jitter."""

import pytest

from grpc_backoff.base import chance


@pytest.mark.parametrize(("drawn", "number"), [(b"\0" * 8, 0.0), (b"\x80" + b"\0" * 7, 0.5), (b"\xff" * 8, 1 - 2**-53)])
def test_the_interval(monkeypatch, drawn, number):
    """CB-11: the numbers are in [0, 1), as `random.random()` draws them."""
    monkeypatch.setattr(chance, "urandom", {8: drawn}.__getitem__)
    assert chance.CHANCE.random() == number


def test_no_state():
    """CB-11: two draws differ."""
    assert chance.CHANCE.random() != chance.CHANCE.random()
