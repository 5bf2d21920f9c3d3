"""The two styles in which a caller reads responses or writes requests, and grpc's errors for mixing them."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

_MIXED_STYLES = "The iterator and read/write APIs may not be mixed on a single RPC."
_ALREADY_FINISHED = "RPC already finished."


class StreamResponse(grpc.aio.Call):
    """A call whose responses are either iterated over or read one by one."""

    _responses: AsyncIterator[Any] | None = None
    _reads = False

    def __aiter__(self) -> AsyncIterator[Any]:
        """Iterate over the responses."""
        if self._reads:
            raise grpc.aio.UsageError(_MIXED_STYLES)
        if self._responses is None:
            self._responses = self._iterate()
        return self._responses

    async def read(self) -> Any:
        """Return the next response, or `grpc.aio.EOF`."""
        if not self.done():
            if self._responses is not None:
                raise grpc.aio.UsageError(_MIXED_STYLES)
            self._reads = True
        return await self._read()

    @abstractmethod
    def _iterate(self) -> AsyncIterator[Any]: ...

    @abstractmethod
    async def _read(self) -> Any: ...


class StreamRequest(grpc.aio.Call):
    """A call whose requests are either taken from an iterator or written one by one."""

    takes_writes = True

    async def write(self, request: Any) -> None:
        """Send one request, after waiting for a connection if there is none."""
        self._check_style()
        if self.done():
            raise asyncio.InvalidStateError(_ALREADY_FINISHED)
        await self._write(request)

    async def done_writing(self) -> None:
        """Finish sending requests; does nothing if the call has ended."""
        self._check_style()
        if not self.done():
            await self._done_writing()

    def _check_style(self) -> None:
        if not self.takes_writes:
            raise grpc.aio.UsageError(_MIXED_STYLES)

    @abstractmethod
    async def _write(self, request: Any) -> None: ...

    @abstractmethod
    async def _done_writing(self) -> None: ...
