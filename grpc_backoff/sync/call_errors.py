"""The errors that calls on a threaded channel can end with, in addition to grpc's own."""

from __future__ import annotations

import grpc

from grpc_backoff.grpcio import call_errors
from grpc_backoff.grpcio.sync_private import InactiveRpcError, Rendezvous, call_state


class CallError(InactiveRpcError, Rendezvous, call_errors.CallError):  # type: ignore[misc] # grpcio's own are Any here
    """The error of a call on this library's threaded channel: both a `GrpcBackoffError` and grpc's own kind of error.

    Like grpc's own error, it is a `grpc.RpcError`, a `grpc.Call` and a `grpc.Future`. It is of the class that grpcio
    raises from blocking calls and of the one that it raises from futures and streams (TH-1). Unlike grpc's, it can be
    pickled.
    """

    # A call that has ended answers these; the error of grpc's blocking calls does not.
    is_active = Rendezvous.is_active
    time_remaining = Rendezvous.time_remaining
    add_callback = Rendezvous.add_callback

    def __init__(
        self,
        code: grpc.StatusCode,
        initial_metadata: object = None,
        trailing_metadata: object = None,
        details: str | None = None,
        debug_error_string: str | None = None,
    ) -> None:
        state = call_state(code, details, initial_metadata or (), trailing_metadata or (), debug_error_string)
        InactiveRpcError.__init__(self, state)
        self._state.callbacks = self._call = self._response_deserializer = self._deadline = None  # as of an ended call

    def _status(self) -> tuple[object, ...]:
        # As tuples, because grpc's own metadata cannot be pickled.
        initial, trailing = (tuple(map(tuple, pairs)) for pairs in (self.initial_metadata(), self.trailing_metadata()))
        return self.code(), initial, trailing, self.details(), self.debug_error_string()


class NoConnectionError(call_errors.NoConnectionError, CallError):
    """A call on a threaded channel got no connection; see `grpc_backoff.NoConnectionError`."""


class RetriesExhaustedError(call_errors.RetriesExhaustedError, CallError):
    """A call on a threaded channel was not repeated any more; see `grpc_backoff.RetriesExhaustedError`."""


class ForkError(CallError, call_errors.ForkError):
    """A call on a threaded channel from before a fork; see `grpc_backoff.ForkError`.

    It is a `grpc.Call`, because interceptors get the error of a blocking call as one.
    """

    __str__ = RuntimeError.__str__

    def __init__(self, message: str) -> None:
        CallError.__init__(self, grpc.StatusCode.FAILED_PRECONDITION, (), (), message, message)

    def __reduce__(self) -> tuple[type[ForkError], tuple[str, ...]]:
        """Support pickling, as that of the public class does."""
        return type(self), self.args
