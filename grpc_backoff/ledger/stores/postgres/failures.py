"""What PostgreSQL's errors mean, and how a ledger's errors name a database."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import psycopg
from psycopg.conninfo import conninfo_to_dict

from grpc_backoff.ledger.errors import LedgerBusyError, LedgerLimitError, LedgerUnavailableError, first_line, rejection
from grpc_backoff.ledger.stores.postgres.session import Session

_ENDED = ("08", "57P")
"""Classes of errors that end a connection, whatever their severity: PgBouncer's own, and the operator's."""
_REJECTING = ("22", "23", "44", "P0")
"""Classes of errors about a row: its data, a constraint, a view's condition, and what a trigger raised."""
_UNSENT = (psycopg.DataError, psycopg.ProgrammingError, psycopg.NotSupportedError, psycopg.errors.PipelineAborted)
"""Errors that psycopg raises by itself for a value or a statement that it does not send, or after an error before."""


@contextlib.contextmanager
def translating(name: str, session: Session) -> Iterator[None]:
    """Translate the errors that a session raises in the block; `name` is the database's in errors."""
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        waited = f"gave up after {session.lock_timeout:g} s waiting for another transaction's lock"
        raise LedgerBusyError(f"{name}: {waited}; nothing was written") from error
    except psycopg.errors.DeadlockDetected as error:
        raise LedgerBusyError(f"{name}: a deadlock with another transaction; nothing was written") from error
    except psycopg.errors.ProgramLimitExceeded as error:
        problem = "the target, the method and a key are too long together for an index of PostgreSQL"
        raise LedgerLimitError(f"{name}: {problem}: {first_line(error)}") from error
    except psycopg.errors.ReadOnlySqlTransaction as error:
        session.stale = True
        problem = f"the server is read-only, as a standby is ({first_line(error)})"
        advice = "with several hosts, add target_session_attrs=read-write to the URL"
        raise LedgerUnavailableError(f"{name}: {problem}; {advice}") from error
    except psycopg.Error as error:
        # A DataError may be psycopg's own, for a value that it cannot send.
        if isinstance(error, psycopg.DataError) or (error.sqlstate or "").startswith(_REJECTING):
            raise rejection(name, error) from error
        unheard = session.committing and is_in_doubt(error, broken=session.broken)
        raise LedgerUnavailableError(f"{name}: {first_line(error)}", stored=None if unheard else False) from error


def is_in_doubt(error: psycopg.Error, *, broken: bool) -> bool:
    """Return whether an error leaves open what became of a COMMIT that was sent; `broken` is about the connection.

    A server that rejects a COMMIT says so and goes on. If it ends the connection, or a pooler such as PgBouncer says
    that it lost the server, the COMMIT may have been executed. So it may if the error is libpq's own, such as the one
    about a pipeline that cannot be left, unless psycopg raised it for what was never sent.
    """
    if error.sqlstate is None:
        return broken or not isinstance(error, _UNSENT)
    state = error.sqlstate
    ended = error.diag.severity_nonlocalized in ("FATAL", "PANIC")
    return broken or ended or state.startswith(_ENDED)


def name_of(url: str) -> str:
    """Return the hosts and the name of a database, for errors. Nothing of an invalid URL is shown (LG-11)."""
    try:
        said = conninfo_to_dict(url)
    except psycopg.Error:
        # libpq's own messages quote what they cannot parse, which may be part of a password.
        raise LedgerUnavailableError("the database URL is not valid: libpq cannot parse it") from None
    host, address, port, name = (str(said.get(part) or "") for part in ("host", "hostaddr", "port", "dbname"))
    if "@" in host[1:] + name or not (port.replace(",", "") or "0").isdecimal():  # @ begins an abstract socket's name
        advice = "percent-encode special characters in the password, such as '/', '@' and ':'"
        raise LedgerUnavailableError(f"the database URL is not valid: {advice}")
    ports = itertools.cycle(port.split(","))  # several hosts may have one
    hosts = map(_with_port, (host or address).split(","), ports)
    return f"postgresql://{','.join(hosts)}/{name}"


def _with_port(host: str, port: str) -> str:
    """Return a host, the address of one, or the directory of a Unix socket, and the port if there is one, as text."""
    bracketed = f"[{host}]" if ":" in host and not host.startswith(("/", "@")) else host
    return f"{bracketed}:{port}" if port else bracketed
