"""Hedged calls on threads: the shell of `hedging_machine`, for calls with one request.

A hedged call has no attempt until one of its copies is chosen. From then on it is that copy, just as a call that was
handed over is its attempt. A blocking call is a future whose caller waits for it, because another thread has to send
its copies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import grpc

from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.decide.calls import hedging_machine as h
from grpc_backoff.decide.calls.resets import resets_of
from grpc_backoff.engine.call import CallSetup
from grpc_backoff.engine.losers import Copies, Losers
from grpc_backoff.grpcio.private import Status
from grpc_backoff.grpcio.sync_private import InactiveRpcError, read_first, status_of
from grpc_backoff.sync.call import Attempts, Entry, FutureCall, leave
from grpc_backoff.sync.core_connector import CoreConnection
from grpc_backoff.sync.rendezvous import FutureRendezvous, StreamRendezvous


class _HedgedCall(FutureCall):
    """A call with one response: the first copy that ends with OK is chosen."""

    def __init__(self, setup: CallSetup[Attempts]) -> None:
        super().__init__(setup)
        self._copies: Copies = {}
        self._losers: Losers | None = None
        self._places: tuple[CoreConnection, ...] = ()

    @property
    def _avoided(self) -> tuple[CoreConnection, ...]:
        return self._places  # of all copies, so that each goes to another server if there are several

    def _begin(self, effect: m.Begin) -> None:
        if self._places and self._state.copies.live and (wait := self._must_wait()):
            self._inputs.append(h.CopyHeld(wait))
        else:
            super()._begin(effect)

    def _must_wait(self) -> float:
        """Return the seconds until the connection of the next copy takes one beside those that run (HG-11)."""
        now, attempts = self._calls.now(), self._attempts
        if attempts is None or not any(resets_of(place).hold(now) for place in self._places):
            return 0.0
        entry = attempts.enter(self._avoided)
        if entry is None:
            return 0.0
        entry[0].ended(entry[1])
        return resets_of(entry[0]).hold(now)

    def _begun(self, attempt: Any, entry: Entry) -> None:
        self._connection = entry[0]
        self._places += (entry[0],)
        number = self._state.copies.sent
        self._copies[number] = attempt, entry[0]
        self._inputs.append(h.CopyBegun())
        self._follow(number, attempt, entry)

    def _follow(self, number: int, attempt: Any, entry: Entry) -> None:
        """Report to the machine how this copy is answered."""
        self._await_end(number, attempt, entry, lambda status: self._copy_ended(number, attempt, status))

    def _await_end(self, number: int, attempt: Any, entry: Entry, ends: Callable[[Status], object]) -> None:
        """When an attempt has ended, end the call with it if it was chosen; otherwise, call `ends` with its status."""

        def ended() -> None:
            status = status_of(attempt)
            leave(entry[0], entry[1], status.code, status.details)
            self._calls.note(status)
            with self._lock:
                if self._losers is not None:
                    self._losers.ended(number)
                if not self._settled:
                    ends(status)
                elif attempt is self.attempt:
                    self._settle(attempt, status)
            self._call_back_here()

        if not attempt.add_callback(ended):
            ended()

    def _copy_ended(self, number: int, attempt: Any, status: Status) -> None:
        if status.code is grpc.StatusCode.OK:
            self._inputs.append(h.CopyAnswered(number, observed=self._calls.observed))
        elif status.cancelled:
            self._inputs.append(m.CancelRequested())  # for example, because the channel was closed
        else:
            self._error, self._connection = attempt, self._places[number - 1]
            self._inputs.append(h.CopyFailed(number, self._failure(attempt)))
        self._drain()

    def _carry_out(self, effect: Any) -> None:
        if isinstance(effect, h.Choose):
            self._choose(effect.copy, effect.at)
        else:
            super()._carry_out(effect)

    def _choose(self, number: int | None, at: float | None) -> None:
        with self.state.condition:
            self.attempt = None if number is None else self._copies.pop(number)[0]
            self.state.condition.notify_all()
        self._leave_others(at)

    def _leave_others(self, at: float | None) -> None:
        copies, self._copies, self._places = self._copies, {}, ()
        if copies:
            self._losers = Losers(self._calls, copies)
            self._calls.conductor.post(partial(self._losers.leave, at))

    def _break_off(self, error: Exception) -> None:
        self._leave_others(None)
        super()._break_off(error)


class _HedgedStream(_HedgedCall):
    """A call with a stream of responses: the first copy that receives a message, or the end with OK, is chosen."""

    def __init__(self, setup: CallSetup[Attempts]) -> None:
        super().__init__(setup)
        self._received: dict[int, Any] = {}
        self._ahead: list[Any] = []

    def _follow(self, number: int, attempt: Any, entry: Entry) -> None:
        missing = ["message", "status"]  # a status may arrive before the message that precedes it

        def arrived(_status: Any = None) -> None:
            missing.pop()
            if not missing:
                self._copy_ended(number, attempt, status_of(attempt))

        def received(message: Any) -> None:
            with self._lock:
                if self._settled:
                    if message is not None:
                        read_first(attempt, received)  # what is left, so that the copy can end
                    return
                if message is None:
                    arrived()
                else:
                    self._received[number] = message
                    self._inputs.append(h.CopyAnswered(number, observed=self._calls.observed))
                    self._drain()
            self._call_back_here()  # the status may have arrived before, so this may be the end of the call

        self._await_end(number, attempt, entry, arrived)
        read_first(attempt, received)

    def _choose(self, number: int | None, at: float | None) -> None:
        if number in self._received:
            self._ahead.append(self._received[number])
        self._received = {}
        super()._choose(number, at)

    def read(self, attempt: Any) -> Any:
        return self._ahead.pop() if self._ahead else next(attempt)


def make_hedged(setup: CallSetup[Attempts], style: str, *, stream: bool) -> Any:
    """Make a hedged call; `style` is the name of a method of grpc's multicallable."""
    if stream:
        streamed = _HedgedStream(setup)
        responses = StreamRendezvous(streamed)
        streamed.start()
        return responses
    call = _HedgedCall(setup)
    made = FutureRendezvous(call)
    call.start()
    if style == "future":
        return made
    try:
        error = made.exception()
    except grpc.FutureCancelledError:
        error = made
    except BaseException:  # for example, KeyboardInterrupt
        made.cancel()
        raise
    if error is not None:
        raise InactiveRpcError(call.state) if error is made else error
    return (call.state.response, made) if style == "with_call" else call.state.response
