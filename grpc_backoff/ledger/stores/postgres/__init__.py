"""A ledger in PostgreSQL. Needs psycopg 3: whichever module is imported, here it is said that the extra is missing.

Internal: programs import from `grpc_backoff.ledger`.
"""

from grpc_backoff.base.base_errors import MissingExtra

try:
    import psycopg  # noqa: F401 - whether it is there
except ImportError as error:
    if "libpq" in str(error):  # psycopg is installed, but neither the library nor psycopg's own copy of it
        raise ImportError(
            "psycopg needs the library libpq: install libpq5, or pip install 'psycopg[binary]'"
        ) from error
    raise MissingExtra("postgres", "a ledger in PostgreSQL") from error
