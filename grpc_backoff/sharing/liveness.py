"""The shell around the liveness machine of one connection, for both APIs (LV-1 to LV-3).

The machine (`pool/liveness.py`) decides when the peer is asked. How calls are counted, and how the question is put, is
up to the connection's gate (`gate.py`) in each API.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from grpc_backoff import stepping
from grpc_backoff.connection.clock import TimerHandle
from grpc_backoff.core.texts import shows_life
from grpc_backoff.pool import liveness as m
from grpc_backoff.stepping import Stepper


class Keeper(Protocol):
    """What the watches over a connection need from its pool; everything runs where the pool's machine is stepped."""

    def at(self, when: float, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` when the channel's clock reaches `when`, in seconds."""
        ...

    def now(self) -> float:
        """Return the time on the channel's clock, in seconds."""
        ...

    def hold(self, connection: Any, *, shut: bool) -> None:
        """Make calls wait instead of using a connection, or start those that wait."""
        ...

    def suspected(self, number: int, why: str, within: float) -> None:
        """Report that the peer of a slot's connection is being asked."""
        ...

    def lives(self, number: int, why: str, took: float) -> None:
        """Report that the peer of a slot's connection has answered."""
        ...

    def condemn(self, number: int, why: str) -> None:
        """End a slot's connection, which is known to be dead, with its calls."""
        ...

    def rest(self, number: int, connection: Any) -> None:
        """Close the connection of a slot, because no call has used it within the idle timeout."""
        ...

    def health_changed(self, number: int, problem: str) -> None:
        """Handle what the server of a slot says: why it is not serving; empty if it is."""
        ...


class ConnectionWatch(Stepper[m.LivenessInput, m.LivenessEffect]):
    """Steps the liveness machine of one connection.

    Attributes:
        connection: the connection.
        state: the machine's state.
    """

    def __init__(
        self, keeper: Keeper, number: int, connection: Any, machine: m.LivenessMachine, *, doubted: bool
    ) -> None:
        """Watch a connection that the slot `number` has; `doubted` is as in `LivenessMachine.begin`."""
        super().__init__()
        self.connection = connection
        self._keeper = keeper
        self._number = number
        self._machine = machine
        self.state, effects = machine.begin(keeper.now(), doubted=doubted)
        for effect in effects:
            self._carry_out(effect)

    def look(self) -> None:
        """Step the machine with what the connection's calls do."""
        connection = self.connection
        self._timer = None
        if connection.alive():
            self.feed(m.CallsCounted(connection.core.running, connection.core.quiet()))
        else:
            self.feed(m.Left())

    def timed_out(self, began: float, answered: float) -> None:
        """Handle a call that has reached its deadline; the times are when it began, and when any was last answered."""
        self.feed(m.TimedOut(began, answered))

    def _replied(self, code: str) -> None:
        self.feed(m.Replied(shows_life(code)) if self.connection.alive() else m.Left())

    def _step(self, given: m.LivenessInput) -> Sequence[m.LivenessEffect]:
        self.state, effects = self._machine.step(self.state, given, self._keeper.now())
        return effects

    def _carry_out(self, effect: m.LivenessEffect) -> None:
        keeper = self._keeper
        match effect:
            case stepping.ArmTimer(at):
                self._cancel_timer()
                self._timer = keeper.at(at, self.look)
            case stepping.CancelTimer():
                self._cancel_timer()
            case m.Shut():
                keeper.hold(self.connection, shut=True)
                if self.connection.core.running:  # a thread was faster
                    self._inputs.append(m.CallWaits())
            case m.Ask(why, within):
                if self.connection.alive():
                    keeper.suspected(self._number, why, within)
                    self.connection.core.ask(within, self._replied)
                else:  # the core would dial again for the question
                    self._inputs.append(m.Left())
            case m.Lives(took):
                keeper.lives(self._number, self.state.why, took)
            case m.Reopen():
                keeper.hold(self.connection, shut=False)
            case m.Condemn(why):
                keeper.condemn(self._number, why)
