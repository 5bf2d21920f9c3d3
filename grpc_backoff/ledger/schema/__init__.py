"""A ledger's tables, as numbered SQL files for each database (LG-13).

Internal: programs import from `grpc_backoff.ledger`.
"""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

from grpc_backoff.record import record


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
