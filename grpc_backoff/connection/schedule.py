"""What the connection managers of one key share: the schedule of a target (SH-3 to SH-6).

Every manager has its own machine (`machine.py`). A step of that machine reads the key's schedule and returns the new
one; whatever runs the machine makes this one atomic step, under one lock. There is no owner and no designated dialler,
so nothing is lost when a manager goes away: each waiting manager looks at the schedule when its own timer is due, and
the first to find the next start free takes the turn.

This module contains the arithmetic, without a clock, a lock or a timer.
"""

from __future__ import annotations

import enum
import math

from grpc_backoff.connection.events import Failure
from grpc_backoff.record import NamedTuple, record

__all__ = ["BEAT", "HEAD_START", "STALLED_AFTER", "TRIAL", "Health", "Schedule"]

_NEVER = -math.inf

HEAD_START = 0.25
"""How soon after one dial the next may follow while nothing is known about a key, in seconds.

Long enough for a refusal to arrive, so that a hundred managers that want a connection at the same moment do not all
dial a server that is down; short enough to go unnoticed if the server is slow.
"""
TRIAL = 0.1
"""How long a key's first connection must last before others follow, in seconds: a peer that hangs up right after its
SETTINGS has done so by then."""
STALLED_AFTER = 1.0
"""How long the manager with the turn may give no sign of life once the next start is due, in seconds."""
BEAT = STALLED_AFTER / 2
"""How often it gives a sign of life if others wait for the end of its attempt, in seconds."""


class Health(enum.Enum):
    """What is known about a key's target."""

    UNKNOWN = enum.auto()
    """Nothing is known: no attempt has ended yet, or the peer has ended a connection."""
    WELL = enum.auto()
    """The last outcome was a success."""
    FAILING = enum.auto()
    """An attempt has failed, and none has succeeded since: the key is in backoff."""


@record
class Schedule(NamedTuple):
    """The schedule of one key. Times are in seconds on the monotonic clock that its managers share.

    Attributes:
        health: what is known about the target.
        attempt: the number of the latest attempt in the failing series; 0 if the next start begins a new series.
        started: when that attempt started.
        deadline: the earliest start of the next attempt.
        free: the value that the deadline falls back to when the backoff is reset (SH-5): one INITIAL_BACKOFF after the
            last start that failed, or whose connection the peer ended sooner than that.
        failure: why the latest attempt failed; None unless failing.
        turn: the manager that dials while the others wait for the outcome.
        lease: how long they wait.
        asked: when any manager last asked for a connection, as far as the key knows.
        reset: whether the backoff was reset and no attempt has started, failed or succeeded since (CB-9).
        reset_dial: when an attempt last started because of a reset, unless one has succeeded since.
        young: whether the last connection ended by the peer had lasted less than INITIAL_BACKOFF from its start.
        proven: how long the target is assumed to be up, after a working connection was closed on this side.
        members: how many managers the key has.
    """

    health: Health = Health.UNKNOWN
    attempt: int = 0
    started: float = _NEVER
    deadline: float = _NEVER
    free: float = _NEVER
    failure: Failure | None = None
    turn: int | None = None
    lease: float = _NEVER
    asked: float = _NEVER
    reset: bool = False
    reset_dial: float = _NEVER
    young: bool = False
    proven: float = _NEVER
    members: int = 1

    @property
    def failing(self) -> bool:
        """Whether the key is in backoff."""
        return self.health is Health.FAILING

    @property
    def shared(self) -> bool:
        """Whether the key has more than one manager."""
        return self.members > 1

    def opens(self, member: int) -> float:
        """Return the earliest moment at which this manager may dial, as things stand."""
        if self.turn is None or self.turn == member:
            return self.deadline
        return max(self.deadline, self.lease)

    def joined(self) -> Schedule:
        """Add a manager."""
        return self._replace(members=self.members + 1)

    def left(self, member: int) -> Schedule:
        """Remove a manager; with the last one the backoff is forgotten, except for `free` (SH-5)."""
        schedule = self.given_up(member)._replace(members=self.members - 1)
        return schedule if schedule.members else schedule.forgotten()

    def forgotten(self) -> Schedule:
        """Start over, but no earlier than one INITIAL_BACKOFF after the last start that failed."""
        return Schedule(
            deadline=self.free,
            free=self.free,
            reset=self.reset,
            reset_dial=self.reset_dial,
            proven=self.proven,
            members=self.members,
        )

    def remembers_until(self, initial_backoff: float) -> float:
        """Return how long a key without managers differs from a new one."""
        return max(self.free, self.reset_dial + initial_backoff, self.proven)

    def begun(self, member: int, attempt: int, now: float, deadline: float, lease: float) -> Schedule:
        """Record a start. In backoff it takes the turn; while nothing is known about the key, it gets a head start."""
        reset_dial = now if self.reset else self.reset_dial
        if self.failing:
            return self._replace(
                attempt=attempt,
                started=now,
                deadline=deadline,
                turn=member,
                lease=lease,
                reset=False,
                reset_dial=reset_dial,
            )
        begun = self._replace(reset=False, reset_dial=reset_dial)
        if self.health is Health.UNKNOWN:  # after a short-lived connection, one start per INITIAL_BACKOFF
            return begun._replace(turn=member, lease=deadline if self.young else now + STALLED_AFTER)
        return begun._replace(young=False) if self.health is Health.WELL else begun

    def dialling(self, member: int, now: float) -> Schedule:
        """Record that the event loop has started an attempt: the head start counts from here."""
        if self.health is not Health.UNKNOWN or self.turn != member or self.young:
            return self
        return self._replace(lease=now + HEAD_START)

    def failed(
        self, member: int, failure: Failure, attempt: int, started: float, deadline: float, initial_backoff: float
    ) -> Schedule:
        """Record the failure of a manager's attempt, which had planned the next start for `deadline`.

        The first failure begins the backoff. A failure during another manager's turn only keeps the next start at a
        distance from its own.
        """
        free = max(self.free, started + initial_backoff)
        if self.failing:
            if self.turn == member:  # its plan is recorded already, perhaps changed by a reset
                return self._replace(failure=failure, turn=None, free=free, reset=False)
            return self._replace(free=free, deadline=max(self.deadline, deadline))
        return self._replace(
            health=Health.FAILING,
            attempt=attempt,
            started=started,
            deadline=max(self.deadline, deadline),
            free=free,
            failure=failure,
            turn=None,
            reset=False,
            proven=_NEVER,
        )

    def succeeded(self, started: float, now: float, initial_backoff: float) -> Schedule:
        """End the backoff (SH-4), except that no start may closely follow one that failed (SH-5).

        If the previous connection was short-lived, the others wait to see whether this one is too, or for a moment if
        there was none: otherwise all of them would dial a peer that hangs up after SETTINGS, at each success.
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
            failure=None,
            turn=None,
            reset=False,
            reset_dial=_NEVER,
        )

    def lost(self, free: float, now: float) -> Schedule:
        """Record that the peer has ended a connection; no attempt starts before `free`."""
        return self._replace(
            health=Health.FAILING if self.failing else Health.UNKNOWN,
            free=max(self.free, free),
            deadline=max(self.deadline, free),
            reset=False,
            young=now < free,
            proven=_NEVER,
        )

    def closed(self, now: float, initial_backoff: float) -> Schedule:
        """Record that a working connection was closed on this side: the target was up until now (CB-7)."""
        return self if self.failing else self._replace(proven=now + initial_backoff)

    def held(self, seconds: float) -> Schedule:
        """Delay the next start after a redial that this schedule did not initiate (CB-7)."""
        deadline = self.deadline + seconds
        return self._replace(deadline=deadline, free=self.free if self.failing else deadline)

    def given_up(self, member: int) -> Schedule:
        """Record that a manager gives up its turn, if it has it."""
        return self._replace(turn=None) if self.turn == member else self

    def alive(self, member: int, lease: float) -> Schedule:
        """Record a sign of life from the manager whose turn it is."""
        return self._replace(lease=lease) if self.turn == member else self

    def reset_in_flight(self, gap: float) -> Schedule:
        """Treat the attempt in flight as the first of a new series, followed by this gap (CB-9)."""
        return self._replace(attempt=1, deadline=self.started + gap, reset=True)

    def reset_asleep(self, initial_backoff: float) -> Schedule:
        """Move the next start to the earliest moment that the last reset's dial allows (SH-6)."""
        at = self.reset_dial + initial_backoff
        return self._replace(attempt=0, deadline=min(self.deadline, at), free=min(self.free, at), reset=True)
