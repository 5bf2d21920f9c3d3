"""The errors of a ledger say what became of the data."""

from __future__ import annotations

import pytest

from grpc_backoff import GrpcBackoffError
from grpc_backoff.ledger import errors


@pytest.mark.parametrize("name", [name for name in errors.__all__ if name != "LedgerError"])
def test_one_root(name):
    """LG-2: every error of a ledger is caught as one, and as one of this library."""
    assert issubclass(getattr(errors, name), errors.LedgerError)
    assert issubclass(errors.LedgerError, GrpcBackoffError)


def test_what_became_of_the_data():
    """LG-9: that nothing was stored is said only where it is certain."""
    assert str(errors.LedgerUnavailableError("db: gone")) == "db: gone; nothing was stored"
    assert "not known whether" in str(errors.LedgerUnavailableError("db: gone", stored=None))
