"""The base class of asyncio and threaded subscriptions: it steps the machine, opens streams and makes the errors.

A subscription does nothing by itself. Its reader asks for a message, and until that is there, carries out what the
machine wants: opens a stream, reads from it, or sleeps. So nothing is read ahead, and a reader that is slow holds back
the server through HTTP/2's flow control, as on a plain stream (SB-6).
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NoReturn, TypeVar

import grpc

from grpc_backoff.base.base_errors import OptionError, shown
from grpc_backoff.base.record import NamedTuple
from grpc_backoff.base.status import Link
from grpc_backoff.base.stepping import AbandonAttempt, ArmTimer, CancelTimer, Emit, Stepper
from grpc_backoff.config.hooks import FailedCall
from grpc_backoff.config.methods import ENDLESS, read_retry
from grpc_backoff.decide.calls import subscription_machine as s
from grpc_backoff.decide.calls.call_machine import (
    AttemptBroken,
    CallHook,
    CancelRequested,
    ChannelClosing,
    Ending,
    FailedAttempt,
    Finish,
    SeekAnother,
    replaced,
)
from grpc_backoff.decide.calls.call_texts import Report, is_oversized, turned_away, was_cut
from grpc_backoff.decide.calls.server_hint import read_hint
from grpc_backoff.engine.call import exhausted
from grpc_backoff.engine.environment import CallEnvironment
from grpc_backoff.engine.method import Arguments, GivenMetadata, Method, load_retries
from grpc_backoff.grpcio.call_errors import RetriesExhaustedError
from grpc_backoff.grpcio.private import Status
from grpc_backoff.policy.checks import duration
from grpc_backoff.policy.retry import Retry
from grpc_backoff.telemetry.trace import CallId

if TYPE_CHECKING:
    from grpc_backoff.base.stepping import Cancellable
    from grpc_backoff.decide.calls.call_machine import Metadata

CallT = TypeVar("CallT", bound="Cancellable")
_BETWEEN = frozenset({s.SubscriptionPhase.HOOKED, s.SubscriptionPhase.SLEEPING})
_IDLE, _DONE = s.SubscriptionPhase.IDLE, s.SubscriptionPhase.DONE
Resume = Callable[[Any, Any], Any]


class SubscriptionSetup(NamedTuple):
    """The arguments of `subscribe`, without the method and its request; see there."""

    resume: Resume | None
    policy: Retry
    ends: Literal["resume", "stop"]
    gaps: bool
    call_id: str | None
    arguments: Arguments


class SubscriptionShell(Stepper[s.Input], Generic[CallT]):
    """The base class for subscriptions. Its methods are for the reader, except `feed`, which anything may call."""

    exhausted_error: ClassVar[type[RetriesExhaustedError]]
    """The `RetriesExhaustedError` of this API."""
    end_of_iteration: ClassVar[type[Exception]]
    """What ends a loop over an iterator of this API."""

    def __init__(self, calls: CallEnvironment, method: Method, request: object, setup: SubscriptionSetup) -> None:
        """Check the arguments; nothing is sent yet."""
        super().__init__()
        load_retries()
        if setup.ends not in ("resume", "stop"):
            raise OptionError("ends", setup.ends, "'resume' or 'stop'")
        if setup.resume is not None and not callable(setup.resume):
            raise OptionError("resume", setup.resume, "a function of the last message and its request, or None")
        policy = read_retry("policy", setup.policy, method.channel.call_policies.config, ENDLESS)
        arguments = setup.arguments
        # With a limit that is over at once, streams would be opened for ever, and in vain.
        timeout = policy.timeout if arguments.timeout is None else duration("timeout", arguments.timeout)
        metadata = None if arguments.metadata is None else tuple(arguments.metadata)
        self._calls = calls
        self._machine = s.SubscriptionMachine(
            method.channel.target,
            method.method,
            policy,
            timeout=timeout,
            resumes=setup.ends == "resume",
            call_id=str(setup.call_id or CallId()),
        )
        self._state = s.SubscriptionState()
        opens: Any = method.retrying(None)  # SB-7: the subscription's policy is the only one
        self._method: Callable[..., CallT] | None = opens
        self._takes_one_request = method.takes_one_request
        self._arguments = arguments._replace(timeout=timeout, metadata=metadata)
        self._gaps = setup.gaps
        self._resume = setup.resume
        self._request = request
        self._context = copy_context()  # in which hooks run
        self._ready: deque[Any] = deque()  # what the reader gets next: a gap and a message, of the stub's own type
        self._message: object = None  # the last one, until `resume` has seen it
        self._has_message = False
        self._todo: s.Open | CallHook | None = None
        self._call: CallT | None = None
        self._error: Exception | None = None
        self._status: Status  # that of the last stream which has ended
        self._ending: Finish | None = None
        self._failed: FailedCall | None = None

    # Driving the machine.

    def _step(self, input_: s.Input) -> None:
        if self._state.phase is _DONE:
            return  # the end is final; later inputs are ignored
        if isinstance(input_, ChannelClosing) and self._state.phase not in _BETWEEN:
            return  # the stream's own end comes
        before = self._state.phase
        self._state, effects = self._machine.step(self._state, input_, self._calls.now(), self._calls)
        if self._state.phase in _BETWEEN:
            self._calls.rests(self)
        elif before in _BETWEEN:
            self._calls.goes_on(self)
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: s.Effect) -> None:  # noqa: C901 - one branch for each effect
        match effect:
            case s.Deliver(gap):
                if gap is not None and self._gaps:
                    self._ready.append(gap)
                self._ready.append(self._message)
            case s.Open() | CallHook():
                self._todo = effect
            case ArmTimer(at):
                self._arm(at)
            case CancelTimer():
                self._disarm()
            case Emit(event):
                self._calls.emit(event)
            case SeekAnother(status):
                self._calls.pending.pool.seek_another(None, status)  # which one, grpc's own call does not say
            case AbandonAttempt():
                self._ready.clear()
                if self._call is not None:
                    self._call.cancel()
            case Finish():
                self._ending = effect
                if effect.ending is Ending.EXHAUSTED:
                    self._error = self._exhausted(effect)
                self._call = self._todo = self._method = self._resume = self._request = self._message = None

    @abstractmethod
    def _arm(self, at: float) -> None:
        """Wake the machine at this time; its reader sleeps until then."""

    @abstractmethod
    def _disarm(self) -> None:
        """Cancel the timer and wake the reader, because the subscription has ended."""

    # What the reader does until there is a message.

    def _begin(self) -> None:
        if self._state.phase is _IDLE:
            self.feed(s.Asked())

    def _came(self, message: object) -> None:
        self._message, self._has_message = message, True
        self.feed(s.MessageCame())

    def _open(self, effect: s.Open) -> CallT | None:
        """Make a call; None if it cannot be made, or if the subscription has ended meanwhile."""
        method, resume = self._method, self._resume
        if method is None:
            return None
        try:
            if self._has_message and resume is not None:
                self._request = resume(self._message, self._request)
            self._has_message = False
            request = self._request if self._takes_one_request else iter((self._request,))
            metadata = self._arguments.metadata
            pairs = None if metadata is None and not effect.metadata else replaced(metadata, effect.metadata)
            return method(request, **self._arguments._replace(metadata=self._metadata(pairs))._asdict())
        except Exception as error:  # noqa: BLE001 - from `resume`, a serializer or a closed channel
            self._error = error
            self.feed(AttemptBroken())
            return None

    def _metadata(self, pairs: Metadata | None) -> GivenMetadata | None:
        """Return metadata as the API's multicallables take it."""
        return pairs

    def _over(self, error: Any) -> None:
        """Tell the machine that the stream has ended; grpcio's `error` has its status, even if that is OK."""
        self._call, self._error = None, error
        metadata = error.initial_metadata(), error.trailing_metadata()
        self._status = status = Status(error.code(), error.details() or "", *metadata, None)
        initial, trailing = tuple(status.initial_metadata or ()), tuple(status.trailing_metadata or ())
        code, link = status.code.name, Link.NONE
        report = Report(code=code, details=status.details, link=link, metadata=bool(initial or trailing))
        failed = FailedAttempt(
            code,
            hint=read_hint(trailing, initial, self._calls.wall_clock),
            oversized=is_oversized(report),
            can_refresh=self._calls.can_refresh(self._context),
            cut=was_cut(report),
            turned_away=turned_away(report),
        )
        self.feed(s.StreamOver(failed, headers=bool(initial)))

    def _failed_call(self, hook: CallHook) -> FailedCall:
        status = self._status
        self._failed = FailedCall(
            target=self._machine.target,
            method=self._machine.method,
            attempt=self._state.opens or 1,
            code=status.code,
            details=status.details,
            trailing_metadata=tuple((key, value) for key, value in status.trailing_metadata or ()),
            took=hook.took,
            reason=hook.reason,
            call_id=self._machine.call_id,
        )
        return self._failed

    def _exhausted(self, effect: Finish) -> RetriesExhaustedError:
        """Return the error of a subscription whose policy has set the limit, with an account of its streams (SB-4)."""
        failed, status = self._failed, self._status
        assert failed is not None, "the hook must have been asked before"
        ended = failed.code is grpc.StatusCode.OK  # an error cannot have that code
        if ended:
            status = status._replace(code=grpc.StatusCode.UNAVAILABLE, details="the server ends the stream")
        made = exhausted(self.exhausted_error, status, failed, effect.gave_up)
        made.__cause__ = None if ended else self._error
        return made

    def _raise_end(self, finish: Finish) -> NoReturn:
        """Raise what ended the subscription; an error only once, so that the iterator is at its end from then on."""
        error, self._error = self._error, None
        if finish.ending is Ending.CANCELLED:
            raise self._cancelled()
        if error is None or finish.ending is Ending.STOPPED:
            raise self.end_of_iteration
        raise error

    @abstractmethod
    def _cancelled(self) -> BaseException:
        """Return the error of a cancelled call."""

    def _stop(self) -> None:
        self.feed(CancelRequested())


def checked(multicallable: object, kind: type) -> Any:
    """Return a method whose responses are a stream, of a channel of this API; TypeError for anything else."""
    if not isinstance(multicallable, kind) or not multicallable.arity.endswith("_stream"):  # type: ignore[attr-defined]
        raise TypeError(
            f"multicallable={shown(multicallable)}: expected a method of a stub on a grpc_backoff channel, whose "
            "responses are a stream"
        )
    return multicallable
