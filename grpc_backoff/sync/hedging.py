"""Makes hedged calls on threads, which have one request: those that run in the background, and those that block.

With gevent, those that block are futures whose callers wait for them; elsewhere, `hedged_call.py` has them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc

from grpc_backoff.base.threads import is_main
from grpc_backoff.decide.calls import hedging_machine as h
from grpc_backoff.engine.call import CallSetup
from grpc_backoff.grpcio.private import Status
from grpc_backoff.grpcio.sync_private import error_of, failure_of, may_serve, read_first, status_of
from grpc_backoff.sync.attempts import Attempts
from grpc_backoff.sync.core_connector import Entry
from grpc_backoff.sync.future_call import FutureCall, FutureRendezvous
from grpc_backoff.sync.hedged_call import Hedged, HedgedBlockingCall

if TYPE_CHECKING:
    from grpc_backoff.grpcio.shapes import BackgroundCall


class _HedgedCall(Hedged, FutureCall):
    """A call with one response that runs in the background: the first copy that ends with OK is chosen."""

    def _begun(self, attempt: BackgroundCall, entry: Entry) -> None:
        self._connection = entry.connection
        self._follow(self._sent(attempt, entry.connection), attempt, entry)

    def _follow(self, number: int, attempt: BackgroundCall, entry: Entry) -> None:
        """Report to the machine how this copy is answered."""
        self._await_end(number, attempt, entry, lambda status: self._copy_ended(number, attempt, status))

    def _await_end(
        self, number: int, attempt: BackgroundCall, entry: Entry, ends: Callable[[Status | None], object]
    ) -> None:
        """When an attempt has ended, end the call with it if it was chosen; otherwise, call `ends` with its status."""

        def ended() -> None:
            status = self._end_copy(attempt, entry)
            with self._lock:
                if self._losers is not None:
                    self._losers.ended(number)
                if not self._settled:
                    ends(status)
                elif attempt is self.attempt:
                    self._settle(status or status_of(attempt))
                    self._chosen_ended(status)
            self._call_back_here()

        if not attempt.add_callback(ended):
            ended()

    def _chosen_ended(self, status: Status | None) -> None:
        """Handle the end of a copy that had been chosen before."""

    def _copy_ended(self, number: int, attempt: BackgroundCall, status: Status | None) -> None:
        input_ = self._outcome(number, attempt, self._copy_connections[number - 1], status)
        if isinstance(input_, h.CopyFailed):
            self._error = attempt
        self._inputs.append(input_)
        self._drain()

    def _choose(self, number: int | None, at: float | None) -> None:
        with self.state.condition:
            self.attempt = None if number is None else self._copies.pop(number)[0]
            self.state.condition.notify_all()
        self._leave_losers(at)

    def _break_off(self, error: Exception) -> None:
        self._leave_losers(None)
        super()._break_off(error)


class _HedgedStream(_HedgedCall):
    """A call with a stream of responses: the first copy that receives a message, or the end with OK, is chosen."""

    def __init__(self, setup: CallSetup[Attempts]) -> None:
        super().__init__(setup)
        self._received: dict[int, object] = {}
        self._ahead: list[object] = []
        self._success: h.EmitAtEnd | None = None

    def _follow(self, number: int, attempt: BackgroundCall, entry: Entry) -> None:
        missing = ["message", "status"]  # a status may arrive before the message that precedes it

        def over() -> bool:
            return len(missing) == 1 and failure_of(attempt) is None

        def arrived(_status: object = None) -> None:
            missing.pop()
            if not missing:
                self._copy_ended(number, attempt, failure_of(attempt))

        def received(message: object) -> None:
            with self._lock:
                if self._settled:
                    if message is not None:
                        read_first(attempt, received)  # what is left, so that the copy can end
                    return
                if message is None:
                    arrived()
                else:
                    self._received[number] = message
                    self._inputs.append(h.CopyAnswered(number, over()))
                    self._drain()
            self._call_back_here()  # the status may have arrived before, so this may be the end of the call

        self._await_end(number, attempt, entry, arrived)
        read_first(attempt, received)

    def _carry_out(self, effect: h.Effect) -> None:
        if isinstance(effect, h.EmitAtEnd):
            self._success = effect
        else:
            super()._carry_out(effect)

    def _chosen_ended(self, status: Status | None) -> None:
        if status is None and self._success is not None:
            self._emit(self._success.at(self._calls.now()))

    def _choose(self, number: int | None, at: float | None) -> None:
        if number in self._received:
            self._ahead.append(self._received[number])
        self._received = {}
        super()._choose(number, at)

    def read(self, attempt: BackgroundCall) -> object:
        return self._ahead.pop() if self._ahead else next(attempt)


CALLS: dict[str, type[FutureCall]] = {"unary_unary": _HedgedCall, "unary_stream": _HedgedStream}
"""The calls that run in the background, by the name of the channel method that creates their callables."""


def run(setup: CallSetup[Attempts]) -> tuple[object, object]:
    """Make a call that blocks this thread; return its response and the call, or raise its error."""
    if may_serve():
        blocking = HedgedBlockingCall(setup)
        response, served = blocking.run_for_main() if is_main() else blocking.run()
        return response, served
    call = _HedgedCall(setup)
    made = FutureRendezvous(call)
    call.start()
    try:
        error = made.exception()
    except grpc.FutureCancelledError:
        error = made
    except BaseException:  # for example, KeyboardInterrupt
        made.cancel()
        raise
    if error is not None:
        raise error_of(made) if error is made else error
    return call.state.response, made
