"""The errors that calls on an asyncio channel can end with, in addition to grpc's own."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any, Self

import grpc
import grpc.aio

from grpc_backoff.calls.events import Reason
from grpc_backoff.channel import errors
from grpc_backoff.connection.events import ConnectionStatus


class CallError(grpc.aio.AioRpcError, errors.CallError):
    """The error of a call on this library's asyncio channel: both a `GrpcBackoffError` and grpc's own error."""

    @abstractmethod
    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Return the constructor's arguments, because grpc's own method fails for errors with additional fields."""

    def anew(self) -> Self:
        """Return a copy of the error that has not been raised.

        A raised error refers to the frame that raised it, and so to the call that stores the error. Such a cycle would
        keep the channel alive until the next garbage collection (CB-10).
        """
        kind, values = self.__reduce__()
        error: Self = kind(*values)
        error.__cause__ = self.__cause__
        return error


class NoConnectionError(CallError, errors.NoConnectionError):
    """A call got no connection. The code is UNAVAILABLE, or DEADLINE_EXCEEDED if the call waited until its deadline.

    Attributes:
        status: what the channel was doing when the call failed.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        initial_metadata: grpc.aio.Metadata | None = None,
        trailing_metadata: grpc.aio.Metadata | None = None,
        details: str | None = None,
        debug_error_string: str | None = None,
        *,
        status: ConnectionStatus,
    ) -> None:
        grpc.aio.AioRpcError.__init__(
            self,
            code,
            initial_metadata or grpc.aio.Metadata(),
            trailing_metadata or grpc.aio.Metadata(),
            details,
            debug_error_string,
        )
        self.status = status

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Support pickling, as grpc's own error does."""
        metadata = self.initial_metadata(), self.trailing_metadata()
        restored = (self.code(), *metadata, self.details(), self.debug_error_string())
        return partial(type(self), status=self.status), restored


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
        initial_metadata: grpc.aio.Metadata,
        trailing_metadata: grpc.aio.Metadata,
        details: str | None = None,
        debug_error_string: str | None = None,
        attempts: int = 1,
        took: float = 0.0,
        reason: Reason = Reason.ATTEMPTS,
        wait: float | None = None,
        left: float | None = None,
    ) -> None:
        grpc.aio.AioRpcError.__init__(self, code, initial_metadata, trailing_metadata, details, debug_error_string)
        self.attempts = attempts
        self.took = took
        self.reason = reason
        self.wait = wait
        self.left = left

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Support pickling, as grpc's own error does."""
        status = (
            self.code(),
            self.initial_metadata(),
            self.trailing_metadata(),
            self.details(),
            self.debug_error_string(),
        )
        return type(self), (*status, self.attempts, self.took, self.reason, self.wait, self.left)
