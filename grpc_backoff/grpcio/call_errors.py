"""The errors that calls raise, for both APIs. Each is one of grpc's errors as well, so this module loads grpc.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Self

import grpc

from grpc_backoff.base.base_errors import GrpcBackoffError
from grpc_backoff.base.status import ConnectionStatus, Reason


class CallError(GrpcBackoffError, grpc.RpcError):
    """The base class of the errors that calls raise. Metadata is of the type that the API of the channel uses."""

    @abstractmethod
    def code(self) -> grpc.StatusCode:
        """Return the status code."""

    @abstractmethod
    def details(self) -> str | None:
        """Return what the status says in words."""

    @abstractmethod
    def initial_metadata(self) -> Any:
        """Return the server's initial metadata."""

    @abstractmethod
    def trailing_metadata(self) -> Any:
        """Return the server's trailing metadata."""

    @abstractmethod
    def debug_error_string(self) -> str | None:
        """Return grpcio's own description of the error, for debugging."""

    def _status(self) -> tuple[object, ...]:
        """Return the first five arguments of the constructor, in a form that can be pickled."""
        metadata = self.initial_metadata(), self.trailing_metadata()
        return self.code(), *metadata, self.details(), self.debug_error_string()


class NoConnectionError(CallError):
    """A call got no connection. The code is UNAVAILABLE, or DEADLINE_EXCEEDED if the call waited until its deadline.

    Attributes:
        status: what the channel was doing when the call failed.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        initial_metadata: object = None,
        trailing_metadata: object = None,
        details: str | None = None,
        debug_error_string: str | None = None,
        *,
        status: ConnectionStatus,
    ) -> None:
        super().__init__(code, initial_metadata, trailing_metadata, details, debug_error_string)
        self.status = status

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[object, ...]]:
        """Support pickling; grpc's own methods do not keep all fields."""
        return partial(type(self), status=self.status), self._status()


class RetriesExhaustedError(CallError):
    """A call failed with a status that its policy retries, and no further attempt was made (RT-6).

    The code and the metadata are those of the last attempt. The details are those of the last attempt, followed by the
    reason why no further attempt was made; with a rich status, `debug_error_string` has that reason instead. The cause
    is the last attempt's own error.

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
        initial_metadata: object = None,
        trailing_metadata: object = None,
        details: str | None = None,
        debug_error_string: str | None = None,
        attempts: int = 1,
        took: float = 0.0,
        reason: Reason = Reason.ATTEMPTS,
        wait: float | None = None,
        left: float | None = None,
    ) -> None:
        super().__init__(code, initial_metadata, trailing_metadata, details, debug_error_string)
        self.attempts = attempts
        self.took = took
        self.reason = reason
        self.wait = wait
        self.left = left

    def __reduce__(self) -> tuple[Callable[..., Self], tuple[object, ...]]:
        """Support pickling; grpc's own methods do not keep all fields."""
        return type(self), (*self._status(), self.attempts, self.took, self.reason, self.wait, self.left)


class ForkError(CallError, RuntimeError):
    """A channel cannot be used or created in the child of a fork; the message says what to do.

    As the error of a call, it has the code FAILED_PRECONDITION, because trying again does not help.
    """

    def code(self) -> grpc.StatusCode:
        """Return FAILED_PRECONDITION."""
        return grpc.StatusCode.FAILED_PRECONDITION

    def details(self) -> str:
        """Return the message."""
        return str(self)

    debug_error_string = details

    def initial_metadata(self) -> tuple[()]:
        """Return no metadata, because nothing was sent."""
        return ()

    trailing_metadata = initial_metadata
