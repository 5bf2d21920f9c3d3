"""How this library's call objects end: with grpc's own call, with an error, or cancelled before that call is made."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from grpc_backoff.aio.grpcio import CANCELLED_DETAILS
from grpc_backoff.aio.loops import raise_soon


class Cancelled:
    """The outcome of a call that was cancelled before grpc's own call was made."""


CANCELLED = Cancelled()
Outcome = grpc.aio.Call | BaseException | Cancelled


class Answering(grpc.aio.Call):
    """A call that reports the outcome of grpc's own call, if there is one, or else its own error."""

    @abstractmethod
    async def _known_outcome(self) -> Outcome:
        """Wait for the outcome, and return it."""

    async def _ask(self, question: str, if_cancelled: Any) -> Any:
        outcome = await self._known_outcome()
        if isinstance(outcome, grpc.aio.Call):
            return await getattr(outcome, question)()
        if isinstance(outcome, grpc.aio.AioRpcError):
            return getattr(outcome, question)()
        if isinstance(outcome, BaseException):
            raise outcome.with_traceback(None)
        return if_cancelled

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        """Return the trailing metadata."""
        return await self._ask("trailing_metadata", grpc.aio.Metadata())  # type: ignore[no-any-return]

    async def code(self) -> grpc.StatusCode:
        """Wait for the status code, and return it."""
        return await self._ask("code", grpc.StatusCode.CANCELLED)  # type: ignore[no-any-return]

    async def details(self) -> str:
        """Return the status details."""
        return await self._ask("details", CANCELLED_DETAILS)  # type: ignore[no-any-return]

    async def debug_error_string(self) -> str | None:
        """Return grpc's own debugging text, if there is any."""
        return await self._ask("debug_error_string", "")  # type: ignore[no-any-return]


def notify(call: grpc.aio.Call, callback: Callable[[Any], None], loop: asyncio.AbstractEventLoop) -> None:
    """Call a done callback; its exceptions are handled like those of asyncio's own callbacks."""
    try:
        callback(call)
    except (KeyboardInterrupt, SystemExit) as error:
        raise_soon(error, loop)  # raising it here would leave the call half ended
    except BaseException as error:  # noqa: BLE001 - a callback may raise anything
        loop.call_exception_handler({"message": "a call's done callback raised", "exception": error})
