"""A ledger's tables, as numbered SQL files for each database (LG-13).

Internal: programs import from `grpc_backoff.ledger`.
"""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

from grpc_backoff.base.record import record


@record
class Migration(NamedTuple):
    """One numbered SQL file, which brings the database to version `number`."""

    number: int
    name: str
    sql: str


def migrations(database: str) -> list[Migration]:
    """Return the migrations for a database, `sqlite` or `postgres`, in order."""
    found = [file for file in files(__name__).joinpath(database).iterdir() if file.name.endswith(".sql")]
    return [
        Migration(int(file.name.partition("_")[0]), file.name.removesuffix(".sql"), file.read_text("utf-8"))
        for file in sorted(found, key=lambda file: file.name)
    ]


def upgrade(known: list[Migration], before: int, table: str) -> list[str]:
    """Return the SQL that brings a database from one version to the newest, which `table` then contains."""
    if before >= known[-1].number:  # another process may have migrated already
        return []
    return [
        f"CREATE TABLE IF NOT EXISTS {table} (version integer NOT NULL)",
        *(migration.sql for migration in known[before:]),
        f"DELETE FROM {table}",
        f"INSERT INTO {table} (version) VALUES ({known[-1].number})",
    ]
