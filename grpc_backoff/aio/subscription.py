"""Subscriptions of the asyncio API: the asyncio shell of `subscription_machine`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

import grpc
import grpc.aio

from grpc_backoff.aio.call_errors import RetriesExhaustedError
from grpc_backoff.aio.environment import CallEnvironment
from grpc_backoff.aio.multicallables import MultiCallable
from grpc_backoff.decide.calls import subscription_machine as s
from grpc_backoff.decide.calls.call_machine import CallHook, CallTimerFired, HookDone
from grpc_backoff.engine.method import Arguments
from grpc_backoff.engine.subscription import SubscriptionSetup, SubscriptionShell, checked
from grpc_backoff.policy.retry import Retry

if TYPE_CHECKING:
    from grpc_backoff.decide.calls.call_machine import Metadata

RequestT = TypeVar("RequestT")
MessageT_co = TypeVar("MessageT_co", covariant=True)

_Stream = grpc.aio.UnaryStreamCall[Any, Any] | grpc.aio.StreamStreamCall[Any, Any]
_DONE = s.SubscriptionPhase.DONE


class Subscription(SubscriptionShell["_Stream"], Generic[MessageT_co]):
    """An asynchronous iterator over the messages of a stream that is opened again whenever it ends (SB-1).

    Use it in `async with`, or call `aclose()`, so that the stream is cancelled as soon as it is no longer read.
    For type checkers, annotate what it yields: `events: Subscription[Event] = subscribe(...)`.
    """

    _calls: CallEnvironment
    exhausted_error = RetriesExhaustedError
    end_of_iteration = StopAsyncIteration
    _changed: asyncio.Future[None] | None = None
    _reading = False

    def __aiter__(self) -> Self:
        """Return the subscription itself."""
        return self

    async def __anext__(self) -> MessageT_co:
        """Return the next message, or a `Gap` if gaps were asked for.

        If the task is cancelled meanwhile, the subscription ends, as a call does.

        Raises:
            grpc.aio.AioRpcError: the stream ended with a code after which it is not opened again.
            RetriesExhaustedError: the policy's limit is reached.
            RuntimeError: another task is waiting for the next message.
        """
        if self._reading:
            raise RuntimeError("another task is waiting for the subscription's next message")
        self._reading = True
        try:
            self._begin()
            while not self._ready:
                if self._ending is not None:
                    self._raise_end(self._ending)
                await self._go_on()
            message: MessageT_co = self._ready.popleft()
        except BaseException:
            self._stop()
            raise
        else:
            return message
        finally:
            self._reading = False

    async def _go_on(self) -> None:
        todo, self._todo = self._todo, None
        if isinstance(todo, s.Open):
            self._call = self._open(todo)
        elif isinstance(todo, CallHook):
            failed, began = self._failed_call(todo), self._state.opened
            self._calls.ask(todo.hook, failed, began, self._context, self._hook_done)
        elif self._call is not None:
            await self._read(self._call)
        else:
            self._changed = asyncio.get_running_loop().create_future()
            await self._changed

    async def _read(self, call: _Stream) -> None:
        try:
            try:
                message = await call.read()
            except StopAsyncIteration:  # grpcio 1.63, at the end of a stream under an interceptor
                message = grpc.aio.EOF
            if message is not grpc.aio.EOF:
                self._came(message)
                return
            metadata = await call.initial_metadata(), await call.trailing_metadata()
            error = grpc.aio.AioRpcError(await call.code(), *metadata, await call.details())
        except grpc.aio.AioRpcError as failed:
            error = failed
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._state.phase is _DONE and not (task is not None and task.cancelling()):
                return  # by `aclose`, in another task
            raise
        self._over(error)

    def _hook_done(self, metadata: Metadata | None) -> None:
        self.feed(HookDone(metadata))
        self._wake()

    def _cancelled(self) -> BaseException:
        return asyncio.CancelledError()

    def _metadata(self, pairs: Metadata | None) -> grpc.aio.Metadata | None:
        return None if pairs is None else grpc.aio.Metadata(*pairs)

    def _arm(self, at: float) -> None:
        self._timer = self._calls.clock.call_at(at, self._fired)

    def _fired(self) -> None:
        self._timer = None
        self.feed(CallTimerFired())
        self._wake()

    def _disarm(self) -> None:
        self._cancel_timer()
        self._wake()

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def cancel(self) -> None:
        """Cancel the stream and end the subscription; a wait for the next message raises `asyncio.CancelledError`."""
        self._stop()

    async def aclose(self) -> None:
        """Like `cancel`; return when the stream's call has ended."""
        call = self._call
        self._stop()
        if call is not None:
            await asyncio.gather(call.code(), return_exceptions=True)

    async def __aenter__(self) -> Self:
        """Return the subscription itself."""
        return self

    async def __aexit__(self, *_raised: object) -> None:
        """Close the subscription."""
        await self.aclose()


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

    Nothing is sent before the first message is asked for::

        resume = lambda last, request: Start(revision=last.revision + 1)
        async with aio.subscribe(stub.Watch, Start(revision=0), resume=resume) as events:
            async for event in events: ...

    Args:
        multicallable: a method of a stub on a channel of `grpc_backoff.aio`, whose responses are a stream. If its
            requests are a stream too, `request` is the only one.
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
