"""The numbered SQL files of the migrations."""

from __future__ import annotations

import pytest

from grpc_backoff.ledger.schema import migrations


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_they_are_numbered(database):
    """LG-13: the migration files are numbered from 1 without a gap, and none is empty."""
    found = migrations(database)

    assert [migration.number for migration in found] == list(range(1, len(found) + 1))
    assert all(migration.sql.strip() for migration in found)
