"""Futures that wait for a connection and then end as their only attempt does.

Such a call is its attempt: grpcio prepares it while it waits, so a thread that waits for the call, and grpcio's own,
share one state, and nothing is copied from the attempt to the call (TH-2). Only the end of a call that gets no
connection is written by this library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.engine.call import CallSetup
from grpc_backoff.grpcio.sync_private import Prepared
from grpc_backoff.sync.call import Entry, FutureCall, leave

if TYPE_CHECKING:
    from grpc_backoff.decide.calls import hedging_machine as h

_BEGUN = m.Begun()


class PreparedCall(FutureCall):
    """A future of a unary method whose rules are `handed_over`."""

    def __init__(self, setup: CallSetup[Any], prepared: Prepared, credentials: grpc.CallCredentials | None) -> None:
        """Take a call that grpcio has prepared; the attempts of its setup are only asked for a connection."""
        super().__init__(setup, prepared.state)
        self._prepared: Prepared | None = prepared
        self._credentials = credentials

    def _carry_out(self, effect: h.Effect) -> None:
        if type(effect) is m.Begin:  # spares most calls the comparison with every other effect
            self._begin(effect)
        elif effect is m.AS_ATTEMPT and self._prepared is None:  # grpcio writes the end
            self._settled, self._attempts = True, None
        else:
            super()._carry_out(effect)

    def _not_connected(self) -> m.NotConnected:
        return self._calls.pending.not_connected(waited=self._state.waited)

    def _make(self, entry: Entry, effect: m.Begin) -> None:
        connection, token, method = entry
        state, prepared = self.state, self._prepared
        assert prepared is not None, "the call has begun before"

        def ended() -> None:
            leave(connection, token, state.code, state.details)

        connection.streamed = True
        self._connection = connection
        begin = prepared.begin
        try:
            self._context.run(begin, method, effect.seconds, self._credentials, ended, self._add_callbacks)
        except Exception as error:  # noqa: BLE001 - wrong metadata, or a closed channel
            connection.ended(token)
            refusal = connection.refusal(error) if isinstance(error, ValueError) else error
            self._error = refusal
            if refusal is error:
                self._broken = error
            else:
                self.attempt = refusal  # so that the caller gets the call itself for an error (PO-2)
            self._inputs.append(m.AttemptBroken())
            return
        self.attempt, self._prepared = prepared, None
        self._inputs.append(_BEGUN)

    def _add_callbacks(self, callbacks: Any) -> None:
        with self._lock:
            self._due = (*self._due, *callbacks)
        self._call_back_here()
