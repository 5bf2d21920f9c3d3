"""A ledger's errors. Each says what happened to the data; `grpc_backoff.errors` shows the hierarchy."""

from __future__ import annotations

from grpc_backoff.base.base_errors import GrpcBackoffError, kind_of


class LedgerError(GrpcBackoffError):
    """The base class of a ledger's errors."""


class LedgerBusyError(LedgerError):
    """Another process held a lock for longer than `lock_timeout`, or PostgreSQL aborted this transaction in a deadlock.

    Nothing was written (LG-2).
    """


class LedgerUnavailableError(LedgerError):
    """The database could not be used; the message says why.

    Attributes:
        stored: False if it is certain that nothing was stored; None if that is unknown, because the answer to COMMIT
            was lost.
        reading: whether the request was only to read, so that there was nothing to store.
    """

    reading = False

    def __init__(self, message: str, *, stored: bool | None = False) -> None:
        super().__init__(message)
        self.stored = stored

    def __str__(self) -> str:
        """Return the message, followed by what is known about the data."""
        if self.reading:
            return str(self.args[0])
        fate = "nothing was stored" if self.stored is False else "it is not known whether it was stored"
        return f"{self.args[0]}; {fate}"


class LedgerSchemaError(LedgerError):
    """The database's tables have a version that cannot be used or upgraded here, or SQLite is too old (LG-13)."""


class LedgerStateError(LedgerError):
    """The operation does not exist or is in a state that does not allow the request; nothing was changed.

    The same error says that the database rejects a row for good, for example because of a constraint of its owner.
    """


class LedgerLimitError(LedgerError, ValueError):
    """A limit in the ledger's settings would be exceeded. Nothing was stored (LG-11)."""


def wrong_type(name: str, value: object, allowed: str) -> str:
    """Return the text of a TypeError about an argument; of a value other than None, it shows only the type."""
    return f"{name}={kind_of(value)}: expected {allowed}"


def first_line(error: Exception) -> str:
    """Return the first line of what a database's error says."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def rejection(where: str, error: Exception) -> LedgerStateError:
    """Return the error for a row that the database rejects for good, so that repeating does not help."""
    return LedgerStateError(f"{where}: the database rejects the row: {first_line(error)}; nothing was stored")
