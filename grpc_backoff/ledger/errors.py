"""The errors of a ledger. Each says what happened to the data; `grpc_backoff.errors` shows the hierarchy."""

from __future__ import annotations

from grpc_backoff.errors import GrpcBackoffError

__all__ = [
    "LedgerBusyError",
    "LedgerError",
    "LedgerLimitError",
    "LedgerSchemaError",
    "LedgerStateError",
    "LedgerUnavailableError",
]


class LedgerError(GrpcBackoffError):
    """The base class of a ledger's errors."""


class LedgerBusyError(LedgerError):
    """Another process held a lock for longer than `lock_timeout`, or PostgreSQL resolved a deadlock against this one.

    Nothing was written (LG-2).
    """


class LedgerUnavailableError(LedgerError):
    """The database could not be used; the message says why.

    Attributes:
        stored: False if it is certain that nothing was stored; None if the answer to COMMIT was lost.
    """

    def __init__(self, message: str, *, stored: bool | None = False) -> None:
        """Store the message and what is known about the data."""
        super().__init__(message)
        self.stored = stored

    def __str__(self) -> str:
        """Return what happened, including what happened to the data."""
        fate = "nothing was stored" if self.stored is False else "it is not known whether it was stored"
        return f"{self.args[0]}; {fate}"


class LedgerSchemaError(LedgerError):
    """The database's tables are newer than this library, or older and may not be migrated (LG-13)."""


class LedgerStateError(LedgerError):
    """The operation does not exist or is in a state that does not allow the request; nothing was changed."""


class LedgerLimitError(LedgerError, ValueError):
    """A limit in the ledger's settings would be exceeded. Nothing was stored (LG-11)."""
