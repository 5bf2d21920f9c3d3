"""Every error that this library raises.

::

    GrpcBackoffError
    ├── OptionError (also ValueError)           a channel option or argument has an invalid value
    ├── ConfigError (also ValueError)           the configuration file cannot be read or has an invalid value
    ├── ConnectError                            an attempt to connect failed; says at which stage
    ├── IllegalTransition (also RuntimeError)   a state machine got an input without a transition, which is a bug
    ├── ForkError (also RuntimeError)           a channel cannot be used or created in the child of a fork
    ├── MissingExtra (also ImportError)         a feature needs optional packages that are not installed
    ├── NoConnectionError                       a call got no connection, with either API
    ├── RetriesExhaustedError                   a retryable call failed with no attempt left, with either API
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
    ├── grpc_backoff.aio.errors.CallError (also grpc.aio.AioRpcError)
    │   ├── grpc_backoff.aio.NoConnectionError
    │   │   a call got no connection: UNAVAILABLE, or DEADLINE_EXCEEDED while it waited
    │   └── grpc_backoff.aio.RetriesExhaustedError
    │       a call failed with a retryable status and no attempt is left
    └── grpc_backoff.sync.errors.CallError (also grpc._channel._InactiveRpcError)
        ├── grpc_backoff.sync.errors.NoConnectionError
        │   the same for the synchronous API
        └── grpc_backoff.sync.errors.RetriesExhaustedError
            the same for the synchronous API

There is one warning::

    PolicyWarning (a UserWarning)               a policy has a setting that has no effect or is risky

To handle errors from both APIs, catch `NoConnectionError` and `RetriesExhaustedError` from this module. The errors that
are raised are instances of these classes, and also of grpc's own error class for the API.

Misusing a channel raises the same error as in grpc. For example, a call on a closed channel raises
`grpc.aio.UsageError` in the asyncio API and `ValueError` in the synchronous one.
"""

from __future__ import annotations

import re
from typing import Self

from grpc_backoff.status import ConnectionStatus, Failure, Reason

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

_LONGEST_VALUE = 200
_LONGEST_SEARCHED = 10 * _LONGEST_VALUE
_BEFORE_HOST = r":(?!//)\S*@"


class GrpcBackoffError(Exception):
    """The base class of all of this library's errors."""


class OptionError(GrpcBackoffError, ValueError):
    """A channel option or argument has an invalid value or an unknown name.

    The message reads `grpc_backoff.multiplier=0.5: expected a finite number of at least 1`, followed by a suggestion if
    there is one: `; did you mean 'grpc_backoff.jitter'?`. Long values are truncated, and a password in a URL is shown
    as `***`.

    Attributes:
        key: the option's full name.
        value: the value as given, neither truncated nor masked.
        allowed: a noun phrase that says what was expected.
        meant: the likely intended key or value, if one was misspelt; None if there is no suggestion.
    """

    def __init__(self, key: str, value: object, allowed: str, meant: str | None = None) -> None:
        """Store the parts from which the message is built."""
        super().__init__(key, value, allowed, meant)
        self.key = key
        self.value = value
        self.allowed = allowed
        self.meant = meant

    def __str__(self) -> str:
        """Return the message: the key, the value and what was expected (CH-10)."""
        hint = "" if self.meant is None else f"; did you mean {_masked(repr(self.meant))}?"
        return f"{self.key}={shown(self.value)}: expected {self.allowed}{hint}"


class ConfigError(GrpcBackoffError, ValueError):
    """The configuration file cannot be read or has an invalid value.

    Attributes:
        path: the file, as named by the caller. If it is a URL, the message masks the password.
        problem: a description of the error, with the line if the file is not valid TOML.
        key: the path of the invalid key, such as `connection.jitter`; None if the error does not concern one key.
    """

    def __init__(self, path: str, problem: str, key: str | None = None) -> None:
        """Store the parts from which the message is built."""
        super().__init__(path, problem, key)
        self.path = path
        self.problem = problem
        self.key = key

    def __str__(self) -> str:
        """Return the message: the file and what is wrong with it (BP-4)."""
        path = _masked(self.path) if "://" in self.path else self.path  # a file name may contain a colon and an @
        return f"{path}: {self.problem}"


class ConnectError(GrpcBackoffError):
    """One attempt to connect failed.

    Attributes:
        failure: the stage at which it failed, and why.
    """

    def __init__(self, failure: Failure) -> None:
        """Store the failure, whose text is the message."""
        super().__init__(failure)
        self.failure = failure

    def __str__(self) -> str:
        """Return the message: the stage and the reason."""
        return str(self.failure)


class IllegalTransition(GrpcBackoffError, RuntimeError):  # noqa: N818 - the established term
    """A state machine received an input for which its current phase has no transition, which is a bug."""


class ForkError(GrpcBackoffError, RuntimeError):
    """A channel cannot be used or created in the child of a fork; the message says what to do."""


class MissingExtra(GrpcBackoffError, ImportError):  # noqa: N818 - named after what is missing
    """A feature needs optional packages that are not installed."""

    def __init__(self, extra: str) -> None:
        """Store the name of the extra, and build a message that says how to install it."""
        super().__init__(
            f"this needs optional packages: pip install 'grpc-backoff[{extra}]', or '.[{extra}]' in a checkout"
        )
        self.extra = extra

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        """Support pickling, because the constructor takes the name of the extra instead of the message."""
        return type(self), (self.extra,)


class NoConnectionError(GrpcBackoffError):
    """A call got no connection: UNAVAILABLE, or DEADLINE_EXCEEDED if it was still waiting at its deadline.

    Attributes:
        status: the channel's status when the call failed.
    """

    status: ConnectionStatus


class RetriesExhaustedError(GrpcBackoffError):
    """A call failed with a status that its policy retries, and no further attempt was made (RT-6).

    Attributes:
        attempts: how many attempts were made.
        took: how long the attempts and the waits between them took, in seconds.
        reason: why no further attempt was made.
        wait: the wait, in seconds, that did not fit before the deadline; None if that was not the reason.
        left: how many seconds were left until the deadline; None if `wait` is None.
    """

    attempts: int
    took: float
    reason: Reason
    wait: float | None
    left: float | None


class WrongLoopError(GrpcBackoffError, RuntimeError):
    """A channel was used on an event loop other than its own; the message says what to do."""


class PolicyWarning(UserWarning):
    """A policy has a setting that has no effect, such as `backoff` without `delay`, or may retry endlessly (BP-2)."""


def shown(value: object) -> str:
    """Return a value's repr for a message: truncated if it is long, and with any password in a URL shown as `***`."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - any repr may raise, even that of an int with 5,000 digits
        text = f"<{type(value).__name__}>"
    text = _masked(text)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _masked(text: str) -> str:
    """Replace anything that may be a password in a URL with `***`; the URL may lack its scheme."""
    return re.sub(_BEFORE_HOST, ":***@", text[:_LONGEST_SEARCHED])
