"""Hedged calls on asyncio: the shell of `hedging_machine`, for calls with one request.

A hedged call has no attempt until one of its copies is chosen. From then on it is that copy, just as a call that was
handed over is its attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import grpc
import grpc.aio

from grpc_backoff.aio.call import Call, StreamResponse, UnaryResponse
from grpc_backoff.aio.core_channel import CoreChannel
from grpc_backoff.aio.ordered_timers import OrderedTimers
from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.decide.calls import hedging_machine as h
from grpc_backoff.engine.losers import Copies, Losers, wait_for_next_copy
from grpc_backoff.grpcio import aio_private


class _HedgedCall(Call):
    """The base class of both arities: it keeps the copies until one of them is chosen."""

    _machine: h.HedgingMachine
    _copies: Copies[grpc.aio.Call]
    _avoided: tuple[CoreChannel, ...] = ()  # of all copies, so that each goes to another server if there are several
    _losers: Losers[grpc.aio.Call] | None = None

    def _begin(self, effect: m.Begin, *, in_context: bool = False) -> None:
        sender = self._sender
        if self._avoided and self._state.copies.live and sender is not None:
            wait = wait_for_next_copy(self._calls, self._avoided, lambda: sender.connection(self._avoided))
            if wait:
                self._inputs.append(h.CopyHeld(wait))
                return
        super()._begin(effect, in_context=in_context)
        if effect.wake is not None and self._avoided:
            delay, delays = self._machine.hedging.hedging_delay, self._calls.delays
            timers = delays.get(delay) or delays.setdefault(delay, OrderedTimers(self._calls.clock))
            self._timer = timers.call_at(effect.wake, self._timer_fired)

    def _not_connected(self) -> m.NotConnected:
        return self._calls.pending.not_connected()

    def _begun(self, attempt: grpc.aio.Call, connection: CoreChannel) -> None:
        if not self._avoided:
            self._copies = {}
        self._avoided += (connection,)
        self._connection = connection
        copies = self._state.copies
        self._copies[copies.sent] = attempt, connection
        if copies.starting:
            self._inputs.append(h.CopyBegun())
        self._follow(copies.sent, attempt)

    def _follow(self, number: int, attempt: grpc.aio.Call) -> None:
        """Report to the machine how this copy is answered."""
        aio_private.core_call(attempt).add_done_callback(partial(self._copy_ended, number, attempt))

    def _copy_ended(self, number: int, attempt: grpc.aio.Call) -> None:
        if self._losers is not None:
            self._losers.ended(number)
        if aio_private.core_call(attempt).is_ok():
            self.feed(h.CopyAnswered(number))
        elif aio_private.is_cancelled_here(attempt):
            self.feed(m.CancelRequested())  # for example, because the channel was closed
        else:
            self._copy_failed(number, aio_private.status_of(attempt))

    def _copy_failed(self, number: int, error: grpc.aio.AioRpcError) -> None:
        self._calls.note(self._status(error))
        if not self._has_outcome():
            self._error, self._connection = error, self._avoided[number - 1]
            self.feed(h.CopyFailed(number, self._failure(error)))

    def _carry_out(self, effect: h.Effect) -> None:
        if isinstance(effect, h.Choose):
            self.attempt = None if effect.copy is None else self._copies.pop(effect.copy)[0]
            self._leave_others(effect.at)
            effect = effect.end
        if isinstance(effect, h.EmitAtEnd):
            ended = partial(self._chosen_ended, self.attempt, effect)
            aio_private.core_call(self.attempt).add_done_callback(ended)
        else:
            super()._carry_out(effect)
            if self._has_outcome():
                self._avoided = ()

    def _chosen_ended(self, attempt: object, effect: h.EmitAtEnd) -> None:
        if aio_private.core_call(attempt).is_ok():
            self._emit(effect.at(self._calls.now()))

    def _leave_others(self, at: float | None) -> None:
        if self._avoided and self._copies:
            copies, self._copies = self._copies, {}
            self._losers = Losers(self._calls, copies)
            self._losers.leave(at)
        self._avoided = ()

    def _break_off(self, error: Exception) -> None:
        self._leave_others(None)
        super()._break_off(error)


class _HedgedUnary(_HedgedCall, UnaryResponse, grpc.aio.UnaryUnaryCall[object, object]):
    pass


class _HedgedStream(_HedgedCall, StreamResponse, grpc.aio.UnaryStreamCall[object, object]):
    """A call whose copies each read their first message; the one that has it first is chosen.

    Done callbacks would be too early: they may run before the messages that came with the status have been read.
    """

    _ahead: object = grpc.aio.EOF

    def _follow(self, number: int, attempt: grpc.aio.Call) -> None:
        self.spawn(self._read_first(number, attempt))

    async def _read_first(self, number: int, attempt: Any) -> None:
        try:
            first = await anext(aiter(attempt), grpc.aio.EOF)
            if self._has_outcome():  # read what is left, so that the copy can end
                async for _ in attempt:
                    pass
        except grpc.aio.AioRpcError as error:
            self._copy_failed(number, error)
        except asyncio.CancelledError:
            self.feed(m.CancelRequested())  # unless another copy was chosen
            raise
        else:
            if not self._has_outcome():
                self._ahead = first
                self.feed(h.CopyAnswered(number, first is grpc.aio.EOF))

    async def _iterate(self) -> AsyncIterator[object]:
        while (response := await self._next_response()) is not grpc.aio.EOF:
            yield response

    async def _read(self, attempt: Any) -> object:
        response, self._ahead = self._ahead, grpc.aio.EOF
        if response is grpc.aio.EOF:
            response = await anext(aiter(attempt), grpc.aio.EOF)
        # The iterator raises its error only once.
        if response is grpc.aio.EOF and not aio_private.core_call(attempt).is_ok():
            if aio_private.is_cancelled_here(attempt):
                raise asyncio.CancelledError
            raise aio_private.status_of(attempt)
        return response


HEDGED_CALL_CLASSES: dict[str, type[Call]] = {"unary_unary": _HedgedUnary, "unary_stream": _HedgedStream}
"""The classes of hedged calls, by the name of the channel method that creates the multicallable."""
