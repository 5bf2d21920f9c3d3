"""The states, inputs and effects of the pool's machine (`pool_machine.py`), which has the rules."""

from __future__ import annotations

import enum
import math

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.base.status import Role, State
from grpc_backoff.base.stepping import ArmTimer, CancelTimer, Emit
from grpc_backoff.decide.connections import connection_machine as m
from grpc_backoff.decide.connections.happened import Happened
from grpc_backoff.decide.connections.pick import aggregate

_NEVER = -math.inf


class PoolPhase(enum.Enum):
    """Whether a connection was ever wanted, and whether the channel is closed."""

    __hash__ = object.__hash__  # implemented in C

    UNWANTED = enum.auto()
    """No connection has been asked for."""
    WANTED = enum.auto()
    """A connection has been asked for."""
    CLOSED = enum.auto()
    """The channel is closed; this phase is final."""


class SlotState(NamedTuple):
    """One slot. Times are in seconds on the channel's monotonic clock.

    Attributes:
        number: identifies the slot in its channel, from 0.
        endpoint: the address that it dials; empty for the whole target.
        role: what it is for.
        state: the state of its connection machine.
        since: when it got its role.
        replaces: the slot that it is to replace; None if there is none.
        started: when the attempt that made its latest connection started.
        made: when that connection was made; infinity if there was none.
        due: why it is to be replaced as soon as that is allowed; empty if it is not.
        due_since: when that was decided.
        problem: why its server is not serving, until that has led to a replacement; empty if the server is serving.
        row: how many connections in a row, up to this one, have turned calls away without an answer to any (RT-15).
        gap: the gap from the start of its connection's attempt to that of its replacement, if that series set it.
    """

    number: int
    endpoint: str = ""
    role: Role = Role.COMING
    state: State = State.IDLE
    since: float = _NEVER
    replaces: int | None = None
    started: float = _NEVER
    made: float = math.inf
    due: str = ""
    due_since: float = _NEVER
    problem: str = ""
    row: int = 0
    gap: float = 0.0

    @property
    def live(self) -> bool:
        """Whether the slot has a connection for new calls, or may get one."""
        return self.role in _LIVE

    @property
    def shown(self) -> State:
        """The state that counts for the channel's: a connection that may not be used is none (RO-1)."""
        if self.role is not Role.UNHEALTHY:
            return self.state
        return State.CONNECTING if self.cause else State.TRANSIENT_FAILURE

    @property
    def cause(self) -> str:
        """Why it is to be replaced; empty if it is not."""
        return self.due or self.problem


CONNECTED = (Role.SERVING, Role.UNHEALTHY)
_LIVE = (Role.COMING, *CONNECTED)


class PoolState(NamedTuple):
    """The machine's complete state. Times are in seconds on the channel's monotonic clock.

    Attributes:
        phase: the current phase.
        slots: all slots, in the order in which they were opened.
        opened: how many slots were opened.
        addresses: with round_robin, the addresses of the target. Otherwise, those that the name had when the
            connection was made. None if they are not known.
        found: the addresses that the latest resolution found; None if there was none.
        resolving: whether a resolution is running.
        resolved: when the last resolution was begun.
        resolve_at: when the next one is to begin; infinity if none is planned.
        early: when a resolution was last begun at once because of a loss (PO-7).
        look_at: when to look for connections that are no longer needed; infinity if there is no need.
        rest_at: when to look whether the channel has become idle; infinity if there is no need.
        armed: when the timer is due; infinity if it is not armed.
    """

    phase: PoolPhase = PoolPhase.UNWANTED
    slots: tuple[SlotState, ...] = ()
    opened: int = 0
    addresses: tuple[str, ...] | None = None
    found: tuple[str, ...] | None = None
    resolving: bool = False
    resolved: float = _NEVER
    resolve_at: float = math.inf
    early: float = _NEVER
    look_at: float = math.inf
    rest_at: float = math.inf
    armed: float = math.inf

    @property
    def live(self) -> tuple[SlotState, ...]:
        """The slots that have a connection for new calls, or may get one."""
        return tuple([slot for slot in self.slots if slot.role in _LIVE])

    @property
    def serving(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the serving slots, one group for each endpoint."""
        groups: dict[str, tuple[int, ...]] = {}
        for slot in self.slots:
            if slot.role is Role.SERVING:
                groups[slot.endpoint] = (*groups.get(slot.endpoint, ()), slot.number)
        return tuple(groups.values())

    @property
    def state(self) -> State:
        """The channel's state (PO-4)."""
        shown = [slot.shown for slot in self.slots if slot.role in _LIVE]
        return shown[0] if len(shown) == 1 else aggregate(shown)

    def slot(self, number: int) -> SlotState | None:
        """Return a slot; None if it is gone."""
        return next((slot for slot in self.slots if slot.number == number), None)

    def replacement(self, number: int) -> SlotState | None:
        """Return the slot that is to replace a slot; None if there is none."""
        return next((slot for slot in self.slots if slot.replaces == number), None)

    def of(self, endpoint: str) -> tuple[SlotState, ...]:
        """Return the live slots of an endpoint."""
        return tuple(slot for slot in self.live if slot.endpoint == endpoint)

    def put(self, slot: SlotState) -> PoolState:
        """Replace the slot that has the same number."""
        return self._replace(slots=tuple([slot if other.number == slot.number else other for other in self.slots]))


class SlotChanged(NamedTuple):
    """A slot's connection machine has a new state.

    `busy` is whether a call is pending, or one has used the slot within the idle timeout (CB-14); it only counts if the
    new state is IDLE.
    """

    slot: int
    state: State
    busy: bool = False


class SlotServes(NamedTuple):
    """A slot has a connection for calls; `started` is when the attempt that made it started."""

    slot: int
    started: float


class SlotFailed(NamedTuple):
    """An attempt of a slot, or one that applies to it (SH-3), has failed."""

    slot: int


class SlotEnded(NamedTuple):
    """A retiring or condemned slot has no connection left."""

    slot: int


class NameResolved(NamedTuple):
    """The target's name has these addresses; none if it could not be resolved."""

    addresses: tuple[str, ...]


class Refresh(NamedTuple):
    """Replace every connection; `why` gives the cause."""

    why: str


class Condemned(NamedTuple):
    """A slot's connection is known to be dead; `why` gives the cause."""

    slot: int
    why: str


class HealthChanged(NamedTuple):
    """The server of a slot's connection says whether it serves; `problem` says why not and is empty if it does."""

    slot: int
    problem: str


class TurnedAway(NamedTuple):
    """A slot's connection has turned away a call that is retried: the next attempt prefers another one (RT-15).

    `status` is the HTTP status that came instead of an answer; `served` is whether a call on the connection was ever
    answered; `draw` is a random number in [0, 1), for jitter.
    """

    slot: int
    status: int
    served: bool
    draw: float


class Load(NamedTuple):
    """How many calls a slot's connection has, when the last of them ended, and whether one was ever answered."""

    slot: int
    calls: int
    used: float = _NEVER
    served: bool = False


class PoolBusy(NamedTuple):
    """All connections have as many calls as they may have, and calls wait; `loads` has every serving slot."""

    loads: tuple[Load, ...]


class PoolTimerFired(NamedTuple):
    """The machine's timer is due, or overdue; `loads` has every serving slot.

    `used` is when a call last used or asked for any connection.
    """

    loads: tuple[Load, ...] = ()
    used: float = math.inf


PoolInput = (
    m.ConnectionWanted
    | SlotChanged
    | SlotServes
    | SlotFailed
    | SlotEnded
    | NameResolved
    | Refresh
    | Condemned
    | HealthChanged
    | TurnedAway
    | PoolBusy
    | PoolTimerFired
    | m.CloseRequested
)


class OpenSlot(NamedTuple):
    """Make a slot; it dials when it is wanted. The connection of slot `replaces` needs no other successor."""

    slot: int
    endpoint: str
    replaces: int | None = None


class WantSlot(NamedTuple):
    """Ask a slot for a connection."""

    slot: int


class RetireSlot(NamedTuple):
    """Stop dialling for a slot and close its connection when the last call has ended."""

    slot: int


class CondemnSlot(NamedTuple):
    """Stop dialling for a slot and end its connection with all calls, whose status says `why`."""

    slot: int
    why: str


class RestSlot(NamedTuple):
    """Close the connection of a slot, because the channel is idle (CB-14)."""

    slot: int


class CloseSlot(NamedTuple):
    """Discard a slot."""

    slot: int


class TellSlot(NamedTuple):
    """Tell a slot that is asleep in backoff that there is news (LV-4)."""

    slot: int


class Resolve(NamedTuple):
    """Resolve the target's name."""


class Serving(NamedTuple):
    """New calls use the connections of these slots, one group for each endpoint."""

    groups: tuple[tuple[int, ...], ...]


class Show(NamedTuple):
    """The channel has a new state."""

    state: State


PoolEffect = (
    OpenSlot
    | WantSlot
    | RetireSlot
    | CondemnSlot
    | RestSlot
    | CloseSlot
    | TellSlot
    | Resolve
    | Serving
    | Show
    | m.ReleaseCalls
    | m.FailCalls
    | ArmTimer
    | CancelTimer
    | Emit[Happened]
)
PoolStep = tuple[PoolState, list[PoolEffect]]
