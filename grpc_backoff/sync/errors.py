"""The errors that calls on a threaded channel can end with, in addition to grpc's own."""

from __future__ import annotations

from functools import partial
from typing import Any

import grpc

from grpc_backoff.calls.events import Reason
from grpc_backoff.channel import errors
from grpc_backoff.connection.events import ConnectionStatus
from grpc_backoff.sync.grpcio import InactiveRpcError, call_state


class CallError(InactiveRpcError, errors.CallError):  # type: ignore[misc] # grpcio's own class is Any here
    """The error of a call on this library's threaded channel: both a `GrpcBackoffError` and grpc's own kind of error.

    Like grpc's own error, it is a `grpc.RpcError`, a `grpc.Call` and a `grpc.Future`. Unlike grpc's, it can be pickled.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        initial_metadata: Any = None,
        trailing_metadata: Any = None,
        details: str | None = None,
        debug_error_string: str | None = None,
    ) -> None:
        state = call_state(code, details, initial_metadata or (), trailing_metadata or (), debug_error_string)
        InactiveRpcError.__init__(self, state)

    def _status(self) -> tuple[Any, ...]:
        """Return the arguments of `__init__` in a form that can be pickled, as grpc's own metadata cannot."""
        initial, trailing = (tuple(map(tuple, pairs)) for pairs in (self.initial_metadata(), self.trailing_metadata()))
        return self.code(), initial, trailing, self.details(), self.debug_error_string()


class NoConnectionError(CallError, errors.NoConnectionError):
    """A call got no connection. The code is UNAVAILABLE, or DEADLINE_EXCEEDED if the call waited until its deadline.

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
        CallError.__init__(self, code, initial_metadata, trailing_metadata, details, debug_error_string)
        self.status = status

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Support pickling, which grpc's own error does not."""
        return partial(type(self), status=self.status), self._status()


class RetriesExhaustedError(CallError, errors.RetriesExhaustedError):
    """A call failed with a status that its policy retries, and no further attempt was made (RT-6).

    The code and the metadata are those of the last attempt. The details are those of the last attempt, followed by the
    reason why no further attempt was made. The cause is the last attempt's own error.

    Attributes:
        attempts: how many attempts were made.
        took: how long the attempts and the waits between them took, in seconds.
        reason: why no further attempt was made.
        wait: the wait, in seconds, that did not fit before the deadline; None if that was not the reason.
        left: how many seconds were then left before the deadline; None if that was not the reason.
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
        CallError.__init__(self, code, initial_metadata, trailing_metadata, details, debug_error_string)
        self.attempts = attempts
        self.took = took
        self.reason = reason
        self.wait = wait
        self.left = left

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Support pickling, which grpc's own error does not."""
        return type(self), (*self._status(), self.attempts, self.took, self.reason, self.wait, self.left)
