r"""Whether the peer of one connection is alive, as a pure state machine.

A connection to a frozen host looks like any other: the core says READY until TCP gives up. So the peer is asked, by one
unary call, when there is reason to doubt it: calls run and nothing has arrived for a while, a call follows a pause
(LV-1), two calls in a row have ended on this side (LV-2), the connection replaces a dead one (LV-3), or there is news
(LV-4)::

    OPEN --no call for a while--> PAUSED --a call wants it--.
     |  ^                                                    |
     |  '---------------- answered ---------------------- ASKING --no answer--> ENDED: condemned
     '--reason to doubt it-----------------------------------'

The question is a call, too, and may have to wait behind the server's limit of streams. Then silence says nothing.

In PAUSED, and in ASKING after it, the connection is *shut*: calls wait for the answer. No timer runs in PAUSED, so a
connection without calls costs nothing. A connection that is not READY is never asked, because the core would dial again
for the question; that is the end of the machine.

Calls are counted by the shell, which is `engine/liveness.py`. Times are in seconds on the channel's monotonic clock.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Any

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.base.stepping import ArmTimer, CancelTimer, Transitions, ignored

_NEVER = -math.inf

ANSWER_AFTER_NEWS = 2.0
"""How long the peer may take to answer after news, in seconds (LV-4)."""
LATE = 10.0
"""How late a timer is if the process or the machine has slept, in seconds (LV-4)."""
_ANSWER_LATE = 0.1
"""How long after its deadline a liveness call has ended if this process was busy or has slept, in seconds."""
_SENT_WITHIN = 0.5
"""The part of its deadline within which a liveness call must have been sent for its silence to count."""
_MOST_REPEATS = 3
"""How many liveness calls in a row may end late before the connection is condemned all the same."""

WOKE = "this process or its machine has slept"
BUSY = "this process was busy when the peer was asked"
_PAUSE = "no call has used it for {:g} s"
_QUIET = "nothing has arrived on it for {:g} s"
_UNANSWERED = "two calls in a row have ended without an answer"
_DOUBTED = "it replaces a connection whose peer may be dead"
NO_ANSWER = "no answer for {:g} s"


class LivenessPhase(enum.Enum):
    """What is known about the peer."""

    __hash__ = object.__hash__  # implemented in C

    OPEN = enum.auto()
    """There is no reason to doubt it."""
    PAUSED = enum.auto()
    """No call has used the connection for a while, so the next one waits for an answer to a liveness call."""
    ASKING = enum.auto()
    """A liveness call is running."""
    ENDED = enum.auto()
    """The connection is condemned, or no longer READY; this phase is final."""


class LivenessState(NamedTuple):
    """The machine's complete state.

    Attributes:
        phase: the current phase.
        since: when the connection was made, or the peer last answered a liveness call.
        shut: whether calls wait for an answer.
        due: when the timer is due; infinity if it is not armed.
        first: when the first of the calls in a row began that have ended without an answer; infinity without one.
        why: why the latest liveness call was made; empty if there was none.
        asked: when it was made.
        within: how long the peer may take to answer it.
        repeats: how many calls before it have ended late, in a row.
        answered: what came of it; None while it is running, if it could not be asked, or if there was none.
    """

    phase: LivenessPhase = LivenessPhase.OPEN
    since: float = _NEVER
    shut: bool = False
    due: float = math.inf
    first: float = math.inf
    why: str = ""
    asked: float = _NEVER
    within: float = 0.0
    repeats: int = 0
    answered: bool | None = None


class CallsCounted(NamedTuple):
    """The timer is due: how many calls run, and for how many seconds nothing has arrived; infinity if nothing has."""

    running: int
    quiet: float = math.inf


class CallWaits(NamedTuple):
    """A call waits for the connection, or has entered it as it was being shut."""


class Unanswered(NamedTuple):
    """A call that began at the time `began` was ended on this side, at its deadline or because it was cancelled.

    `heard` is when anything last arrived on the connection.
    """

    began: float
    heard: float = _NEVER


class News(NamedTuple):
    """There is news that makes the connection doubtful; `woke` says whether the process has slept (LV-4)."""

    why: str
    woke: bool = False


class Replied(NamedTuple):
    """The liveness call has ended.

    Attributes:
        alive: whether the peer has shown that it is alive, by an answer or by anything else that has arrived since.
        waited: after how many seconds the call was sent; infinity if it was not.
        running: how many calls run on the connection.
    """

    alive: bool
    waited: float = 0.0
    running: int = 0


class Left(NamedTuple):
    """The connection is no longer READY, or is closed."""


LivenessInput = CallsCounted | CallWaits | Unanswered | News | Replied | Left


class Ask(NamedTuple):
    """Make a liveness call with a deadline of `within` seconds, and feed `Replied`; `why` gives the cause."""

    why: str
    within: float


class Shut(NamedTuple):
    """Let calls wait. If one has entered the connection in the meantime, feed `CallWaits`."""


class Reopen(NamedTuple):
    """Let calls use the connection and start those that wait."""


class Lives(NamedTuple):
    """The peer has answered after `took` seconds."""

    took: float


class Condemn(NamedTuple):
    """The peer is dead; `why` gives the cause."""

    why: str


LivenessEffect = Ask | Shut | Reopen | Lives | Condemn | ArmTimer | CancelTimer
LivenessStep = tuple[LivenessState, list[LivenessEffect]]


class LivenessMachine(NamedTuple):
    """The rules for one connection. The machine holds no state: `begin` and `step` are functions of their arguments.

    Attributes:
        quiet_after: after how many seconds in which nothing arrives the peer is asked; 0 means only when the process
            has slept, or the connection is doubted from the start.
        answer_within: how many seconds the peer may take to answer.
    """

    quiet_after: float
    answer_within: float

    def begin(self, now: float, *, doubted: bool = False) -> LivenessStep:
        """Return the first state of a connection that was just made, and its effects.

        `doubted` says whether it replaces one whose peer was suspected (LV-3).
        """
        state = LivenessState(since=now)
        if doubted:
            state, effects = self._ask(state._replace(shut=True), now, _DOUBTED, self.answer_within)
            return state, [Shut(), *effects]
        return self._wait(state, now + self.quiet_after)

    def step(self, state: LivenessState, input_: LivenessInput, now: float) -> LivenessStep:
        """Return the state after `input_`, and the effects that the shell must execute, in this order."""
        return TRANSITIONS[state.phase, type(input_)](self, state, input_, now)

    def _wait(self, state: LivenessState, due: float) -> LivenessStep:
        state = state._replace(phase=LivenessPhase.OPEN, due=due if self.quiet_after else math.inf)
        return state, [ArmTimer(due)] if self.quiet_after else []

    def _look(self, state: LivenessState, input_: CallsCounted, now: float) -> LivenessStep:
        quiet = min(input_.quiet, now - state.since)
        if input_.running and now - state.due > LATE:
            return self._ask(state, now, WOKE, ANSWER_AFTER_NEWS)
        if quiet < self.quiet_after:
            return self._wait(state, now + self.quiet_after - quiet)
        if input_.running:
            return self._ask(state, now, _QUIET.format(self.quiet_after), self.answer_within)
        return state._replace(phase=LivenessPhase.PAUSED, shut=True, due=math.inf), [Shut()]

    def _wanted(self, state: LivenessState, _input: CallWaits, now: float) -> LivenessStep:
        return self._ask(state, now, _PAUSE.format(self.quiet_after), self.answer_within)

    def _unanswered(self, state: LivenessState, input_: Unanswered, now: float) -> LivenessStep:
        """Ask after two calls in a row, if nothing has arrived since the first began (LV-2)."""
        heard = max(input_.heard, state.since)
        if state.first != math.inf and heard <= state.first:
            return self._ask(state, now, _UNANSWERED, self.answer_within)
        return state._replace(first=input_.began if input_.began >= heard else math.inf), []

    def _hear(self, state: LivenessState, input_: News, now: float) -> LivenessStep:
        if not (self.quiet_after or input_.woke):
            return state, []
        return self._ask(state, now, input_.why, ANSWER_AFTER_NEWS)

    def _ask(self, state: LivenessState, now: float, why: str, within: float) -> LivenessStep:
        timer: list[LivenessEffect] = [CancelTimer()] if state.due != math.inf else []
        state = state._replace(
            phase=LivenessPhase.ASKING, due=math.inf, first=math.inf, why=why, asked=now, within=within, answered=None
        )
        return state, [*timer, Ask(why, within)]

    def _replied(self, state: LivenessState, input_: Replied, now: float) -> LivenessStep:
        took = now - state.asked
        if input_.alive:
            state = state._replace(since=now, shut=False, repeats=0, answered=True)
            state, armed = self._wait(state, now + self.quiet_after)
            return state, [Lives(took), Reopen(), *armed]
        late = took - state.within
        if late > _ANSWER_LATE and state.repeats < _MOST_REPEATS:  # the question may not even have been sent
            state = state._replace(repeats=state.repeats + 1)
            return self._ask(state, now, WOKE if late > LATE else BUSY, ANSWER_AFTER_NEWS)
        if input_.running and input_.waited > state.within * _SENT_WITHIN:
            # Other calls may fill the server's limit of streams, so the peer has not had its time.
            state, armed = self._wait(state._replace(shut=False, repeats=0), now + self.quiet_after)
            return state, [Reopen(), *armed]
        state = state._replace(phase=LivenessPhase.ENDED, answered=False)
        return state, [Condemn(NO_ANSWER.format(state.within))]

    def _end(self, state: LivenessState, _input: Left, _now: float) -> LivenessStep:
        timer: list[LivenessEffect] = [CancelTimer()] if state.due != math.inf else []
        return state._replace(phase=LivenessPhase.ENDED, due=math.inf), timer


_Handler = Callable[[LivenessMachine, LivenessState, Any, float], LivenessStep]

TRANSITIONS = Transitions[_Handler](
    {
        (LivenessPhase.OPEN, CallsCounted): LivenessMachine._look,
        (LivenessPhase.OPEN, CallWaits): ignored,
        (LivenessPhase.OPEN, Unanswered): LivenessMachine._unanswered,
        (LivenessPhase.OPEN, News): LivenessMachine._hear,
        (LivenessPhase.OPEN, Left): LivenessMachine._end,
        (LivenessPhase.PAUSED, CallsCounted): ignored,
        (LivenessPhase.PAUSED, CallWaits): LivenessMachine._wanted,
        (LivenessPhase.PAUSED, Unanswered): LivenessMachine._unanswered,
        (LivenessPhase.PAUSED, News): LivenessMachine._hear,
        (LivenessPhase.PAUSED, Left): LivenessMachine._end,
        (LivenessPhase.ASKING, CallsCounted): ignored,
        (LivenessPhase.ASKING, CallWaits): ignored,
        (LivenessPhase.ASKING, Unanswered): ignored,
        (LivenessPhase.ASKING, News): ignored,
        (LivenessPhase.ASKING, Replied): LivenessMachine._replied,
        (LivenessPhase.ASKING, Left): LivenessMachine._end,
        **{(LivenessPhase.ENDED, kind): ignored for kind in (CallsCounted, CallWaits, Unanswered, News, Replied, Left)},
    }
)
