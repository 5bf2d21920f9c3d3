"""The numbered SQL files of the migrations."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from grpc_backoff.ledger import schema
from grpc_backoff.ledger.schema import migrations


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_they_are_numbered(database):
    """LG-13: the migration files are numbered from 1 without a gap, and none is empty."""
    names = sorted(_files(database))

    assert [int(name.partition("_")[0]) for name in names] == list(range(1, len(names) + 1))
    assert migrations(database) == [_files(database)[name] for name in names]
    assert all(sql.strip() for sql in migrations(database))


RELEASED = {
    "postgres/0001_operations": "e6946068d3bf64e1",
    "postgres/0002_functions": "e2df4f225129bfdf",
    "postgres/0003_finished": "f13d546f7f17792b",
    "sqlite/0001_operations": "55149a4e25d3fdd2",
    "sqlite/0002_finished": "b3d0bfb15672516a",
}
"""The migrations of the releases, by what their code hashes to; a release adds its own."""


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_released_ones_stay_as_they_are(database):
    """LG-18: a migration that was released is never changed, except for its comments."""
    hashes = {
        f"{database}/{name}": hashlib.sha256(_code(sql).encode()).hexdigest()[:16]
        for name, sql in _files(database).items()
    }

    released = {name: digest for name, digest in RELEASED.items() if name.startswith(database)}
    assert {name: hashes.get(name) for name in released} == released


def _code(sql):
    """Return SQL without comments, and with one space between words."""
    return " ".join(re.sub(r"--.*", "", sql).split())


def _files(database):
    """Return the SQL of each file of a database, by its name without the ending."""
    return {path.stem: path.read_text("utf-8") for path in Path(schema.__file__).parent.glob(f"{database}/*.sql")}
