"""The errors that calls of the threaded channel end with, beside grpc's own."""

from __future__ import annotations

from functools import partial
from typing import Any

import grpc

from grpc_backoff import errors
from grpc_backoff.calls.events import Reason
from grpc_backoff.connection.events import ConnectionStatus
from grpc_backoff.errors import GrpcBackoffError
from grpc_backoff.sync.grpcio import InactiveRpcError, call_state

__all__ = ["CallError", "NoConnectionError", "RetriesExhaustedError"]


class CallError(GrpcBackoffError, InactiveRpcError):  # type: ignore[misc] # grpcio's own class is Any here
    """The outcome of a call of ours: what grpc's own blocking calls raise, and `GrpcBackoffError`.

    It is a `grpc.RpcError`, a `grpc.Call` and a `grpc.Future`, as grpc's is; and unlike that it survives pickling.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        initial_metadata: Any = None,
        trailing_metadata: Any = None,
        details: str | None = None,
        debug_error_string: str | None = None,
    ) -> None:
        """Take what a status has."""
        state = call_state(code, details, initial_metadata or (), trailing_metadata or (), debug_error_string)
        InactiveRpcError.__init__(self, state)

    def _status(self) -> tuple[Any, ...]:
        """Return what `__init__` takes, in a form that can be pickled: grpc's own pairs of metadata cannot."""
        initial, trailing = (tuple(map(tuple, pairs)) for pairs in (self.initial_metadata(), self.trailing_metadata()))
        return self.code(), initial, trailing, self.details(), self.debug_error_string()


class NoConnectionError(errors.NoConnectionError, CallError):
    """The outcome of a call that got no connection: UNAVAILABLE, or DEADLINE_EXCEEDED where it waited for one.

    Attributes:
        status: what the channel was doing when the call failed.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        initial_metadata: Any = None,
        trailing_metadata: Any = None,
        details: str | None = None,
        debug_error_string: str | None = None,
        *,
        status: ConnectionStatus,
    ) -> None:
        """Take what a status of grpc's has, and that of the channel."""
        CallError.__init__(self, code, initial_metadata, trailing_metadata, details, debug_error_string)
        self.status = status

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Survive pickling, which grpc's own error does not."""
        return partial(type(self), status=self.status), self._status()


class RetriesExhaustedError(errors.RetriesExhaustedError, CallError):
    """The outcome of a call that failed in a way that its policy retries, and that got no further attempt (RT-6).

    Code and metadata are those of the last attempt; the details are its details, and why it was the last. Its cause is
    the last attempt's own error.

    Attributes:
        attempts: how many attempts there were.
        took: how many seconds they and the waits between them took.
        reason: why there was no other.
        wait: the wait, in seconds, for which there was no time; None if that was not the reason.
        left: how many seconds were left then.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        initial_metadata: Any = None,
        trailing_metadata: Any = None,
        details: str | None = None,
        debug_error_string: str | None = None,
        attempts: int = 1,
        took: float = 0.0,
        reason: Reason = Reason.ATTEMPTS,
        wait: float | None = None,
        left: float | None = None,
    ) -> None:
        """Take what a status of grpc's has, and the account of the attempts."""
        CallError.__init__(self, code, initial_metadata, trailing_metadata, details, debug_error_string)
        self.attempts = attempts
        self.took = took
        self.reason = reason
        self.wait = wait
        self.left = left

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Survive pickling, which grpc's own error does not."""
        return type(self), (*self._status(), self.attempts, self.took, self.reason, self.wait, self.left)
