"""Where a ledger or an inbox is: the URL of a PostgreSQL database, or the path of an SQLite file."""

from __future__ import annotations

import os
import re

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.ledger.errors import wrong_type
from grpc_backoff.ledger.records import is_storable
from grpc_backoff.ledger.stores.store import Store
from grpc_backoff.policy.ledger_settings import LedgerSettings

POSTGRES_URL = ("postgresql://", "postgres://")
SQLITE_URL = "sqlite:///"
URLS = "a path, sqlite:///path or postgresql://..."
_CONNINFO = re.compile(r"(?s)(?=\s*\w+\s*=).*\b(host|hostaddr|port|dbname|user|password|passfile|service|sslmode)\s*=")
"""Matches the beginning of libpq's other syntax for connection strings: `host=... password=...`. A path may have such
names of directories, but not before its first slash."""


def read_url(value: object) -> str:
    """Return the URL of a PostgreSQL database, or the path of an SQLite file, perhaps after `SQLITE_URL`.

    Raises:
        OptionError: it is any other URL or connection string. The error does not show it: it may contain a password.
        TypeError: it is neither text nor a path.
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str):
        raise TypeError(wrong_type("url", value, URLS))
    if not text or not is_storable(text):
        raise OptionError("url", text and "...", f"{URLS}, without NUL and surrogates")
    if _CONNINFO.match(text):
        raise OptionError("url", "...=...", URLS)
    if "://" in text and not text.startswith((*POSTGRES_URL, SQLITE_URL)):
        raise OptionError("url", f"{text.partition(':')[0]}://...", URLS)
    return text


def open_store(url: str, settings: LedgerSettings) -> Store:
    """Return the store at a URL that `read_url` has returned.

    Raises:
        LedgerUnavailableError: the database cannot be used.
        MissingExtra: PostgreSQL needs the extra `postgres`.
    """
    if url.startswith(POSTGRES_URL):
        from grpc_backoff.ledger.stores.postgres.store import PostgresStore  # noqa: PLC0415 - an optional package

        return PostgresStore(url, settings)
    from grpc_backoff.ledger.stores.sqlite import SQLiteStore  # noqa: PLC0415 - like the other

    return SQLiteStore(url.removeprefix(SQLITE_URL), settings)
