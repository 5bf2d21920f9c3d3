"""Subscriptions of the synchronous API: the threaded shell of `subscription_machine`.

One thread reads at a time. Any thread may close the subscription, and the thread that waits then gets CANCELLED.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

import grpc

from grpc_backoff.base.threads import Condition, longest_sleep
from grpc_backoff.decide.calls import subscription_machine as s
from grpc_backoff.decide.calls.call_machine import CallHook, CallTimerFired, ChannelClosing, HookDone
from grpc_backoff.engine.method import Arguments
from grpc_backoff.engine.subscription import SubscriptionSetup, SubscriptionShell, checked
from grpc_backoff.grpcio.sync_private import CLOSED_DETAILS, FORKED_DETAILS, InactiveRpcError, call_state
from grpc_backoff.policy.retry import Retry
from grpc_backoff.sync.call_errors import RetriesExhaustedError
from grpc_backoff.sync.environment import CallEnvironment
from grpc_backoff.sync.multicallables import MultiCallable

if TYPE_CHECKING:
    from grpc_backoff.grpcio.shapes import BackgroundCall

RequestT = TypeVar("RequestT")
MessageT_co = TypeVar("MessageT_co", covariant=True)


class Subscription(SubscriptionShell["BackgroundCall"], Generic[MessageT_co]):
    """An iterator over the messages of a stream that is opened again whenever it ends (SB-1).

    Use it in `with`, or call `close()`, so that the stream is cancelled as soon as it is no longer read.
    For type checkers, annotate what it yields: `events: Subscription[Event] = subscribe(...)`.
    """

    _calls: CallEnvironment
    exhausted_error = RetriesExhaustedError
    end_of_iteration = StopIteration
    _closed_details = CLOSED_DETAILS

    def __init__(self, *arguments: Any) -> None:
        self._changed = Condition()  # its lock is reentrant: a finalizer may close the subscription
        self._reader = threading.Lock()
        self._wake: float | None = None
        super().__init__(*arguments)

    def __iter__(self) -> Self:
        """Return the subscription itself."""
        return self

    def __next__(self) -> MessageT_co:
        """Return the next message, or a `Gap` if gaps were asked for; blocks until there is one.

        Raises:
            grpc.RpcError: the stream ended with a code after which it is not opened again.
            RetriesExhaustedError: the policy's limit is reached.
            RuntimeError: another thread is waiting for the next message.
        """
        if not self._reader.acquire(blocking=False):
            raise RuntimeError("another thread is waiting for the subscription's next message")
        try:
            self._begin()
            while True:
                with self._changed:
                    if self._ready:
                        message: MessageT_co = self._ready.popleft()
                        return message
                    if self._ending is not None:
                        self._raise_end(self._ending)
                    todo, self._todo, call = self._todo, None, self._call
                self._go_on(todo, call)
        except BaseException:  # Ctrl-C, for example
            self._stop()
            raise
        finally:
            self._reader.release()

    def _go_on(self, todo: s.Open | CallHook | None, call: BackgroundCall | None) -> None:
        if isinstance(todo, s.Open):
            opened = self._open(todo)
            with self._changed:
                if self._ending is None:
                    self._call = opened
                elif opened is not None:
                    opened.cancel()
        elif isinstance(todo, CallHook):
            failed, began = self._failed_call(todo), self._state.opened
            self.feed(HookDone(self._calls.ask(todo.hook, failed, began, self._context)))
        elif call is not None:
            self._read(call)
        else:
            self._sleep()

    def _read(self, call: BackgroundCall) -> None:
        try:
            message = next(call)
        except StopIteration:
            metadata = call.initial_metadata(), call.trailing_metadata()
            self._over(InactiveRpcError(call_state(grpc.StatusCode.OK, "", *metadata)))
        except grpc.RpcError as error:
            if self._ending is None:  # otherwise, it is its cancellation
                self._over(error)
        else:
            self._came(message)

    def _sleep(self) -> None:
        with self._changed:
            if self._wake is None:
                return
            left = self._wake - self._calls.now()
            if left > 0:
                self._changed.wait(min(left, longest_sleep()))
                return
            self._wake = None
        self.feed(CallTimerFired())

    def _cancelled(self) -> Any:
        return InactiveRpcError(call_state(grpc.StatusCode.CANCELLED, self._closed_details, (), ()))

    def _drain(self) -> None:
        with self._changed:
            super()._drain()

    def _arm(self, at: float) -> None:
        self._wake = at
        self._timer = self._calls.nudge_at(at, self._nudge)

    def _disarm(self) -> None:
        self._wake = None
        self._cancel_timer()
        self._changed.notify_all()

    def _nudge(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def abandon(self) -> None:
        """End the subscription with CANCELLED in the child of a fork."""
        # Other threads of the parent may have held these.
        self._changed, self._reader = Condition(), threading.Lock()
        self._closed_details = FORKED_DETAILS
        self.feed(ChannelClosing())

    def close(self) -> None:
        """Cancel the stream and end the subscription; a wait for the next message raises CANCELLED. Thread-safe."""
        self._stop()

    cancel = close

    def __enter__(self) -> Self:
        """Return the subscription itself."""
        return self

    def __exit__(self, *_raised: object) -> None:
        """Close the subscription."""
        self.close()


def subscribe(
    multicallable: object,
    request: RequestT,
    *,
    resume: Callable[[Any, RequestT], RequestT] | None = None,
    policy: Retry = "background",
    ends: Literal["resume", "stop"] = "resume",
    gaps: bool = False,
    timeout: float | None = None,
    metadata: Iterable[tuple[str, str | bytes]] | None = None,
    credentials: grpc.CallCredentials | None = None,
    wait_for_ready: bool = True,
    compression: grpc.Compression | None = None,
    call_id: str | None = None,
) -> Subscription[Any]:
    """Return an iterator over a server's messages, which opens the stream again whenever it ends (SB-1).

    Like `grpc_backoff.aio.subscribe`, for a stub on a threaded channel::

        resume = lambda last, request: Start(revision=last.revision + 1)
        with subscribe(stub.Watch, Start(revision=0), resume=resume) as events:
            for event in events: ...

    Args:
        multicallable: a method of a stub on a channel of `grpc_backoff`, whose responses are a stream. If its requests
            are a stream too, `request` is the only one.
        request: the first request.
        resume: returns the next request, given the last message that was read and the request of its stream; called
            only after a stream that delivered a message. None sends the same request again.
        policy: the waits between streams, and the codes after which the stream is opened again: a policy, a policy
            name, or a policy string. The limits of a preset do not apply; others count from the last message (SB-4).
        ends: what a stream's end without an error means: `resume` opens it again, `stop` ends the iteration.
        gaps: whether the iterator also yields a `Gap` before the first message that follows one.
        timeout: the time limit of each stream, in seconds; by default the policy's `timeout`.
        metadata: the metadata of each stream's call, as in grpc.
        credentials: the credentials of each stream's call, as in grpc.
        wait_for_ready: whether a stream waits while there is no connection, instead of failing (CH-3).
        compression: the compression of each stream's request, as in grpc.
        call_id: identifies the subscription in events, log lines and hooks; generated if None.

    Raises:
        TypeError: `multicallable` is not such a method.
        grpc_backoff.OptionError: a `ValueError`: the policy or another argument is not valid.
    """
    method = checked(multicallable, MultiCallable)
    arguments = Arguments(timeout, metadata, credentials, wait_for_ready, compression)
    setup = SubscriptionSetup(resume, policy, ends, gaps, call_id, arguments)
    return Subscription(method.channel.calls, method, request, setup)
