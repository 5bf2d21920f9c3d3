"""The schedule that a key's connection managers share (SH-3 to SH-6).

Every manager has its own machine (`connection_machine.py`). Each step of a machine reads the key's schedule and returns
a new one; the code that runs the machine holds a lock, so the step is atomic. No manager owns the schedule, and none is
designated to dial, so nothing is lost when a manager goes away: each waiting manager checks the schedule when its own
timer is due, and the first to find that the next attempt may start takes the turn.

This module contains only the arithmetic; it uses no clock, lock or timer.
"""

from __future__ import annotations

import enum
import math

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.base.status import Failure, Loss

_NEVER = -math.inf

HEAD_START = 0.25
"""How soon one dial may follow another while nothing is known about a key, in seconds.

This is long enough for a refusal to arrive, so a hundred managers that want a connection at the same moment do not all
dial a server that is down. It is short enough to go unnoticed if the server is slow.
"""
TRIAL = 0.1
"""How long a key's first connection must last before other managers dial, in seconds. A peer that hangs up right after
its SETTINGS has done so by then."""
STALLED_AFTER = 1.0
"""How many seconds the manager whose turn it is may go without a sign of life once the next start is due."""
BEAT = STALLED_AFTER / 2
"""How often the manager whose turn it is gives a sign of life while others wait for its attempt, in seconds."""


class Health(enum.Enum):
    """What is known about a key's target."""

    UNKNOWN = enum.auto()
    """Nothing is known: no attempt has ended yet, or the peer has ended a connection."""
    WELL = enum.auto()
    """The last outcome was a success."""
    FAILING = enum.auto()
    """An attempt has failed, and none has succeeded since: the key is in backoff."""


_FAILING = Health.FAILING  # up to Python 3.11, access to a member is slow


class Schedule(NamedTuple):
    """One key's schedule. Times are in seconds on the monotonic clock that its managers share.

    A schedule is immutable: the methods that change something return a new one.

    Attributes:
        health: what is known about the target.
        attempt: the number of the latest attempt in the failing series; 0 if the next start begins a new series.
        started: when that attempt started.
        deadline: the earliest start of the next attempt.
        extra: when an attempt starts before that because of news (LV-4); infinity if none does.
        heard: whether news has caused an attempt in the planned gap, or is about to.
        later: whether there has been news during an attempt, which counts when that has failed.
        free: the deadline that remains when the backoff ends (SH-5): one INITIAL_BACKOFF after the start of the last
            attempt that failed.
        failure: why the latest attempt failed; None unless failing.
        turn: the manager that dials while the others wait for the outcome; None if there is none.
        lease: the time until which the others wait.
        asked: when any manager last asked for a connection, as far as the key knows.
        reset: whether the backoff was reset and no attempt has started, failed or succeeded since (CB-9).
        reset_dial: when an attempt last started because of a reset, unless one has succeeded since.
        redialled: whether a redial by grpc's core has delayed the next start already (CB-16).
        young: whether the peer ended the last connection within INITIAL_BACKOFF of the start of its attempt, and
            nothing had paid for the next one (CB-7).
        familiar: until when a new connection needs no observation, because this side has just closed one on which the
            peer had answered (CB-15).
        debt: the start that was allowed without credit, if an attempt was made on credit and the target has not
            answered a call since (CB-7); otherwise minus infinity.
        members: how many managers the key has.
        ready: the managers that have a connection.
    """

    health: Health = Health.UNKNOWN
    attempt: int = 0
    started: float = _NEVER
    deadline: float = _NEVER
    extra: float = math.inf
    heard: bool = False
    later: bool = False
    free: float = _NEVER
    failure: Failure | None = None
    turn: int | None = None
    lease: float = _NEVER
    asked: float = _NEVER
    reset: bool = False
    reset_dial: float = _NEVER
    redialled: bool = False
    young: bool = False
    familiar: float = _NEVER
    debt: float = _NEVER
    members: int = 1
    ready: frozenset[int] = frozenset()

    @property
    def failing(self) -> bool:
        """Whether the key is in backoff."""
        return self.health is _FAILING

    @property
    def shared(self) -> bool:
        """Whether the key has more than one manager."""
        return self.members > 1

    @property
    def next_start(self) -> float:
        """The earliest start of the next attempt, news included."""
        return min(self.deadline, self.extra)

    def opens(self, member: int) -> float:
        """Return the earliest time at which this manager may dial, as currently planned."""
        if self.turn is None or self.turn == member:
            return self.next_start
        return max(self.next_start, self.lease)

    def joined(self) -> Schedule:
        """Add a manager."""
        return self._replace(members=self.members + 1)

    def left(self, member: int) -> Schedule:
        """Remove a manager. When the last one leaves, the backoff is forgotten, except for `free` (SH-5)."""
        schedule = self.given_up(member)._replace(members=self.members - 1, ready=self.ready - {member})
        if schedule.members:
            return schedule
        if self.failure is not None and self.failure.lasting:
            schedule = schedule._replace(free=_NEVER)  # CH-3: nothing was dialled, and no call may wait
        elif not self.failing:  # no answer can be heard any more
            schedule = schedule._replace(free=max(self.free, self.deadline))
        return schedule.forgotten()

    def forgotten(self) -> Schedule:
        """Forget the backoff; only `free` and an attempt in flight still delay the next start."""
        return Schedule(
            deadline=self.free,
            free=self.free,
            turn=self.turn,
            lease=self.lease,
            reset=self.reset,
            reset_dial=self.reset_dial,
            familiar=self.familiar,
            debt=self.debt,
            members=self.members,
            ready=self.ready,
        )

    def remembers_until(self, initial_backoff: float) -> float:
        """Return the time until which the schedule of a key without managers still differs from a new one."""
        return max(self.free, self.familiar, self.reset_dial + initial_backoff, self.debt + initial_backoff)

    def begun(self, member: int, attempt: int, now: float, deadline: float, lease: float) -> Schedule:
        """Record a start. In backoff, the manager takes the turn; while nothing is known, it gets a head start."""
        reset_dial = now if self.reset else self.reset_dial
        if self.failing:
            extra = now < self.deadline  # LV-4: the planned gap goes on
            return self._replace(
                attempt=attempt,
                started=self.started if extra else now,
                deadline=deadline,
                extra=math.inf,
                heard=extra,
                later=False,
                turn=member,
                lease=lease,
                reset=False,
                reset_dial=reset_dial,
                redialled=False,
            )
        begun = self._replace(redialled=False) if self.redialled else self
        if self.reset or self.later:
            begun = begun._replace(reset=False, reset_dial=reset_dial, later=False)
        if self.health is Health.UNKNOWN:  # after a short-lived connection, one start per INITIAL_BACKOFF
            return begun._replace(turn=member, lease=deadline if self.young else now + HEAD_START)
        return begun._replace(young=False) if self.health is Health.WELL else begun

    def failed(
        self, member: int, failure: Failure, attempt: int, started: float, deadline: float, initial_backoff: float
    ) -> Schedule:
        """Record the failure of a manager's attempt, which had planned the next start for `deadline`.

        The first failure begins the backoff. A failure during another manager's turn only delays the next start, if its
        own `deadline` is later.
        """
        free, ready = max(self.free, started + initial_backoff), self.ready - {member}
        if self.failing:
            if self.turn == member:  # its plan is recorded already, perhaps changed by a reset
                later = max(self.deadline, free) if self.heard else self.deadline  # SH-5, after an extra attempt
                return self._replace(failure=failure, turn=None, deadline=later, free=free, reset=False, ready=ready)
            return self._replace(free=free, deadline=max(self.deadline, deadline), ready=ready)
        return self._replace(
            health=Health.FAILING,
            attempt=attempt,
            started=started,
            deadline=max(self.deadline, deadline),
            free=free,
            failure=failure,
            turn=None,
            reset=False,
            familiar=_NEVER,
            ready=ready,
        )

    def succeeded(self, member: int, started: float, now: float, initial_backoff: float) -> Schedule:
        """End the backoff (SH-4); the next start still waits for `free` (SH-5).

        If the previous connection was short-lived, the other managers wait to see whether this one lasts. If nothing
        was known about the key, they wait for TRIAL seconds. Without these waits, all of them would dial at each
        success, even if the peer hangs up after every SETTINGS.
        """
        lasting = _NEVER
        if self.young:
            lasting = started + initial_backoff
        elif self.shared and self.health is Health.UNKNOWN:
            lasting = now + TRIAL
        return self._replace(
            health=Health.WELL,
            attempt=0,
            deadline=max(self.free, lasting),
            extra=math.inf,
            heard=False,
            later=False,
            failure=None,
            turn=None,
            reset=False,
            reset_dial=_NEVER,
            ready=self.ready | {member},
        )

    def pays(self, loss: Loss) -> bool:
        """Return whether an attempt may follow at once the end of a connection (CB-7).

        It may if the connection has served a call. If the end was graceful, so that calls may still be answered, one
        attempt is made on credit, which an answer has to earn before the next one.
        """
        return loss.served or (loss.graceful and self.debt == _NEVER)

    def lost(self, member: int, free: float, now: float, loss: Loss) -> Schedule:
        """Record that the peer has ended a manager's connection.

        Unless something pays for it, no attempt starts before `free`, or before an answer comes.
        """
        schedule = self.earned() if loss.served else self
        schedule = schedule._replace(reset=False, familiar=_NEVER, ready=self.ready - {member})
        paid, young = self.pays(loss), now < free
        if young and loss.graceful and not loss.served:
            schedule = schedule._replace(debt=free)
        if young and paid:
            return schedule._replace(young=False)
        return schedule._replace(
            health=Health.FAILING if self.failing else Health.UNKNOWN,
            deadline=max(schedule.deadline, free),
            young=young,
        )

    def earned(self) -> Schedule:
        """Record that the target has answered a call: from now on, only failed attempts delay the next one.

        A backoff goes on, because the answer may have come on an old connection, from a server that accepts no more.
        """
        if self.failing:
            return self if self.debt == _NEVER else self._replace(debt=_NEVER)
        if self.debt == _NEVER and not self.young and self.deadline <= self.free:
            return self
        return self._replace(debt=_NEVER, young=False, deadline=self.free)

    def postponed(self, until: float) -> Schedule:
        """Delay the next start, because grpc's core redialled by itself; further redials do not (CB-16)."""
        return self._replace(deadline=max(self.deadline, until), redialled=True)

    def given_up(self, member: int) -> Schedule:
        """End this manager's turn, if it has the turn."""
        return self._replace(turn=None) if self.turn == member else self

    def alive(self, member: int, lease: float) -> Schedule:
        """Record a sign of life from this manager: if it has the turn, the others wait until `lease`."""
        return self._replace(lease=lease) if self.turn == member else self

    def reset_in_flight(self, gap: float) -> Schedule:
        """Treat the attempt in flight as the first of a new series, followed by a gap of `gap` seconds (CB-9)."""
        return self._replace(attempt=1, deadline=self.started + gap, reset=True)

    def reset_asleep(self, initial_backoff: float) -> Schedule:
        """Move the next start to the earliest time that is allowed after the last dial caused by a reset (SH-6)."""
        at = self.reset_dial + initial_backoff
        deadline, free = min(self.next_start, at), min(self.free, at)
        return self._replace(attempt=0, deadline=deadline, extra=math.inf, heard=False, free=free, reset=True)

    def told_in_flight(self) -> Schedule:
        """Record news that may be newer than what the attempt in flight finds."""
        return self if self.heard or self.later else self._replace(later=True)

    def told(self, soon: float) -> Schedule:
        """Record news: once in each planned gap, an attempt starts at `soon`, if the next one would start later.

        The plan itself stays as it is, so news costs at most one attempt for each gap, however often it comes (LV-4).
        """
        if not self.failing or self.heard:
            return self
        if self.turn is not None:
            return self.told_in_flight()
        if max(soon, self.free) >= self.deadline:
            return self._replace(later=False) if self.later else self
        return self._replace(extra=max(soon, self.free), heard=True, later=False)
