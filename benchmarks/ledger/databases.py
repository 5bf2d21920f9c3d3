"""Creates empty databases for the measurements: an SQLite file, or a PostgreSQL server with `fsync` on."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.ledger.server import running

__all__ = ["KINDS", "database"]

KINDS = ("sqlite", "postgres")


@contextlib.contextmanager
def database(kind: str) -> Iterator[str]:
    """Create an empty database of this kind and yield its URL."""
    if kind == "postgres":
        with running(durable=True) as server:
            yield server.database()
        return
    directory = Path(tempfile.mkdtemp(prefix="grpc-backoff-ledger-"))
    try:
        yield str(directory / "ledger.db")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
