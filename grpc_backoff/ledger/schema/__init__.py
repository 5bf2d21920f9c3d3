"""A ledger's tables, as numbered SQL files for each database (LG-13).

Internal: programs import from `grpc_backoff.ledger`.
"""

from __future__ import annotations

from importlib.resources import files

from grpc_backoff.ledger.errors import LedgerSchemaError

MIGRATION_LOCK = 0x6772_7063
"""The key of the lock for migrations in PostgreSQL: "grpc" in ASCII."""


def migrations(database: str) -> list[str]:
    """Return the SQL of the migrations for a database, such as `sqlite` or `postgres`; the n-th brings version n."""
    found = [file for file in files(__name__).joinpath(database).iterdir() if file.name.endswith(".sql")]
    return [file.read_text("utf-8") for file in sorted(found, key=lambda file: file.name)]


def upgrade(known: list[str], before: int, table: str) -> list[str]:
    """Return the SQL that brings a database from one version to the newest, which `table` then contains."""
    if before >= len(known):  # another process may have migrated already
        return []
    return [
        f"CREATE TABLE IF NOT EXISTS {table} (version integer NOT NULL)",
        *known[before:],
        f"DELETE FROM {table}",
        f"INSERT INTO {table} (version) VALUES ({len(known)})",
    ]


def check_version(where: str, found: int, newest: int, *, apply: bool, oldest: int | None = None) -> None:
    """Reject tables that are newer than this library, or older ones that must not be changed (LG-13).

    Those from the version `oldest` on can be used as they are.
    """
    if found > newest:
        problem = f"a newer grpc-backoff has upgraded the tables to version {found}; this one knows {newest}"
        raise LedgerSchemaError(f"{where}: {problem}")
    if found < (newest if oldest is None else oldest) and not apply:
        problem = f"the tables have version {found} instead of {newest}" if found else "there are no tables yet"
        raise LedgerSchemaError(f"{where}: {problem}; run `grpc-backoff ledger --db URL migrate`")
