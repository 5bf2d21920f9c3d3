"""Every error that this library raises.

::

    GrpcBackoffError
    ├── OptionError (also ValueError)           a channel option or argument has an invalid value
    ├── ConfigError (also ValueError)           the configuration file cannot be read or has an invalid value
    ├── ConnectError                            an attempt to connect failed; says at which stage
    ├── IllegalTransition (also RuntimeError)   a state machine got an input without a transition, which is a bug
    ├── MissingExtra (also ImportError)         a feature needs optional packages that are not installed
    ├── WrongLoopError (also RuntimeError)      a channel was used on a different event loop
    ├── grpc_backoff.ledger.LedgerError         the base of all ledger errors; each says what happened to the data
    │   ├── grpc_backoff.ledger.LedgerBusyError
    │   │   a lock was not acquired in time
    │   ├── grpc_backoff.ledger.LedgerLimitError (also ValueError)
    │   │   a limit on rows or bytes would be exceeded
    │   ├── grpc_backoff.ledger.LedgerSchemaError
    │   │   the tables belong to another version of this library
    │   ├── grpc_backoff.ledger.LedgerStateError
    │   │   the operation does not exist, or its state does not allow the request
    │   └── grpc_backoff.ledger.LedgerUnavailableError
    │       the database cannot be used
    └── grpc_backoff.grpcio.call_errors.CallError (also grpc.RpcError)
        the base of the errors that calls raise
        ├── ForkError (also RuntimeError)
        │   a channel cannot be used or created in the child of a fork
        ├── NoConnectionError
        │   a call got no connection: UNAVAILABLE, or DEADLINE_EXCEEDED while it waited
        ├── RetriesExhaustedError
        │   a call failed with a retryable status and no attempt is left
        ├── grpc_backoff.aio.call_errors.CallError (also grpc.aio.AioRpcError)
        │   ├── grpc_backoff.aio.NoConnectionError
        │   └── grpc_backoff.aio.RetriesExhaustedError
        └── grpc_backoff.sync.call_errors.CallError (also grpc._channel._InactiveRpcError, _MultiThreadedRendezvous)
            ├── grpc_backoff.sync.call_errors.ForkError
            ├── grpc_backoff.sync.call_errors.NoConnectionError
            └── grpc_backoff.sync.call_errors.RetriesExhaustedError

There is one warning::

    PolicyWarning (a UserWarning)               a policy has a setting that has no effect or is risky

To handle errors from both APIs, catch `NoConnectionError` and `RetriesExhaustedError` from this module. The errors that
are raised are instances of these classes, and also of grpc's own error class for the API.

Misusing a channel raises the same error as in grpc. For example, a call on a closed channel raises
`grpc.aio.UsageError` in the asyncio API and `ValueError` in the synchronous one.
"""

from __future__ import annotations

from grpc_backoff.base.base_errors import (
    ConfigError,
    ConnectError,
    GrpcBackoffError,
    IllegalTransition,
    MissingExtra,
    OptionError,
    PolicyWarning,
    WrongLoopError,
)
from grpc_backoff.grpcio.call_errors import ForkError, NoConnectionError, RetriesExhaustedError

__all__ = [
    "ConfigError",
    "ConnectError",
    "ForkError",
    "GrpcBackoffError",
    "IllegalTransition",
    "MissingExtra",
    "NoConnectionError",
    "OptionError",
    "PolicyWarning",
    "RetriesExhaustedError",
    "WrongLoopError",
]
