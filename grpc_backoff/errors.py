"""Every error that this library raises.

::

    GrpcBackoffError
    ├── OptionError (also ValueError)           a channel option or argument has a wrong value
    ├── ConfigError (also ValueError)           the configuration file cannot be read or has a wrong value
    ├── ConnectError                            one attempt to connect failed; says at which stage
    ├── IllegalTransition (also RuntimeError)   an input that its state does not know: a bug in a shell
    ├── ForkError (also RuntimeError)      a channel of the parent's was used in the child of a fork
    ├── MissingExtra (also ImportError)         a part of the library needs packages that are not installed
    ├── NoConnectionError                       a call got no connection; on either face
    ├── RetriesExhaustedError                   a call was given up that could have been retried; on either face
    ├── WrongLoopError (also RuntimeError)      a channel was used on another event loop than its own
    ├── grpc_backoff.ledger.LedgerError         the root of a ledger's errors; each says what became of the data
    │   ├── grpc_backoff.ledger.LedgerBusyError
    │   │   a lock was not had in time
    │   ├── grpc_backoff.ledger.LedgerLimitError (also ValueError)
    │   │   a limit on rows or bytes would be passed
    │   ├── grpc_backoff.ledger.LedgerSchemaError
    │   │   the tables are those of another version of this library
    │   ├── grpc_backoff.ledger.LedgerStateError
    │   │   the operation is not there, or not in a state that allows it
    │   └── grpc_backoff.ledger.LedgerUnavailableError
    │       the database cannot be used
    ├── grpc_backoff.aio.errors.CallError (also grpc.aio.AioRpcError)
    │   ├── grpc_backoff.aio.NoConnectionError
    │   │   a call got no connection: UNAVAILABLE, or DEADLINE_EXCEEDED while it waited
    │   └── grpc_backoff.aio.RetriesExhaustedError
    │       a call failed with a status that is retried, and no attempt is left
    └── grpc_backoff.sync.errors.CallError (also grpc._channel._InactiveRpcError)
        ├── grpc_backoff.sync.errors.NoConnectionError
        │   the same of the threaded face
        └── grpc_backoff.sync.errors.RetriesExhaustedError
            the same of the threaded face

and one warning::

    PolicyWarning (a UserWarning)               a policy says something that has no effect, or asks for trouble

`NoConnectionError` and `RetriesExhaustedError` are caught by these names whichever face a call was made on; what is
raised is also grpc's own error of that face.

Misuse of a channel raises what grpc raises for it: after `close`, `grpc.aio.UsageError` on the asyncio face and
`ValueError` on the threaded one, for example.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from grpc_backoff.calls.events import Reason
    from grpc_backoff.connection.events import ConnectionStatus, Failure

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
    """The root of all errors of this library."""


class OptionError(GrpcBackoffError, ValueError):
    """A channel option or argument has a wrong value, or an unknown name.

    The message is `grpc_backoff.jitter=1.5: expected a number from 0 to below 1`, with a suggestion behind it if there
    is one: `; did you mean 'grpc_backoff.jitter'?`. Long values are cut, and a password in a URL is shown as `***`.

    Attributes:
        key: the option's full name.
        value: the value as given, uncut and unmasked.
        allowed: what was expected, as a noun phrase.
        meant: what was probably meant by a misspelt key or value; None for no suggestion.
    """

    def __init__(self, key: str, value: object, allowed: str, meant: str | None = None) -> None:
        """Keep the parts; the message is built from them."""
        super().__init__(key, value, allowed, meant)
        self.key = key
        self.value = value
        self.allowed = allowed
        self.meant = meant

    def __str__(self) -> str:
        """Name the key, the value and what was expected (CH-10)."""
        hint = "" if self.meant is None else f"; did you mean {_masked(repr(self.meant))}?"
        return f"{self.key}={shown(self.value)}: expected {self.allowed}{hint}"


class ConfigError(GrpcBackoffError, ValueError):
    """The configuration file cannot be read, or has a wrong value.

    Attributes:
        path: the file, as it was named; the message has `***` for a password, where it was a URL by mistake.
        problem: what is wrong with it, in words; has the line where the file is no TOML.
        key: the path of the key whose value is wrong, `connection.jitter` for example; None for the whole file.
    """

    def __init__(self, path: str, problem: str, key: str | None = None) -> None:
        """Keep the three parts; the message is built from them."""
        super().__init__(path, problem, key)
        self.path = path
        self.problem = problem
        self.key = key

    def __str__(self) -> str:
        """Name the file and what is wrong with it (BP-4)."""
        path = _masked(self.path) if "://" in self.path else self.path  # a file's own name may have a colon and an @
        return f"{path}: {self.problem}"


class ConnectError(GrpcBackoffError):
    """One attempt to connect failed.

    Attributes:
        failure: the stage at which it failed, and why.
    """

    def __init__(self, failure: Failure) -> None:
        """Keep the failure; the message is built from it."""
        super().__init__(failure)
        self.failure = failure

    def __str__(self) -> str:
        """Say the stage and the reason."""
        return str(self.failure)


class IllegalTransition(GrpcBackoffError, RuntimeError):  # noqa: N818 - the term of the field
    """The state machine was handed an input that its table does not have for its phase."""


class ForkError(GrpcBackoffError, RuntimeError):
    """A channel was made before a fork and used in the child, or cannot work there; the message says what to do."""


class MissingExtra(GrpcBackoffError, ImportError):  # noqa: N818 - what it says is the name
    """A part of this library was used whose optional packages are not installed."""

    def __init__(self, extra: str) -> None:
        """Name the extra; the message says what to install."""
        super().__init__(
            f"this needs optional packages: pip install 'grpc-backoff[{extra}]', or '.[{extra}]' in a checkout"
        )
        self.extra = extra

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        """Survive pickling: the message is not what the constructor takes."""
        return type(self), (self.extra,)


class NoConnectionError(GrpcBackoffError):
    """A call got no connection: UNAVAILABLE, or DEADLINE_EXCEEDED where it waited for one.

    Attributes:
        status: what the channel was doing when the call failed.
    """

    status: ConnectionStatus


class RetriesExhaustedError(GrpcBackoffError):
    """A call failed in a way that its policy retries, and got no further attempt (RT-6).

    Attributes:
        attempts: how many attempts there were.
        took: how many seconds they and the waits between them took.
        reason: why there was no other.
        wait: the wait, in seconds, for which there was no time; None if that was not the reason.
        left: how many seconds were left then.
    """

    attempts: int
    took: float
    reason: Reason
    wait: float | None
    left: float | None


class WrongLoopError(GrpcBackoffError, RuntimeError):
    """A channel was used on another event loop than the one it was made on; the message says what to do."""


class PolicyWarning(UserWarning):
    """A policy says something that has no effect, such as `backoff` without `delay`, or retries without end (BP-2)."""


def shown(value: object) -> str:
    """Return a value's repr for a message: cut where it is long, with `***` for a password in a URL."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the value is the user's; an int of 5,000 digits raises too
        text = f"<{type(value).__name__}>"
    text = _masked(text)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _masked(text: str) -> str:
    """Return a text with `***` for what may be a password: `scheme://user:password@host`, with or without a scheme."""
    return re.sub(_BEFORE_HOST, ":***@", text[:_LONGEST_SEARCHED])
