"""The errors that calls on an asyncio channel can end with, in addition to grpc's own."""

from __future__ import annotations

import grpc
import grpc.aio

from grpc_backoff.grpcio import call_errors


class CallError(grpc.aio.AioRpcError, call_errors.CallError):
    """The error of a call on this library's asyncio channel: both a `GrpcBackoffError` and grpc's own error."""

    def __init__(
        self,
        code: grpc.StatusCode,
        initial_metadata: grpc.aio.Metadata | None = None,
        trailing_metadata: grpc.aio.Metadata | None = None,
        details: str | None = None,
        debug_error_string: str | None = None,
    ) -> None:
        initial, trailing = initial_metadata or grpc.aio.Metadata(), trailing_metadata or grpc.aio.Metadata()
        grpc.aio.AioRpcError.__init__(self, code, initial, trailing, details, debug_error_string)


class NoConnectionError(call_errors.NoConnectionError, CallError):
    """A call on an asyncio channel got no connection; see `grpc_backoff.NoConnectionError`."""


class RetriesExhaustedError(call_errors.RetriesExhaustedError, CallError):
    """A call on an asyncio channel was not repeated any more; see `grpc_backoff.RetriesExhaustedError`."""
