"""The errors of a ledger. Each says what became of the data; `grpc_backoff.errors` draws the tree."""

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
    """The root of a ledger's errors."""


class LedgerBusyError(LedgerError):
    """Somebody else held a lock for longer than `lock_timeout`, or PostgreSQL ended a deadlock with somebody else.

    Nothing was written (LG-2).
    """


class LedgerUnavailableError(LedgerError):
    """The database could not be used; the message says why.

    Attributes:
        stored: False where it is certain that nothing was stored; None where the answer to COMMIT was lost.
    """

    def __init__(self, message: str, *, stored: bool | None = False) -> None:
        """Keep the message and what is known of the data."""
        super().__init__(message)
        self.stored = stored

    def __str__(self) -> str:
        """Say what happened, and what became of the data."""
        fate = "nothing was stored" if self.stored is False else "it is not known whether it was stored"
        return f"{self.args[0]}; {fate}"


class LedgerSchemaError(LedgerError):
    """The database's tables are newer than this library, or older and not to be migrated (LG-13)."""


class LedgerStateError(LedgerError):
    """What was asked of an operation does not fit its state; nothing was changed."""


class LedgerLimitError(LedgerError, ValueError):
    """A limit of the ledger's settings would be passed. Nothing was stored (LG-11)."""
