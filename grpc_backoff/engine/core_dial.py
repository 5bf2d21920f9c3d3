"""What the dials of both APIs have in common: a dial steps the dial machine, and executes its effects.

A dial is one attempt, and the connection that it makes. The machine (`decide/connections/dial_machine.py`) decides when
to look at the core's channel, and what its states mean.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, Self

from grpc_backoff.base.logs import Log
from grpc_backoff.base.status import Failure, Link, Loss, Stage
from grpc_backoff.base.stepping import Stepper
from grpc_backoff.decide.calls.call_texts import says_too_many_pings
from grpc_backoff.decide.connections import dial_machine as m
from grpc_backoff.engine.core_connector import BaseConnector, DialT, Tell
from grpc_backoff.engine.gate import GatedConnection, Reporting, unheard
from grpc_backoff.engine.spares import SPARES

if TYPE_CHECKING:
    from grpc_backoff.base.stepping import Cancellable
    from grpc_backoff.engine.spares import SpareKey

_LOG = Log(__name__)


class CoreDial(Stepper[m.Input], Reporting, GatedConnection):
    """One dial of a C-core channel, and the connection that it makes. Everything runs at the connector's home.

    A subclass calls `begin` when the channel has been made, lets the core dial, and executes the effects.
    """

    _state: m.DialState

    def __init__(self, owner: BaseConnector[Any], tell: Tell[Self]) -> None:
        """`tell` is called with the outcome."""
        super().__init__()
        self._connector = owner
        self._tell = tell
        self.answered = self.unanswered = unheard
        self._refused = self._dropped = False
        self._complained = False
        self._seen_ended = math.inf
        self._loss: Loss | None = None
        self._spare_key: SpareKey | None = None
        self._was_spare = False
        self.now = owner.home.now

    def begin(self, limit: float, made: float | None = None) -> None:
        """Begin an attempt of up to `limit` seconds; `made` is when the connection of a spare channel was made."""
        owner = self._connector
        guarded, owner.guards = owner.guards, False
        self._was_spare = made is not None
        self._state, effects = owner.machine.begin(
            self.now(),
            limit,
            last_life=owner.last_life,
            familiar=owner.familiar,
            after_failure=owner.after_failure,
            guarded=guarded,
            made=made,
        )
        for effect in effects:
            self._carry_out(effect)

    # For subclasses to implement.

    @abstractmethod
    def shown(self) -> int:
        """Return the channel's state, as the integer that grpcio's core uses."""

    @abstractmethod
    def look(self) -> None:
        """Step the machine with what the core shows."""

    @abstractmethod
    def _notify_on(self, shown: int) -> None:
        """Look when the core has left this state."""

    @abstractmethod
    def _explain(self) -> None:
        """Ask why the dial failed, and feed the answer. The call never leaves the process."""

    @abstractmethod
    def _dispose(self, *, spare: bool) -> None:
        """Close the channel, or keep it as a spare one; nothing else refers to this dial any more."""

    # The attempt.

    def decided(self) -> bool:
        """Return whether the core has an outcome that has not been reported yet."""
        return m.is_decided(self._state, self.shown(), self.now())

    def abandon(self) -> None:
        """Abandon the attempt; the core closes its socket at its own limit, if not before."""
        self._tell = unheard
        self.feed(m.Abandon())

    # The connection.

    def alive(self) -> bool:
        """Return whether the connection is up in the core right now; see `is_up`. Thread-safe."""
        return m.is_up(self._state, self.shown())

    def link(self) -> Link:
        """Return the connection's state. Call this at the moment when a call ends. Thread-safe."""
        shown, now = self.shown(), self.now()
        if shown != m.READY:
            self._seen_ended = min(self._seen_ended, self._state.ended, now)
        return m.link_of(shown, now - self._seen_ended)

    def _abandon_connection(self, *, used: bool) -> None:
        """Abandon the connection; its channel may become a spare one if the server has answered on it (SH-8).

        `used` is whether anything uses the channel, or may have left something in it. If the server has not answered on
        a spare one, no more such connections wait: a peer may serve only one call on each connection, so that every
        second call would be lost.
        """
        spare = False
        if self._spare_key is not None:
            if self._was_spare and not self.served:
                SPARES.avoid(self._spare_key.arguments)
            is_free = not used and self.room is None and self.gated is None and not self._refused
            spare = is_free and self.served and self.shown() == m.READY
        self.feed(m.Abandon(spare))

    # Driving the machine.

    def _timer_fired(self) -> None:
        self._timer = None
        self.look()

    def _step(self, input_: m.Input) -> None:
        ended = self._state.ended
        self._state, effects = self._connector.machine.step(self._state, input_, self.now())
        if self._state.ended != ended:
            self._has_ended()
        for effect in effects:
            self._carry_out(effect)

    def _has_ended(self) -> None:
        """Let no more calls enter, because the connection was just seen to end; the effects come later."""

    def _heed(self, details: str) -> None:
        """Make pings rarer if the text of a failed call says that the server got too many, once. Thread-safe."""
        if not self._complained and says_too_many_pings(details):
            self._complained = True
            self._connector.setup.rarer_pings *= 2

    def _read_complaints(self) -> None:
        """Look whether the ends of calls say that the server got too many pings, unless they are heard as they end."""

    def _carry_out(self, effect: m.Effect) -> None:  # noqa: C901 - one branch for each effect
        owner = self._connector
        match effect:
            case m.LookAt(at):
                self._cancel_timer()
                self._timer = owner.home.call_at(at, self._timer_fired)
            case m.NotifyOn(shown):
                self._notify_on(shown)
            case m.Explain():
                self._explain()
            case m.Made():
                owner.after_failure = False
                owner.open.add(self)
                self._report(self)
            case m.Failed(failure):
                owner.after_failure = True
                self._report(failure)
            case m.Lost(loss, guard):
                if guard and owner.traits.repeats:
                    owner.guards = True
                self._read_complaints()  # a call may have ended before the core had left READY
                self._loss = loss
                if self._spare_key is not None:
                    SPARES.avoid(self._spare_key.arguments)
                owner.lost()
            case m.FirstAnswer():
                self.answered()
            case m.Redialled(late):
                owner.redialled(late=late)
            case m.EndCalls(details):
                self.fail(details)
            case m.Close(spare):
                self._cancel_timer()
                self.answered = unheard
                owner.open.discard(self)
                owner.closed()
                self._dispose(spare=spare)

    def _report(self, outcome: Self | Failure) -> None:
        tell, self._tell = self._tell, unheard  # it refers to the manager (CB-10)
        tell(outcome)


class LateDial(Generic[DialT]):
    """An attempt that dials after `connect` has returned, unless it is abandoned before."""

    _waits: Cancellable
    """What it waits for."""

    def __init__(self, owner: BaseConnector[DialT], tell: Tell[DialT]) -> None:
        self._owner = owner
        self._tell = tell
        self._dial: DialT | None = None

    def _begin(self, limit: float) -> None:
        self._waits.cancel()  # it refers to this attempt (CB-10)
        tell, self._tell = self._tell, unheard
        try:
            self._dial = self._owner.dial(limit, tell)
        except Exception as error:  # noqa: BLE001 - a bug must not leave the channel waiting for ever
            _LOG.exception("an attempt to connect raised an unexpected exception")
            tell(Failure(Stage.UNKNOWN, repr(error)))

    def decided(self) -> bool:
        """Return whether the core has an outcome that has not been reported yet."""
        return self._dial is not None and self._dial.decided()

    def abandon(self) -> None:
        """Abandon the attempt, or do not begin it."""
        self._tell = unheard
        self._waits.cancel()
        if self._dial is not None:
            self._dial.abandon()
