"""Calls with a stream of requests that may wait for a connection or be repeated, and the styles of writing.

Like grpc's own calls, these refuse to mix an iterator of requests with `write`. A channel imports this module when it
is asked for such a method, because few programs have one (CH-12).
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import grpc.aio

from grpc_backoff.aio.attempting_call import Outcome
from grpc_backoff.aio.call import MIXED_STYLES, Call, StreamResponse
from grpc_backoff.aio.call_errors import CallError
from grpc_backoff.aio.core_channel import CoreChannel
from grpc_backoff.aio.replay import Replay
from grpc_backoff.aio.stream_attempt import ALREADY_FINISHED, StreamAttempt
from grpc_backoff.engine.call import CallSetup

if TYPE_CHECKING:
    from grpc_backoff.aio.multicallables import MultiCallable


class _StreamRequest(Call):
    """A call whose requests are either taken from an iterator or written one by one; they are sent to each attempt."""

    _replay: Replay | None = None
    _wrote = False

    def __init__(self, setup: CallSetup[MultiCallable]) -> None:
        requests = setup.request
        self._takes_writes = requests is None
        if not setup.machine.handed_over:
            self._replay = Replay(self, setup.calls.replay_limit, setup.attempts.serializer)
            setup = setup._replace(attempts=setup.attempts.of_bytes(), request=None)
        super().__init__(setup)
        if self._replay is not None:
            self._replay.start(requests)

    def _begun(self, attempt: grpc.aio.Call, connection: CoreChannel) -> None:
        if self._replay is None:
            super()._begun(attempt, connection)
        else:
            super()._begun(StreamAttempt(attempt), connection)
            self._replay.begun()

    def commit(self) -> None:
        if not self.committed:
            super().commit()
            if self._replay is not None:
                self._replay.committed()

    def _settle(self, outcome: Outcome) -> None:
        replay, self._replay = self._replay, None  # pending writes keep it alive, and it refers to this call
        if replay is not None:
            replay.settled()
        super()._settle(outcome)

    @property
    def _done_writing_flag(self) -> bool:
        # grpc's intercepted stream calls read this attribute of the call that an interceptor returned.
        if self._replay is not None:
            return self._replay.half_closed
        return getattr(self._outcome, "_done_writing_flag", False)

    async def write(self, request: object) -> None:
        """Send one request, after waiting for a connection if there is none."""
        self._check_style()
        first, self._wrote = not self._wrote, True
        if self.done():
            # Without a connection, this call can fail before its caller's task comes to write; grpc's fails later.
            if first and isinstance(self._outcome, CallError):
                self._raise_outcome()
            raise asyncio.InvalidStateError(ALREADY_FINISHED)
        await (self._replay or await self.running()).write(request)

    async def done_writing(self) -> None:
        """Finish sending requests; does nothing if the call has ended."""
        self._check_style()
        if not self.done():
            receiver: Any = self._replay or await self.or_cancel(self.running())
            await receiver.done_writing()

    def _check_style(self) -> None:
        if not self._takes_writes:
            raise grpc.aio.UsageError(MIXED_STYLES)


class _StreamUnaryCall(_StreamRequest, grpc.aio.StreamUnaryCall[object, object]):
    def __await__(self) -> Generator[Any, None, object]:
        """Wait for the response on each attempt, which may have to be read to find its end (`StreamAttempt`)."""
        _, response = yield from self._from_attempt(lambda attempt: attempt).__await__()
        return response


class _StreamStreamCall(_StreamRequest, StreamResponse, grpc.aio.StreamStreamCall[object, object]):
    pass


CALL_CLASSES: dict[str, type[Call]] = {
    "stream_unary": _StreamUnaryCall,
    "stream_stream": _StreamStreamCall,
}
"""Classes of calls with a stream of requests, as in `call.py`."""
