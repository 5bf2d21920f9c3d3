r"""The life of one subscription as a pure state machine: a server stream that is opened again whenever it ends (SB-1).

The retries of a call stop at the first message (RT-8), because a caller who has seen part of a response cannot be given
another one in its place. A subscription begins there: its messages have no end, and `resume` tells the server from
where to go on. What the machine decides is when a stream is opened, whether its end is final, how long to wait, and
what the reader learns of a gap. It sees no messages. The shell keeps the last one and makes the next request from it.

::

    IDLE -- asked --> OPENING -- message --> STREAMING -- message --> STREAMING ...
                         ^  \                   |
                         |   `-- ends ----------+-- ends ----> SLEEPING -- wakes --> OPENING ...
                         |                      |                 |
                         `----- renewed ---- HOOKED <-------------'

The waits follow the policy, as those between the attempts of a call do (`decision.py`), and begin anew with the first
message of a stream, or when a stream has lasted for a while without one: a quiet stream that a proxy cuts every minute
has not failed (SB-3). The reader asks for each message, so a stream is opened only while its reader waits.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Any

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.base.stepping import AbandonAttempt, ArmTimer, CancelTimer, Emit, Transitions
from grpc_backoff.decide.calls import call_machine as m
from grpc_backoff.decide.calls.decision import GiveUp, Retry, decide
from grpc_backoff.decide.calls.events import CallEvent, CallExhausted, Gap, StreamEnded, StreamResumed
from grpc_backoff.policy.retry import RetryPolicy

_OK = "OK"
_CANCELLED = "CANCELLED"
_INTERRUPTED = frozenset({"INTERNAL", "UNKNOWN", m.TIMED_OUT})
"""The codes with which proxies and dying servers cut a stream that has worked; before anything has arrived, they are
taken for the server's answer."""
_DOUBTS = 7
"""After how many streams in a row that delivered only headers these codes are taken for the server's answer, too."""
STEADY = 30.0
"""How long a stream without a message must have lasted, in seconds, to put the backoff back to its beginning."""


class SubscriptionPhase(enum.Enum):
    """A subscription's phase."""

    IDLE = enum.auto()
    """No message has been asked for, and nothing has been sent."""
    OPENING = enum.auto()
    """A stream is open, or waits for a connection, and has not delivered a message."""
    STREAMING = enum.auto()
    """The stream has delivered a message."""
    HOOKED = enum.auto()
    """The stream has ended, and a hook is running."""
    SLEEPING = enum.auto()
    """The stream has ended and is opened again after a wait."""
    DONE = enum.auto()
    """The final phase."""


class SubscriptionState(NamedTuple):
    """A subscription's complete state. Times are in seconds on the shell's monotonic clock.

    Attributes:
        phase: the phase.
        opened: when the last stream was opened; its wait for a connection is part of it.
        opens: how many streams have been opened since the last message.
        doubts: how many streams in a row have ended with such a code, headers and no message.
        gap_began: when the first stream of the current gap ended.
        why: the code of that end, OK for one without an error; empty outside of a gap.
        progress: the progress through the policy's schedule.
        metadata: renewed pairs, which replace the caller's metadata with the same keys.
        following: the decision that is still to be carried out, in HOOKED and SLEEPING.
        wake: when SLEEPING ends.
    """

    phase: SubscriptionPhase = SubscriptionPhase.IDLE
    opened: float = 0.0
    opens: int = 0
    doubts: int = 0
    gap_began: float = 0.0
    why: str = ""
    progress: m.Progress = m.Progress()
    metadata: m.Metadata = ()
    following: Retry | GiveUp | None = None
    wake: float = math.inf


# Inputs.


class Asked(NamedTuple):
    """The reader asks for the first message."""


class MessageCame(NamedTuple):
    """The stream has delivered a message to the shell."""


class StreamOver(NamedTuple):
    """The stream has ended, as `status` says, whose code is OK for an end without an error.

    `headers` is whether response headers with metadata had arrived.
    """

    status: m.FailedAttempt
    headers: bool = False


Input = (
    Asked
    | MessageCame
    | StreamOver
    | m.AttemptBroken
    | m.CallTimerFired
    | m.HookDone
    | m.CancelRequested
    | m.ChannelClosing
)


# Effects.


class Open(NamedTuple):
    """Open a stream; `metadata` replaces the caller's metadata with the same keys."""

    metadata: m.Metadata


class Deliver(NamedTuple):
    """Hand the message to the reader, preceded by the gap that it ends, if there was one."""

    gap: Gap | None = None


Effect = (
    Open | Deliver | m.CallHook | m.SeekAnother | ArmTimer | CancelTimer | AbandonAttempt | Emit[CallEvent] | m.Finish
)
Step = tuple[SubscriptionState, list[Effect]]
_P = SubscriptionPhase


class SubscriptionMachine(NamedTuple):
    """The rules for one subscription, without state: `step` is a function of its arguments.

    Attributes:
        target: the channel's target as given.
        method: the method's path, `/package.Service/Method`.
        policy: the policy for the waits between two streams, and for the codes after which a stream is opened again.
        timeout: the deadline of each stream, in seconds; None without one.
        resumes: whether a stream that the server ends with OK is opened again.
        call_id: identifies the subscription in its events.
    """

    target: str
    method: str
    policy: RetryPolicy
    timeout: float | None = None
    resumes: bool = True
    call_id: str = ""

    def step(self, state: SubscriptionState, input_: Input, now: float, shared: m.Shared) -> Step:
        """Return the state after this input, and the effects that the shell must execute, in this order."""
        return TRANSITIONS[state.phase, type(input_)](self, state, input_, now, shared)

    def _open(self, state: SubscriptionState, _input: Input, now: float, _shared: m.Shared) -> Step:
        opens = state.opens + 1
        state = state._replace(phase=_P.OPENING, opened=now, opens=opens, following=None, wake=math.inf)
        return state, [Open(state.metadata)]

    def _first_message(self, state: SubscriptionState, _input: MessageCame, now: float, _shared: m.Shared) -> Step:
        effects: list[Effect] = []
        gap = None
        if state.why:
            gap = Gap(lasted=now - state.gap_began, opens=state.opens, code=state.why)
            effects.append(Emit(StreamResumed(**self._at(state, now), gap=gap)))
        state = state._replace(phase=_P.STREAMING, opens=0, doubts=0, why="", progress=m.Progress())
        return state, [*effects, Deliver(gap)]

    def _message(self, state: SubscriptionState, _input: MessageCame, _now: float, _shared: m.Shared) -> Step:
        return state, [Deliver()]

    def _over(self, state: SubscriptionState, input_: StreamOver, now: float, shared: m.Shared) -> Step:
        """Decide what follows the end of a stream (SB-2 to SB-4)."""
        status, code, policy = input_.status, input_.status.code, self.policy
        if code == _OK and not self.resumes:
            return _finish(state, m.Ending.STOPPED)
        if shared.closing:
            return _finish(state, m.Ending.ATTEMPT)
        delivered = state.phase is _P.STREAMING
        if not state.why:
            state = state._replace(why=code, gap_began=now)
        doubtful = code in _INTERRUPTED and input_.headers and not (status.cut or delivered)
        state = state._replace(doubts=state.doubts + 1 if doubtful else 0)
        if now - state.opened >= STEADY:
            state = state._replace(progress=m.Progress(), doubts=0)
        cut = status.cut or (code in _INTERRUPTED and (delivered or (doubtful and state.doubts < _DOUBTS)))
        failure = status._replace(
            own_timeout=self.timeout is not None and not m.ended_early(state.opened + self.timeout, now),
            transient=cut or code in (_OK, _CANCELLED),
            never_ran=True,  # a policy's `never_ran_only` means calls; to read on repeats nothing
        )
        following = decide(
            policy,
            state.progress,
            failure,
            left=None if policy.deadline is None else max(0.0, state.gap_began + policy.deadline - now),
            budget_spent=False,  # a reader who waits for good has no other way to go on
            rng=shared.rng,
        )
        if isinstance(following, Retry):
            return self._again(state, following, status, now)
        if following.reason is None:
            return _finish(state, m.Ending.STOPPED if code == _OK else m.Ending.ATTEMPT)
        took = now - state.gap_began
        exhausted = CallExhausted(**self._at(state, now), code=code, reason=following.reason, took=took)
        state = state._replace(phase=_P.HOOKED, following=following)
        return state, [Emit(exhausted), m.CallHook(m.Hook.EXHAUSTED, took, following.reason)]

    def _again(self, state: SubscriptionState, following: Retry, status: m.FailedAttempt, now: float) -> Step:
        ended = StreamEnded(
            **self._at(state, now),
            code=status.code,
            delay=following.delay,
            source=following.source,
            server_delay=following.asked,
        )
        wake = now + following.delay
        state = state._replace(following=following, progress=following.progress, wake=wake)
        if following.refresh and not following.delay:
            hook = m.CallHook(m.Hook.REFRESH, now - state.gap_began)
            return state._replace(phase=_P.HOOKED), [Emit(ended), hook]
        seek: list[Effect] = [m.SeekAnother(status.turned_away)] if status.turned_away else []
        return state._replace(phase=_P.SLEEPING), [*seek, Emit(ended), ArmTimer(wake)]

    def _woken(self, state: SubscriptionState, input_: m.CallTimerFired, now: float, shared: m.Shared) -> Step:
        if now < state.wake:
            return state, [ArmTimer(state.wake)]
        assert isinstance(state.following, Retry), "a subscription sleeps only before it opens a stream"
        if state.following.refresh:  # RT-4: after the wait, so that the stream has fresh credentials
            return state._replace(phase=_P.HOOKED), [m.CallHook(m.Hook.REFRESH, now - state.gap_began)]
        return self._open(state, input_, now, shared)

    def _answered(self, state: SubscriptionState, input_: m.HookDone, now: float, shared: m.Shared) -> Step:
        if isinstance(state.following, GiveUp):
            return _finish(state, m.Ending.EXHAUSTED, state.following)
        if input_.metadata is None:
            return _finish(state, m.Ending.ATTEMPT)
        metadata = m.replaced(state.metadata, input_.metadata)
        return self._open(state._replace(metadata=metadata), input_, now, shared)

    def _broken(self, state: SubscriptionState, _input: m.AttemptBroken, _now: float, _shared: m.Shared) -> Step:
        return _finish(state, m.Ending.ATTEMPT)

    def _cancel(self, state: SubscriptionState, _input: m.CancelRequested, _now: float, _shared: m.Shared) -> Step:
        state, effects = _finish(state, m.Ending.STOPPED)
        return state, [AbandonAttempt(), *effects]

    def _closing(self, state: SubscriptionState, _input: m.ChannelClosing, _now: float, _shared: m.Shared) -> Step:
        return _finish(state, m.Ending.CANCELLED)

    def _at(self, state: SubscriptionState, now: float) -> dict[str, Any]:
        """Return the fields that all events have; `attempt` counts the streams since the last message."""
        return {
            "target": self.target,
            "method": self.method,
            "at": now,
            "attempt": max(1, state.opens),
            "call_id": self.call_id,
        }


def _finish(state: SubscriptionState, ending: m.Ending, gave_up: GiveUp | None = None) -> Step:
    return state._replace(phase=_P.DONE, following=None), [CancelTimer(), m.Finish(ending, gave_up)]


_Handler = Callable[[SubscriptionMachine, SubscriptionState, Any, float, m.Shared], Step]

TRANSITIONS = Transitions[_Handler](
    {
        (_P.IDLE, Asked): SubscriptionMachine._open,
        (_P.IDLE, m.CancelRequested): SubscriptionMachine._cancel,
        (_P.OPENING, MessageCame): SubscriptionMachine._first_message,
        (_P.OPENING, StreamOver): SubscriptionMachine._over,
        (_P.OPENING, m.AttemptBroken): SubscriptionMachine._broken,
        (_P.OPENING, m.CancelRequested): SubscriptionMachine._cancel,
        (_P.STREAMING, MessageCame): SubscriptionMachine._message,
        (_P.STREAMING, StreamOver): SubscriptionMachine._over,
        (_P.STREAMING, m.CancelRequested): SubscriptionMachine._cancel,
        (_P.HOOKED, m.HookDone): SubscriptionMachine._answered,
        (_P.HOOKED, m.CancelRequested): SubscriptionMachine._cancel,
        (_P.HOOKED, m.ChannelClosing): SubscriptionMachine._closing,
        (_P.SLEEPING, m.CallTimerFired): SubscriptionMachine._woken,
        (_P.SLEEPING, m.CancelRequested): SubscriptionMachine._cancel,
        (_P.SLEEPING, m.ChannelClosing): SubscriptionMachine._closing,
    }
)
