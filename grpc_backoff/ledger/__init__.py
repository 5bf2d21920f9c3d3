"""The ledger: calls that outlive the process, in SQLite or PostgreSQL.

`docs/ledger.md` says what it promises and what not. PostgreSQL needs the extra `postgres`; SQLite needs nothing.
"""

from __future__ import annotations

from grpc_backoff.ledger.errors import (
    LedgerBusyError,
    LedgerError,
    LedgerLimitError,
    LedgerSchemaError,
    LedgerStateError,
    LedgerUnavailableError,
)
from grpc_backoff.ledger.events import (
    OperationConflicted,
    OperationDelivered,
    OperationEvent,
    OperationExhausted,
    OperationLost,
    OperationRetried,
)
from grpc_backoff.ledger.hooks import LedgerHooks
from grpc_backoff.ledger.ledger import Ledger
from grpc_backoff.ledger.records import Attempt, Filter, Operation, Queue, Readiness, Recorded, State, Submitted
from grpc_backoff.policy.ledger import LedgerSettings

__all__ = [
    "Attempt",
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
    "OperationConflicted",
    "OperationDelivered",
    "OperationEvent",
    "OperationExhausted",
    "OperationLost",
    "OperationRetried",
    "Queue",
    "Readiness",
    "Recorded",
    "State",
    "Submitted",
]
