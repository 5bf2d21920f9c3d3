"""The shells around the liveness machines of a pool's connections, for both APIs (LV-1 to LV-3).

The machine (`decide/connections/liveness_machine.py`) decides when the peer is asked. How calls are counted, and how
the question is put, is up to the connection's gate (`gate.py`) in each API.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from grpc_backoff.base import stepping
from grpc_backoff.base.stepping import Stepper
from grpc_backoff.decide.calls.call_texts import shows_life
from grpc_backoff.decide.connections import liveness_machine as m
from grpc_backoff.decide.connections.pool_records import Condemned, PoolInput
from grpc_backoff.engine.gate import LivenessReply

if TYPE_CHECKING:
    from grpc_backoff.connection.clock import Clock
    from grpc_backoff.engine.gate import GatedConnection

    class WatchedPool(Clock, Protocol):
        """A pool, as far as the watches over its connections know it."""

        def set_gate(self, number: int, connection: GatedConnection, *, shut: bool) -> None:
            """Make calls wait instead of using the connection of a slot, or start those that wait."""

        def report(self, kind: str, **fields: object) -> None:
            """Emit an event of this kind, which is about no attempt."""

        def feed(self, input_: PoolInput) -> None:
            """Step the pool's machine."""


class ConnectionWatch(Stepper[m.LivenessInput]):
    """Steps the liveness machine of one connection.

    Attributes:
        connection: the connection.
        state: the machine's state.
    """

    def __init__(
        self,
        pool: WatchedPool,
        number: int,
        endpoint: str,
        connection: GatedConnection,
        machine: m.LivenessMachine,
        doubted: set[str],
        tell_proxy: Callable[[str], None],
    ) -> None:
        """Watch the connection of a slot; `doubted` has the endpoints whose peers were asked and have not answered.

        `tell_proxy` is called with a header of an answer that a proxy has passed on.
        """
        super().__init__()
        self.connection = connection
        self._pool = pool
        self._number = number
        self._endpoint = endpoint
        self._machine = machine
        self._doubted = doubted
        self._tell_proxy = tell_proxy
        self.state, effects = machine.begin(pool.now(), doubted=endpoint in doubted)
        for effect in effects:
            self._carry_out(effect)

    def look(self) -> None:
        """Step the machine with what the connection's calls do."""
        connection = self.connection
        self._timer = None
        if connection.alive():
            self.feed(m.CallsCounted(connection.running, connection.quiet()))
        else:
            self.feed(m.Left())

    def call_waits(self) -> None:
        """Ask the peer, if a call has to wait for its answer."""
        self.feed(m.CallWaits())

    def hear(self, why: str, *, woke: bool) -> None:
        """Handle news (LV-4)."""
        self.feed(m.News(why, woke))

    def left(self) -> None:
        """Watch the connection no longer."""
        self.feed(m.Left())

    def unanswered(self, began: float, heard: float) -> None:
        """Handle a call that this side has ended; the times are when it began, and when anything last arrived."""
        self.feed(m.Unanswered(began, heard))

    def _replied(self, reply: LivenessReply) -> None:
        connection = self.connection
        if not connection.alive():
            self.feed(m.Left())
            return
        if reply.proxy:
            self._tell_proxy(reply.proxy)
        alive = shows_life(reply.code) or connection.quiet() < self._pool.now() - self.state.asked
        self.feed(m.Replied(alive, reply.waited, connection.running))

    def _step(self, input_: m.LivenessInput) -> None:
        self.state, effects = self._machine.step(self.state, input_, self._pool.now())
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: m.LivenessEffect) -> None:
        pool = self._pool
        match effect:
            case stepping.ArmTimer(at):
                self._cancel_timer()
                self._timer = pool.call_at(at, self.look)
            case stepping.CancelTimer():
                self._cancel_timer()
            case m.Shut():
                pool.set_gate(self._number, self.connection, shut=True)
                if self.connection.running:  # a thread was faster
                    self._inputs.append(m.CallWaits())
            case m.Ask(why, within):
                if self.connection.alive():
                    pool.report("LivenessAsked", endpoint=self._endpoint, slot=self._number, why=why, within=within)
                    self._doubted.add(self._endpoint)
                    self.connection.ask(within, self._replied)
                else:  # the core would dial again for the question
                    self._inputs.append(m.Left())
            case m.Lives(took):
                self._doubted.discard(self._endpoint)
                why = self.state.why
                pool.report("LivenessAnswered", endpoint=self._endpoint, slot=self._number, why=why, took=took)
            case m.Reopen():
                pool.set_gate(self._number, self.connection, shut=False)
            case m.Condemn(why):
                pool.feed(Condemned(self._number, why))
