"""The ledger: calls that outlive the process, in SQLite or PostgreSQL.

`docs/ledger.md` says what it guarantees and what it does not. PostgreSQL needs the extra `postgres`; SQLite needs none.

Internal, except for `parameters` and `sync`: programs import from `grpc_backoff.ledger`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpc_backoff.ledger.errors import (
    LedgerBusyError,
    LedgerError,
    LedgerLimitError,
    LedgerSchemaError,
    LedgerStateError,
    LedgerUnavailableError,
)
from grpc_backoff.ledger.operation import Operation, OperationAttempt, OperationOutcome, OperationState
from grpc_backoff.ledger.operation_events import (
    LedgerHooks,
    OperationConflicted,
    OperationDelivered,
    OperationEvent,
    OperationExhausted,
    OperationExpired,
    OperationLost,
    OperationRetried,
)
from grpc_backoff.ledger.records import Filter, Queue, Readiness, Recorded, Submitted
from grpc_backoff.policy.ledger_settings import LedgerSettings

if TYPE_CHECKING:  # to type checkers, a module with `__getattr__` would have every name
    from grpc_backoff.ledger.ledger import Ledger
else:

    def __getattr__(name: str) -> object:
        """Import `Ledger` on first use, because it imports grpc, which the command line does not always need."""
        if name == "Ledger":
            from grpc_backoff.ledger.ledger import Ledger  # noqa: PLC0415

            return Ledger
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


__all__ = [
    "Filter",
    "Ledger",
    "LedgerBusyError",
    "LedgerError",
    "LedgerHooks",
    "LedgerLimitError",
    "LedgerSchemaError",
    "LedgerSettings",
    "LedgerStateError",
    "LedgerUnavailableError",
    "Operation",
    "OperationAttempt",
    "OperationConflicted",
    "OperationDelivered",
    "OperationEvent",
    "OperationExhausted",
    "OperationExpired",
    "OperationLost",
    "OperationOutcome",
    "OperationRetried",
    "OperationState",
    "Queue",
    "Readiness",
    "Recorded",
    "Submitted",
]
