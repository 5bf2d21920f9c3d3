"""The base class of both APIs' managers: one machine and its steps, coordinated with others of its key."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, Protocol, TypeVar

from grpc_backoff.connection import machine as m
from grpc_backoff.connection.clock import Clock, TimerHandle
from grpc_backoff.connection.events import ConnectionEvent, ConnectionStatus, State
from grpc_backoff.policy.backoff import Random
from grpc_backoff.sharing.registry import Home, Registry

__all__ = ["SteppedManager"]

_LOG = logging.getLogger(__name__)


class _Standing(Protocol):
    """A connection that may have ended."""

    def alive(self) -> bool:
        """Return whether it is still up, as far as is known right now; never blocks."""
        ...


ConnectionT = TypeVar("ConnectionT", bound=_Standing)


class SteppedManager(ABC, Generic[ConnectionT]):
    """Steps the machine of one target's connection; subclasses execute its effects.

    Attributes:
        connection: the connection that calls may use; None unless READY. It may have just ended: check `alive`.
    """

    def __init__(
        self, machine: m.Machine, *, clock: Clock, rng: Random, home: Home, key: Hashable | None, schedules: Registry
    ) -> None:
        """Join the managers with the same `key`; with None, a manager has its own schedule (SH-3).

        Call it when everything else is ready: from here on, other threads may deliver notifications.
        """
        self.connection: ConnectionT | None = None
        self._machine = machine
        self._clock = clock
        self._rng = rng
        self._timer: TimerHandle | None = None
        self._inputs: deque[m.Input] = deque()
        self._stepping = False
        self._to_tell: list[ConnectionEvent | None] = []
        self._membership = schedules.join(key, self.hear, home, clock.now())
        self._state = m.MachineState(key=self._membership.schedule, member=self._membership.number)

    # For subclasses.

    @abstractmethod
    def hear(self, news: ConnectionEvent | None) -> None:
        """Handle a change of the schedule by another manager, and the event that caused it; from any thread."""

    @abstractmethod
    def _carry_out(self, effect: m.Effect) -> None:
        """Execute an effect of the machine."""

    @abstractmethod
    def _changed(self, state: State) -> None:
        """Report a new state of the machine, before its effects are executed."""

    @abstractmethod
    def _later(self, work: Callable[[], None]) -> None:
        """Schedule something to run soon, on the thread that steps the machine."""

    # For the channel.

    @property
    def state(self) -> State:
        """The channel's current state; not READY if the connection has ended, even if that was not handled yet."""
        connection = self.connection
        gone = connection is not None and not connection.alive()
        return State.IDLE if gone else self._state.state

    def status(self) -> ConnectionStatus:
        """Return what the channel is doing (CH-11). Safe in any thread: it changes nothing."""
        state = self._state
        start = state.next_start
        return ConnectionStatus(
            state=self.state,
            attempt=state.attempt,
            in_flight=state.in_flight or state.awaits_turn,
            last_error=state.failure,
            next_attempt_in=None if start is None else max(0.0, start - self._clock.now()),
            ready_since=state.ready_since,
            connections=state.connections,
        )

    # Driving the machine.

    def _feed(self, given: m.Input) -> None:
        """Step the machine. Effects may produce further inputs, which wait until the earlier effects are done."""
        self._inputs.append(given)
        self._drain()

    def _drain(self) -> None:
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._inputs and self._step(self._inputs[0]):
                pass
        finally:
            self._stepping = False
            told, self._to_tell = self._to_tell, []
            for event in told:
                self._membership.tell_others(event)

    def _step(self, given: m.Input) -> bool:
        """Process the first input; return False if it has to wait for another manager's step in this thread."""
        membership = self._membership
        with membership.lock:
            if membership.stepping:
                self._later(self._drain)
                return False
            membership.stepping = True
            try:
                self._inputs.popleft()
                before, effects = self._state.state, self._decide(given)
            finally:
                membership.stepping = False
        if self._state.phase is not m.Phase.READY:
            self.connection = None
        if self._state.state is not before:
            self._changed(self._state.state)
        for effect in effects:
            if isinstance(effect, m.TellOthers):
                self._to_tell.append(effect.event)  # sent when all is done: a connection may end as it is made
            else:
                self._carry_out(effect)
        return True

    def _decide(self, given: m.Input) -> Sequence[m.Effect]:
        if self._state.phase is m.Phase.CLOSED:
            return ()  # closed is final; later inputs are ignored
        now, membership = self._clock.now(), self._membership
        state = self._state._replace(key=membership.schedule)
        try:
            self._state, effects = self._machine.step(state, given, now, self._rng)
        except Exception:
            if self._timer is not None or not (state.in_flight or state.next_start is not None):
                raise
            # From a generator supplied by the program. Nothing else would ever wake this manager.
            _LOG.exception("a step of the connection to %s raised", self._machine.target)
            return (m.ArmTimer(now + self._machine.policy.initial_backoff),)
        membership.schedule = self._state.key
        return effects

    def _leave(self) -> None:
        """Leave the key's schedule."""
        self._membership.leave(self._clock.now(), self._machine.policy.initial_backoff)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
