"""The ledger's errors, which say whether data was stored."""

from __future__ import annotations

import pytest

from grpc_backoff import GrpcBackoffError, ledger
from grpc_backoff.ledger import errors


@pytest.mark.parametrize("name", sorted(set(ledger.__all__) & set(vars(errors)) - {"LedgerError"}))
def test_one_root(name):
    """LG-2: all ledger errors share one base class, which derives from the library's own base class."""
    assert issubclass(getattr(errors, name), errors.LedgerError)
    assert issubclass(errors.LedgerError, GrpcBackoffError)


def test_what_became_of_the_data():
    """LG-9: an error says that nothing was stored only if that is certain."""
    assert str(errors.LedgerUnavailableError("db: gone")) == "db: gone; nothing was stored"
    assert "not known whether" in str(errors.LedgerUnavailableError("db: gone", stored=None))
