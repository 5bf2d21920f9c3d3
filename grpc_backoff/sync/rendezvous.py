"""The call objects of futures and response streams that wait for a connection, or may be repeated.

They are grpcio's own rendezvous objects: iterator, `grpc.Call`, `grpc.Future` and `grpc.RpcError` in one. Their state
is that of the whole call (`future_call.py`), even if the call takes several attempts.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import grpc

from grpc_backoff.grpcio.sync_private import Rendezvous, end_broken
from grpc_backoff.sync.future_call import FutureCall

if TYPE_CHECKING:
    from types import TracebackType


class FutureRendezvous(Rendezvous):  # type: ignore[misc] # grpcio's own class is Any here
    """A call with one response, as returned by `future`."""

    def __init__(self, call: FutureCall) -> None:
        """Wrap a call that has not been started; the caller starts it afterwards."""
        left = call.time_left()
        deadline = None if left is None else time.time() + left
        Rendezvous.__init__(self, call.state, call, None, deadline)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error of a failed call, or None if it succeeded; see `grpc.Future.exception`."""
        found: BaseException | None = Rendezvous.exception(self, timeout)
        return found if found is not self else self._error()

    def result(self, timeout: float | None = None) -> Any:
        """Return the response, or raise the error of a failed call; see `grpc.Future.result`."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._state.response

    def traceback(self, timeout: float | None = None) -> TracebackType | None:
        """Return the traceback of a failed call's error; see `grpc.Future.traceback`."""
        error = self.exception(timeout)
        if error is None:
            return None
        try:
            raise error
        except grpc.RpcError:
            return sys.exc_info()[2]

    def _error(self) -> BaseException:
        error: BaseException | None = self._call.error
        return self if error is None else error


class StreamRendezvous(FutureRendezvous):
    """A call with a stream of responses."""

    def initial_metadata(self) -> Any:
        """Return the server's initial metadata; if there is any, the call is now committed to the attempt (RT-8)."""
        while True:
            attempt = self._call.current()
            if attempt is None:
                return Rendezvous.initial_metadata(self)
            metadata = attempt.initial_metadata()
            if not attempt.done() and metadata:
                self._call.commit()
            if not attempt.done() or not self._call.follows(attempt):
                return metadata

    def _next(self) -> object:
        while True:
            attempt = self._call.current()
            # The attempt learns of a cancellation later, and could return a message until then.
            if attempt is None or self.cancelled():
                raise self._error()
            try:
                response = self._call.read(attempt)
            except StopIteration:
                self._call.follows(attempt)
                raise
            except grpc.RpcError as error:
                error.__traceback__ = None  # it refers to this frame, and so would keep this object alive
                end_broken(attempt)
            else:
                self._call.commit()
                return response
            if not self._call.follows(attempt):
                raise self._error()
