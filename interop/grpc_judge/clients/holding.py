"""Makes calls of every arity on a `grpc.aio.Channel` and keeps everything they leave behind (`--hold-ms`).

A program may well keep such references: the calls, the exceptions that they raised, request iterators that have not
ended, and reference cycles that wait for the next collection. None of them may cause traffic on the wire.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import grpc
import grpc.aio

from grpc_judge.clients.peer_program import METHOD, CallOrder, Tally

__all__ = ["hold_all"]

_PAUSES = 5
"""How many pauses a worker takes after each call. There are 16 workers here, compared with 4 elsewhere, and they must
not keep the loop so busy that its timers are late."""

_Call = Callable[[], Awaitable[object]]


class _Holder:
    """Workers that make calls one after another, and everything that their calls leave behind."""

    def __init__(self, order: CallOrder, channel: grpc.aio.Channel) -> None:
        self.tally = Tally()
        self._order = order
        self._loop = asyncio.get_running_loop()
        self._over = self._loop.time() + order.seconds
        self._kept: list[object] = []
        self._multicallables: list[Any] = [
            channel.unary_unary(METHOD),
            channel.unary_stream(METHOD),
            channel.stream_unary(METHOD),
            channel.stream_stream(METHOD),
        ]

    def calls(self, *, wait_for_ready: bool) -> Sequence[_Call]:
        """Return functions that each make a call and wait for its end: one per arity and way to use the call."""
        unary, answers, requests, both = self._multicallables
        return [
            lambda: self._result(unary(b"", wait_for_ready=wait_for_ready)),
            lambda: self._limited(unary(b"", wait_for_ready=wait_for_ready)),
            lambda: self._answers(answers(b"", wait_for_ready=wait_for_ready)),
            lambda: self._result(requests(_one(), wait_for_ready=wait_for_ready)),
            lambda: self._result(requests(self._unfinished(), wait_for_ready=wait_for_ready)),
            lambda: self._answers(both(_one(), wait_for_ready=wait_for_ready)),
            lambda: self._answers(both(self._unfinished(), wait_for_ready=wait_for_ready)),
            lambda: self._by_hand(both(wait_for_ready=wait_for_ready)),
        ]

    async def work(self, call: _Call) -> None:
        """Make calls until the time is up and keep the error of each call that fails."""
        while self._loop.time() < self._over:
            self.tally.made += 1
            try:
                await call()
                self.tally.ok += 1
            except (grpc.aio.AioRpcError, TimeoutError) as error:
                code = grpc.StatusCode.DEADLINE_EXCEEDED if isinstance(error, TimeoutError) else error.code()
                self.tally.failed[code.name] += 1
                self._kept.append(error)
            await asyncio.sleep(_PAUSES * self._order.pause)

    async def _result(self, call: Any) -> None:
        self._kept.append(call)
        await call

    async def _limited(self, call: Any) -> None:
        """Await the call with a timeout. In Python 3.11, `wait_for` leaves a reference cycle behind."""
        self._kept.append(call)
        await asyncio.wait_for(call, self._order.seconds)

    async def _answers(self, call: Any) -> None:
        self._kept.append(call)
        async for answer in call:
            self._kept.append(answer)

    async def _by_hand(self, call: Any) -> None:
        """Write one request and read one response, but never finish writing."""
        self._kept.append(call)
        await call.write(b"")
        await call.read()

    def _unfinished(self) -> AsyncIterator[bytes]:
        requests = _endless()
        self._kept.append(requests)
        return requests


async def _one() -> AsyncIterator[bytes]:
    yield b""


async def _endless() -> AsyncIterator[bytes]:
    yield b""
    await asyncio.Event().wait()


async def hold_all(order: CallOrder, channel: grpc.aio.Channel, closed: Callable[[], None]) -> Tally:
    """Keep the channel busy, close it, report the close, and keep all references for the time in `--hold-ms`."""
    gc.disable()  # a collection would release the references
    holder = _Holder(order, channel)
    async with channel:
        workers = [
            asyncio.create_task(holder.work(call))
            for wait_for_ready in (False, True)
            for call in holder.calls(wait_for_ready=wait_for_ready)
        ]
        await asyncio.sleep(order.seconds)
    closed()
    await asyncio.sleep((order.hold_ms or 0) / 1000)
    for worker in workers:
        worker.cancel()
    for outcome in await asyncio.gather(*workers, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome  # this is an error of the program, not of a call
    return holder.tally
