"""What the connection managers of one key know together: the schedule of a target (SH-3 to SH-6).

Every manager has a machine of its own (`machine.py`). A step of that machine reads the key's schedule and says what
becomes of it; whoever runs the machine makes both one step, under one lock. There is no owner and no appointed
dialler, so nothing is lost with a manager that goes away: each manager that waits looks at the schedule when its own
timer is due, and the first to find the next start free takes the turn.

What lives here is the arithmetic of that, without a clock, a lock or a timer.
"""

from __future__ import annotations

import enum
import math

from grpc_backoff.connection.events import Failure
from grpc_backoff.record import NamedTuple, record

__all__ = ["BEAT", "HEAD_START", "STALLED_AFTER", "TRIAL", "Health", "Schedule"]

_NEVER = -math.inf

HEAD_START = 0.25
"""How long after one dial the next may follow while nothing is known of a key, in seconds.

Long enough for a refusal to be heard of, so that a hundred managers that want a connection at the same moment do not
all dial a server that is not there; short enough that nobody notices it where the server is slow.
"""
TRIAL = 0.1
"""How long the first connection of a key has to last before others follow it, in seconds: a peer that hangs up right
behind its SETTINGS has done so by then."""
STALLED_AFTER = 1.0
"""How long a manager that has the turn may give no sign of life, in seconds, once the next start is due."""
BEAT = STALLED_AFTER / 2
"""How often it gives one, where others wait for the end of its attempt."""


class Health(enum.Enum):
    """What is known of a key's target."""

    UNKNOWN = enum.auto()
    """Nothing: no attempt has ended yet, or the peer has ended a connection."""
    WELL = enum.auto()
    """The last news was a success."""
    FAILING = enum.auto()
    """An attempt has failed, and none has succeeded since: the key is in backoff."""


@record
class Schedule(NamedTuple):
    """One key's schedule. Times are on the monotonic clock that its managers share.

    Attributes:
        health: what is known of the target.
        attempt: the number of the latest attempt in the series that fails; 0 when the next start begins a new one.
        started: when that attempt started.
        deadline: no attempt starts before it.
        free: what the deadline falls back to when the backoff is forgotten (SH-5): one INITIAL_BACKOFF after the last
            start that failed, or whose connection the peer ended sooner than that.
        failure: why the latest attempt failed; None unless failing.
        turn: which manager dials while the others wait for the outcome.
        lease: until when they do.
        asked: when anybody last asked for a connection, as far as the key was told.
        reset: whether the backoff was reset and no attempt has started, failed or succeeded since (CB-9).
        reset_dial: when an attempt last started because of a reset, unless one has succeeded since.
        young: whether the last connection that the peer ended had not lasted for INITIAL_BACKOFF from its start.
        proven: until when the target is taken to be as well as it was when we closed a connection that stood.
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
        """Whether there is anybody else to tell."""
        return self.members > 1

    def opens(self, member: int) -> float:
        """Return the earliest moment at which this manager may dial, as things stand."""
        if self.turn is None or self.turn == member:
            return self.deadline
        return max(self.deadline, self.lease)

    def joined(self) -> Schedule:
        """Count one manager more."""
        return self._replace(members=self.members + 1)

    def left(self, member: int) -> Schedule:
        """Count one manager less; with the last one the backoff is forgotten, but for `free` (SH-5)."""
        schedule = self.given_up(member)._replace(members=self.members - 1)
        return schedule if schedule.members else schedule.forgotten()

    def forgotten(self) -> Schedule:
        """Begin anew, one INITIAL_BACKOFF after the last start that failed at the earliest."""
        return Schedule(
            deadline=self.free,
            free=self.free,
            reset=self.reset,
            reset_dial=self.reset_dial,
            proven=self.proven,
            members=self.members,
        )

    def remembers_until(self, initial_backoff: float) -> float:
        """Return until when a key without managers says anything that a new one would not."""
        return max(self.free, self.reset_dial + initial_backoff, self.proven)

    def begun(self, member: int, attempt: int, now: float, deadline: float, lease: float) -> Schedule:
        """Note a start. In backoff it is a turn; while nothing is known of the key, it has a head start."""
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
        if self.health is Health.UNKNOWN:  # behind a connection that ended young, one start for each INITIAL_BACKOFF
            return begun._replace(turn=member, lease=deadline if self.young else now + STALLED_AFTER)
        return begun._replace(young=False) if self.health is Health.WELL else begun

    def dialling(self, member: int, now: float) -> Schedule:
        """Note that the event loop has come to an attempt: the head start counts from here."""
        if self.health is not Health.UNKNOWN or self.turn != member or self.young:
            return self
        return self._replace(lease=now + HEAD_START)

    def failed(
        self, member: int, failure: Failure, attempt: int, started: float, deadline: float, initial_backoff: float
    ) -> Schedule:
        """Note the failure of a manager's attempt, which had planned the next start for `deadline`.

        The first failure begins the backoff. One that comes beside another's turn only keeps the next start away from
        its own.
        """
        free = max(self.free, started + initial_backoff)
        if self.failing:
            if self.turn == member:  # what it planned stands here already, or what a reset has made of it
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
        """End the backoff (SH-4). What is left of it is SH-5's: no start right behind one that failed.

        Where the connection before this one ended young, the others wait to see whether this one does, and for a moment
        where there was none: a peer that sends SETTINGS and hangs up would be dialled by all of them at each success.
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
        """Note that the peer has ended a connection, after whose start no other begins before `free`."""
        return self._replace(
            health=Health.FAILING if self.failing else Health.UNKNOWN,
            free=max(self.free, free),
            deadline=max(self.deadline, free),
            reset=False,
            young=now < free,
            proven=_NEVER,
        )

    def closed(self, now: float, initial_backoff: float) -> Schedule:
        """Note that we have closed a connection that stood: nothing was wrong with the target until now (CB-7)."""
        return self if self.failing else self._replace(proven=now + initial_backoff)

    def held(self, seconds: float) -> Schedule:
        """Keep the next start away for longer: something has dialled unasked (CB-7)."""
        deadline = self.deadline + seconds
        return self._replace(deadline=deadline, free=self.free if self.failing else deadline)

    def given_up(self, member: int) -> Schedule:
        """Note that a manager gives its turn up, if it has it."""
        return self._replace(turn=None) if self.turn == member else self

    def alive(self, member: int, lease: float) -> Schedule:
        """Note that the manager whose turn it is has given a sign of life."""
        return self._replace(lease=lease) if self.turn == member else self

    def reset_in_flight(self, gap: float) -> Schedule:
        """Take the attempt in flight for the first of a new series, with this gap after it (CB-9)."""
        return self._replace(attempt=1, deadline=self.started + gap, reset=True)

    def reset_asleep(self, initial_backoff: float) -> Schedule:
        """Let the next start be as free as the last reset's dial leaves it (SH-6)."""
        at = self.reset_dial + initial_backoff
        return self._replace(attempt=0, deadline=min(self.deadline, at), free=min(self.free, at), reset=True)
