"""The errors that calls raise, for both APIs. Each is one of grpc's errors as well, so this module loads grpc.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import grpc

from grpc_backoff.base_errors import GrpcBackoffError
from grpc_backoff.calls.events import Reason
from grpc_backoff.connection.events import ConnectionStatus


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


class NoConnectionError(CallError):
    """A call got no connection: UNAVAILABLE, or DEADLINE_EXCEEDED if it was still waiting at its deadline.

    Attributes:
        status: the channel's status when the call failed.
    """

    status: ConnectionStatus


class RetriesExhaustedError(CallError):
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

    def initial_metadata(self) -> Any:
        """Return no metadata, because nothing was sent."""
        return ()

    def trailing_metadata(self) -> Any:
        """Return no metadata, because nothing was sent."""
        return ()

    def debug_error_string(self) -> str:
        """Return the message."""
        return str(self)
