r"""The life of one call as a pure state machine.

All decisions about a call that may wait for a connection are made here: when its attempt begins, whether it is sent
again because it never left, and how the call ends::

    RUNNING ---- there is no connection ----> WAITING ---- connected ----> RUNNING

A call without a retry policy is handed over once its attempt has begun. It then ends as that attempt does, and nothing
is left to decide. An attempt's wait for a connection is part of the attempt (RT-7). Calls with a policy have more
transitions, between two attempts; those are in `retry_machine.py` and `hedging_machine.py`, which most programs do not
load.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from grpc_backoff.base.record import NamedTuple
from grpc_backoff.base.stepping import AbandonAttempt, ArmTimer, CancelTimer, Emit, Transitions, ignored
from grpc_backoff.policy.backoff import Random

if TYPE_CHECKING:
    from grpc_backoff.base.status import Reason
    from grpc_backoff.decide.calls.budget import RetryTokens
    from grpc_backoff.decide.calls.decision import GiveUp, Retry
    from grpc_backoff.decide.calls.resets import Calm
    from grpc_backoff.decide.calls.server_hint import ServerHint
    from grpc_backoff.policy.hedging import HedgingPolicy
    from grpc_backoff.policy.retry import RetryPolicy

Metadata = tuple[tuple[str, str | bytes], ...]
"""Metadata, as pairs of a key and a value."""

_UNAVAILABLE = "UNAVAILABLE"
TIMED_OUT = "DEADLINE_EXCEEDED"
"""The code of a call that has reached its deadline."""
_CUT_WITH = frozenset({"CANCELLED", _UNAVAILABLE})
"""The codes with which servers and proxies end a call at its deadline in a status or a text of their own."""
_EARLY = 0.02
"""How much earlier than the deadline a proxy may cut a call, in seconds. Envoy was seen to do so 1.3 ms earlier; the
rest is slack for a busy machine."""

# Creates a named tuple without the Python code of its constructor, where every call does so (CH-5).
_new = tuple.__new__

ATTEMPTS_BEFORE = "grpc-previous-rpc-attempts"
"""The metadata key for how many attempts came before (gRFC A6)."""


class CallPhase(enum.Enum):
    """A call's phase."""

    __hash__ = object.__hash__  # implemented in C, because every step looks up the table

    RUNNING = enum.auto()
    """An attempt is on a connection, or about to be sent."""
    WAITING = enum.auto()
    """The attempt waits for a connection."""
    DECIDING = enum.auto()
    """An attempt has failed, and a hook is running."""
    SLEEPING = enum.auto()
    """An attempt has failed, and the next one follows after a wait."""
    DONE = enum.auto()
    """The final phase: the outcome of the call is known."""


# Up to Python 3.11, access to a member is slow.
_RUNNING, _WAITING, _DONE = CallPhase.RUNNING, CallPhase.WAITING, CallPhase.DONE


class Hook(enum.Enum):
    """The program's hooks; each value is the name of a field of `RetryHooks`."""

    REFRESH = "refresh_credentials"
    CONFLICT = "on_conflict"
    EXHAUSTED = "on_exhausted"


class Ending(enum.Enum):
    """How a call ends."""

    ATTEMPT = enum.auto()
    """The call ends with the result of its last attempt, which may still be running."""
    EXHAUSTED = enum.auto()
    """The call ends with the failure of its last attempt, and the account of all attempts (RT-6)."""
    TIMED_OUT = enum.auto()
    """The call ends with DEADLINE_EXCEEDED, whatever its last attempt says, because that had run out of time (RT-7)."""
    CANCELLED = enum.auto()
    """The call is cancelled while no attempt is on a connection."""
    BROKEN = enum.auto()
    """The attempt could not be made, and the exception is passed on to the caller."""
    STOPPED = enum.auto()
    """The reader of a subscription has closed it, or the server has ended a stream that may end."""


class Progress(NamedTuple):
    """A call's progress through its attempts.

    Attributes:
        attempt: the number of the running or last attempt, from 1.
        step: how many waits of the policy's sequence have been used, or skipped by a renewal of credentials (RT-4); a
            pushback restarts the sequence (RT-3).
        previous: the last wait of the sequence, from which decorrelated backoff continues.
        refreshed: whether the credentials have already been renewed (RT-4).
        refused: whether the call has already been repeated at once after its stream was refused.
    """

    attempt: int = 1
    step: int = 0
    previous: float | None = None
    refreshed: bool = False
    refused: bool = False


_FIRST = Progress()


class CallState(NamedTuple):
    """A call's complete state. Times are in seconds on the shell's monotonic clock.

    It is a named tuple, because every successful call creates two of them, and a frozen dataclass would cost three
    times as much.

    Attributes:
        phase: the call's phase.
        call_id: an object whose text identifies the call in events and log lines.
        trace_id: the id of the caller's trace; None if there is none.
        began: when the call began.
        end: the deadline of the whole call, with its attempts and waits (RT-7); None without one.
        attempt_began: when the latest attempt began; its wait for a connection is part of it.
        attempt_end: the deadline of that attempt; None without one.
        progress: the progress through the schedule.
        own_timeout: whether the attempt has less time than the call, so that its timeout need not end the call.
        waited: whether the attempt has waited for a connection.
        missed: which connection that it waited for was lost before the attempt could use it, as in `Missed`.
        committed: whether part of the attempt's response has reached the caller (RT-8).
        metadata: the pairs that replace the caller's metadata with the same keys.
        following: the decision that is still to be carried out, in DECIDING and SLEEPING.
        failed: the code of the attempt that failed, in DECIDING and SLEEPING.
        wake: when SLEEPING ends.
        unconnected: whether the attempt that failed has ended for lack of a connection.
        copies: the copies of a hedged call, as in `hedging_machine`; None for any other.
    """

    phase: CallPhase
    call_id: object
    trace_id: str | None
    began: float
    end: float | None
    attempt_began: float
    attempt_end: float | None = None
    progress: Progress = _FIRST
    own_timeout: bool = False
    waited: bool = False
    missed: int | None = None
    committed: bool = False
    metadata: Metadata = ()
    following: Retry | GiveUp | None = None
    failed: str = ""
    wake: float = math.inf
    unconnected: bool = False
    copies: Any = None


_WAITED = CallState._fields.index("waited")
_AT_FIRST = CallState(_RUNNING, "", None, 0.0, None, 0.0)[_WAITED:]
"""The fields from `waited` on when a call begins."""


# Inputs.


class NotConnected(NamedTuple):
    """There was no connection for the attempt that was about to begin.

    `failing` is whether the last dial failed; `resolved` and `lasting` are as in `NoConnection`, and `made` and `paid`
    as in `Missed`.
    """

    failing: bool = False
    resolved: bool = True
    made: int = 0
    paid: bool = False
    lasting: bool = False


class Begun(NamedTuple):
    """The attempt is on a connection. The shell sends this only if the machine is `handed_over`."""


class ConnectionReady(NamedTuple):
    """There is a connection for the attempt that waits for one."""


class Missed(NamedTuple):
    """There was a connection, but it was lost before this attempt could use it.

    `made` is how many connections have been made, so that one that a call misses twice counts once. `paid` says whether
    the connection before it has answered calls, so that this is no peer that hangs up each time.
    """

    made: int = 0
    paid: bool = False


class NoConnection(NamedTuple):
    """A dial failed.

    `resolved` is whether the target's name has ever been resolved, and `lasting` whether every dial fails.
    """

    resolved: bool = True
    lasting: bool = False


class OkStatus(NamedTuple):
    """The attempt succeeded."""


class FailedAttempt(NamedTuple):
    """The attempt ended with a status other than OK. The machine adds what it knows before it decides what follows.

    Attributes:
        code: the name of the status code.
        hint: the server hint, if any (RT-3).
        unsent: whether the call is known never to have left this process.
        refused: whether a GOAWAY rejected the call before the server processed it, and the core did not repeat it.
        says_refused: whether the status says that the server refused the stream, which is not proven (RT-13).
        oversized: whether a message exceeded a size limit. That is not retried, because the message would be no
            smaller and the server may have executed the call.
        can_refresh: whether the credentials can be renewed (RT-4).
        cut: whether the text is the core's own for a stream that ended without the server's status, or for a deadline.
        never_ran: whether no server is said to have executed the call (RT-14).
        turned_away: the HTTP status 502, 503 or 504 that came instead of an answer; 0 if none did (RT-15).
        own_timeout: added; whether the attempt had less time than the call and has used it, so that DEADLINE_EXCEEDED
            need not end the call.
        committed: added; whether part of the response has reached the caller (RT-8).
        transient: added; whether the failure is retryable whatever its code, as the end of a subscription's stream is.
    """

    code: str
    hint: ServerHint | None = None
    unsent: bool = False
    refused: bool = False
    says_refused: bool = False
    oversized: bool = False
    can_refresh: bool = False
    cut: bool = False
    never_ran: bool = False
    turned_away: int = 0
    own_timeout: bool = False
    committed: bool = False
    transient: bool = False


class AttemptBroken(NamedTuple):
    """The attempt could not be made: a serializer or a credentials plugin raised an exception."""


class Committed(NamedTuple):
    """Part of the attempt's response has reached the caller (RT-8)."""


class CallTimerFired(NamedTuple):
    """The machine's timer is due, or overdue."""


class HookDone(NamedTuple):
    """The hook has returned; `metadata` is the renewed metadata, None if it failed or does not renew any."""

    metadata: Metadata | None = None


class CancelRequested(NamedTuple):
    """The caller cancels the call."""


class ChannelClosing(NamedTuple):
    """The channel is closing, so nothing is repeated any more."""


Input = (
    NotConnected
    | Begun
    | ConnectionReady
    | Missed
    | NoConnection
    | OkStatus
    | FailedAttempt
    | AttemptBroken
    | Committed
    | CallTimerFired
    | HookDone
    | CancelRequested
    | ChannelClosing
)


# Effects.


class Begin(NamedTuple):
    """Make an attempt with a timeout of this many seconds.

    `metadata` replaces the caller's metadata with the same keys. The shell answers with `NotConnected` if there is no
    connection for the attempt; if there is one, it arms the machine's timer for the time `wake`, unless that is None.
    """

    seconds: float | None
    metadata: Metadata
    wake: float | None = None


class Enqueue(NamedTuple):
    """Add the call to the pending calls and request a connection."""


class FailSoon(NamedTuple):
    """Send `NoConnection` to the machine, but only after the caller has received the call object."""


class SeekAnother(NamedTuple):
    """Seek another connection for the retry, because this one has answered with this HTTP status (RT-15)."""

    status: int


class FailAttempt(NamedTuple):
    """Fail the waiting attempt with this code, for lack of a connection (CH-4)."""

    code: str


class CallHook(NamedTuple):
    """Run one of the program's hooks; the shell answers with `HookDone`, at once if there is no such hook.

    `took` is how many seconds the call has taken so far; `reason` is why there is no further attempt, if that applies.
    """

    hook: Hook
    took: float
    reason: Reason | None = None


class Finish(NamedTuple):
    """End the call; if its retries are exhausted, `gave_up` is the decision to make no further attempt."""

    ending: Ending
    gave_up: GiveUp | None = None


# The effects without arguments that occur in most calls.
AS_ATTEMPT, _CANCEL_TIMER, _ENQUEUE = Finish(Ending.ATTEMPT), CancelTimer(), Enqueue()

Effect = (
    Begin
    | Enqueue
    | FailSoon
    | SeekAnother
    | FailAttempt
    | AbandonAttempt
    | ArmTimer
    | CancelTimer
    | CallHook
    | Emit[Any]  # a `CallEvent`, whose module is imported with the first one
    | Finish
)
Step = tuple[CallState, list[Effect]]


class Shared(Protocol):
    """The parts of a channel that its calls share and that may change while they run."""

    @property
    def rng(self) -> Random:
        """The source of jitter."""
        ...

    @property
    def tokens(self) -> RetryTokens | None:
        """The target's remaining retry budget (RT-9), changed by the outcomes of attempts; None for no limit."""
        ...

    @property
    def calm(self) -> Calm:
        """Whether the target's server has asked for calm (HG-11)."""
        ...

    @property
    def observed(self) -> bool:
        """Whether the channel has any listeners besides the log."""
        ...

    @property
    def heard(self) -> bool:
        """Whether a listener, the log or a span receives events, so that they need to be made."""
        ...

    @property
    def closing(self) -> bool:
        """Whether the channel is closing, so that nothing is repeated."""
        ...


class CallMachine(NamedTuple):
    """The rules for calls to one method, without state: `begin` and `step` are functions of their arguments.

    Attributes:
        target: the channel's target as given.
        method: the method's path, `/package.Service/Method`.
        policy: the retry policy, which only a `RetryMachine` follows; None for no retries.
        wait_for_ready: whether attempts keep waiting after a failure to connect (CH-3).
        by_config: whether `wait_for_ready` comes only from the service config.
        repeatable: whether the shell keeps the requests, so that it can repeat an attempt that never left this process.
        hedging: the hedging policy, which only a `HedgingMachine` follows.
    """

    target: str
    method: str
    policy: RetryPolicy | None = None
    wait_for_ready: bool = False
    by_config: bool = False
    repeatable: bool = False
    hedging: HedgingPolicy | None = None

    @property
    def handed_over(self) -> bool:
        """Whether a call ends as its first attempt on a connection does, so that nothing is left to decide."""
        return self.policy is None and not self.repeatable

    @property
    def reports(self) -> bool:
        """Whether calls have events and read what the server asks for."""
        return self.policy is not None

    def begin(
        self,
        now: float,
        timeout: float | None = None,
        limit: float | None = None,
        *,
        call_id: object = "",
        trace_id: str | None = None,
    ) -> tuple[CallState, Begin]:
        """Start a call with its first attempt.

        Args:
            now: the time on the shell's clock, in seconds.
            timeout: the caller's timeout for the whole call, in seconds.
            limit: the service config's timeout for the whole call, in seconds.
            call_id: an object whose text identifies the call in its events.
            trace_id: the id of the caller's trace.
        """
        policy, end = self.policy, None if timeout is None else now + timeout
        if limit is not None or (policy is not None and policy.deadline is not None):
            end = earliest(now, timeout, limit, None if policy is None else policy.deadline)
        own = policy is not None and policy.timeout is not None
        attempt_end, own_timeout = self._attempt_end(now, end) if own else (end, False)
        seconds = None if attempt_end is None else attempt_end - now
        fields = _RUNNING, call_id, trace_id, now, end, now, attempt_end, _FIRST, own_timeout, *_AT_FIRST
        return _new(CallState, fields), _new(Begin, (seconds, (), None))

    def shown_end(self, now: float, timeout: float | None) -> float | None:
        """Return the deadline for `time_remaining` of a call that begins now; it ignores the service config's limit."""
        if self.policy is None or self.policy.deadline is None:
            return None if timeout is None else now + timeout
        return earliest(now, timeout, self.policy.deadline)

    def ended(self, state: CallState) -> CallState:
        """Return the state of a call that was ended by an exception in a step."""
        return _new(CallState, (_DONE, *state[1:]))

    def step(self, state: CallState, input_: Input, now: float, shared: Shared) -> Step:
        """Return the state after this input, and the effects that the shell must execute, in this order."""
        return TRANSITIONS[state.phase, type(input_)](self, state, input_, now, shared)

    # The start of an attempt, until it has a connection.

    def _attempt(self, state: CallState, now: float, **changes: Any) -> Step:
        end, own_timeout = self._attempt_end(now, state.end)
        seconds = None if end is None else end - now
        state = state._replace(
            phase=_RUNNING,
            attempt_began=now,
            attempt_end=end,
            own_timeout=own_timeout,
            waited=False,
            missed=None,
            unconnected=False,
            **changes,
        )
        return state, [Begin(seconds, state.metadata)]

    def _attempt_end(self, now: float, end: float | None) -> tuple[float | None, bool]:
        """Return the deadline of an attempt that begins now, and whether it is earlier than the call's (RT-7)."""
        own = None if self.policy is None else self.policy.timeout
        if own is not None and (end is None or now + own < end):
            return now + own, True
        return end, False

    def _not_connected(self, state: CallState, input_: NotConnected, now: float, shared: Shared) -> Step:
        """Wait for a connection, or fail with the last dial's error (CH-3, SH-3)."""
        effects: list[Effect] = []
        if state.waited:
            state, effects = self._missed(state, Missed(input_.made, input_.paid), now, shared)
        if not effects and input_.failing and not self._outlasts_failures(input_):
            effects = [FailSoon()]
        timer: list[Effect] = []
        if (end := state.attempt_end) is not None:
            timer = [_new(ArmTimer, (now if math.isnan(end) else end,))]  # a timeout of NaN has expired, as in grpc
        state = _new(CallState, (_WAITING, *state[1:_WAITED], True, *state[_WAITED + 1 :]))
        return state, [*timer, _ENQUEUE, *effects]

    def _connected(self, state: CallState, _input: ConnectionReady, now: float, shared: Shared) -> Step:
        if state.attempt_end is not None and not now < state.attempt_end:
            return self._failed_waiting(state, TIMED_OUT, now, shared)  # its timer has not fired yet
        seconds = None if state.attempt_end is None else state.attempt_end - now
        return _new(CallState, (_RUNNING, *state[1:])), [_CANCEL_TIMER, _new(Begin, (seconds, state.metadata, None))]

    def _missed(self, state: CallState, input_: Missed, _now: float, _shared: Shared) -> Step:
        """Keep waiting; a fail-fast call does so only once, because the peer may hang up each time (CB-17)."""
        if input_.paid or self.wait_for_ready or input_.made == state.missed:
            return state, []
        return state._replace(missed=input_.made), [] if state.missed is None else [FailSoon()]

    def _no_connection(self, state: CallState, input_: NoConnection, now: float, shared: Shared) -> Step:
        if self._outlasts_failures(input_):
            return state, []
        return self._failed_waiting(state, _UNAVAILABLE, now, shared)

    def _outlasts_failures(self, input_: NotConnected | NoConnection) -> bool:
        """Return whether the call keeps waiting after a failed dial (CH-3).

        In grpc, a service config takes effect once the target's name has first been resolved; until then, it does not
        make calls wait.
        """
        return self.wait_for_ready and not input_.lasting and (input_.resolved or not self.by_config)

    def _wait_is_over(self, state: CallState, _input: CallTimerFired, now: float, shared: Shared) -> Step:
        return self._failed_waiting(state, TIMED_OUT, now, shared)

    def _failed_waiting(self, state: CallState, code: str, now: float, shared: Shared) -> Step:
        failed = FailedAttempt(code, never_ran=True)
        state, effects = self._after(state._replace(unconnected=True), failed, now, shared)
        return state, [_CANCEL_TIMER, FailAttempt(code), *effects]

    # The end of an attempt.

    def _succeeded(self, state: CallState, _input: Begun | OkStatus, _now: float, _shared: Shared) -> Step:
        return _new(CallState, (_DONE, *state[1:])), [AS_ATTEMPT]

    def _failed(self, state: CallState, input_: FailedAttempt, now: float, shared: Shared) -> Step:
        waits_on = self.repeatable and input_.unsent and not (state.committed or shared.closing)
        if not waits_on:
            return self._after(state, input_, now, shared)
        if state.end is not None and not now < state.end:
            return self._failed_waiting(state, TIMED_OUT, now, shared)
        return self._attempt(state, now)  # CH-3: the call never left

    def _after(self, state: CallState, input_: FailedAttempt, now: float, shared: Shared) -> Step:
        """Decide what follows a failed attempt: without a policy, the end of the call."""
        return self._end_with(state, Ending.ATTEMPT, input_.code, now, shared)

    def _end_with(self, state: CallState, ending: Ending, code: str, now: float, shared: Shared) -> Step:
        reported = self._unconnected(state, code, now, shared)
        state, effects = finish(state, ending)
        return state, [*reported, *effects]

    def _unconnected(self, state: CallState, code: str, now: float, shared: Shared) -> list[Effect]:
        """Report a call that ends for lack of a connection, because its core sees nothing of it (RT-12)."""
        if not (state.unconnected and shared.observed):
            return []
        from grpc_backoff.decide.calls.events import CallNotConnected  # noqa: PLC0415 - as above; imported with the listener

        return [Emit(CallNotConnected(**self._at(state, now), code=code, took=now - state.began))]

    # Inputs from the caller and the channel.

    def _commit(self, state: CallState, _input: Committed, _now: float, _shared: Shared) -> Step:
        return state._replace(committed=True), []

    def _cancel_attempt(self, state: CallState, _input: CancelRequested, _now: float, _shared: Shared) -> Step:
        return state._replace(phase=_DONE), [AbandonAttempt(), AS_ATTEMPT]

    def _cancel(self, state: CallState, _input: CancelRequested, _now: float, _shared: Shared) -> Step:
        return finish(state, Ending.CANCELLED)

    def _broken(self, state: CallState, _input: AttemptBroken, _now: float, _shared: Shared) -> Step:
        return finish(state, Ending.BROKEN)

    def _at(self, state: CallState, now: float) -> dict[str, Any]:
        """Return the fields that all events of the call have."""
        return {
            "target": self.target,
            "method": self.method,
            "at": now,
            "attempt": state.progress.attempt,
            "call_id": str(state.call_id),
        }


def finish(state: CallState, ending: Ending, gave_up: GiveUp | None = None) -> Step:
    """End a call of which no attempt is on a connection."""
    return state._replace(phase=_DONE, following=None), [_CANCEL_TIMER, Finish(ending, gave_up)]


def ran_out(input_: FailedAttempt, end: float | None, now: float) -> bool:
    """Return whether a deadline ended a call, whatever its status says (RT-7).

    Servers and proxies that heed the deadline end the call themselves, and the core may see that before its own timer
    fires: CANCELLED from Go and Java, INTERNAL from a proxy that has passed headers on, or else UNAVAILABLE.
    """
    if input_.cut:
        return input_.code == TIMED_OUT or not ended_early(end, now)
    return input_.code in _CUT_WITH and end is not None and now >= end


def ended_early(end: float | None, now: float) -> bool:
    """Return whether a call ended so long before this deadline that it cannot be why (RT-7)."""
    return end is None or now < end - _EARLY


def earliest(now: float, *spans: float | None) -> float | None:
    """Return when the shortest of these timeouts, which start now, expires; None if all of them are None."""
    end = None
    for span in spans:
        if span is not None and (end is None or now + span < end):
            end = now + span
    return end


def replaced(metadata: Iterable[tuple[str, str | bytes]] | None, instead: Metadata) -> Metadata:
    """Return metadata with these pairs in place of any pairs that have the same keys."""
    if not metadata:
        return instead
    keys = {key for key, _ in instead}
    return (*(pair for pair in metadata if pair[0] not in keys), *instead)


_Handler = Callable[[CallMachine, CallState, Any, float, Shared], Step]

TRANSITIONS = Transitions[_Handler](
    {
        (CallPhase.RUNNING, NotConnected): CallMachine._not_connected,
        (CallPhase.RUNNING, Begun): CallMachine._succeeded,
        (CallPhase.RUNNING, NoConnection): ignored,
        (CallPhase.RUNNING, OkStatus): CallMachine._succeeded,
        (CallPhase.RUNNING, FailedAttempt): CallMachine._failed,
        (CallPhase.RUNNING, AttemptBroken): CallMachine._broken,
        (CallPhase.RUNNING, Committed): CallMachine._commit,
        (CallPhase.RUNNING, CallTimerFired): ignored,
        (CallPhase.RUNNING, CancelRequested): CallMachine._cancel_attempt,
        (CallPhase.RUNNING, ChannelClosing): ignored,
        (CallPhase.WAITING, ConnectionReady): CallMachine._connected,
        (CallPhase.WAITING, Missed): CallMachine._missed,
        (CallPhase.WAITING, NoConnection): CallMachine._no_connection,
        (CallPhase.WAITING, Committed): CallMachine._commit,
        (CallPhase.WAITING, CallTimerFired): CallMachine._wait_is_over,
        (CallPhase.WAITING, CancelRequested): CallMachine._cancel,
        (CallPhase.WAITING, ChannelClosing): ignored,
        (CallPhase.SLEEPING, NoConnection): ignored,
        (CallPhase.SLEEPING, Committed): CallMachine._commit,
        (CallPhase.SLEEPING, CancelRequested): CallMachine._cancel,
        (CallPhase.SLEEPING, ChannelClosing): CallMachine._cancel,
    }
)
