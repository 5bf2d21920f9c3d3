"""What a program hears of a ledger's operations: events and hooks.

Events are frozen records without payloads, metadata or tokens (RT-11), whose times are in seconds. Hooks are the
functions with which a program handles operations that have finished or need attention.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, TypeVar, TypeVarTuple

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.base.logs import Log
from grpc_backoff.ledger.operation import Operation

_LOG = Log("grpc_backoff")
ResultT = TypeVar("ResultT")
ArgumentTs = TypeVarTuple("ArgumentTs")
Credentials = Iterable[tuple[str, str | bytes]] | None
"""The metadata pairs of new credentials, if there are any."""
Refresh = Callable[[Operation], Credentials | Awaitable[Credentials]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationEvent:
    """The fields that all operation events have.

    Attributes:
        operation_id: the operation's id.
        target: the operation's target.
        method: the path of its method.
        attempt: the number of attempts in this series so far.
        trace_id: the id of the trace in which the operation was submitted; None if there was none.
    """

    operation_id: str
    target: str
    method: str
    attempt: int
    trace_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationDelivered(OperationEvent):
    """The attempt succeeded, and the success has been recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRetried(OperationEvent):
    """The attempt failed with `code`; the next one is due in `delay` seconds, as determined by `source`."""

    code: str
    delay: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationLost(OperationRetried):
    """The attempt's deliverer was gone when the lease expired (LG-6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationExhausted(OperationEvent):
    """The attempt failed with `code`, and the policy has given up: the operation needs manual action (LG-7).

    `reason` is one of the values of `Reason`; None if the policy does not retry this code.
    """

    code: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationConflicted(OperationEvent):
    """The server reported a conflict: the operation needs manual action (LG-8)."""

    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationExpired(OperationEvent):
    """The operation was not executed before its `not_after` (LG-17)."""


Listener = Callable[[OperationEvent], object]
"""A function that takes one event. Its exceptions are logged and otherwise ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerHooks:
    """Functions or coroutine functions that a deliverer calls. Their exceptions are logged and otherwise ignored.

    `on_exhausted`, `on_conflict`, `on_blocked` and `on_expired` run alongside the deliveries. All but the last are
    also called by `Ledger.record_failure`.
    """

    on_success: Callable[[Operation, bytes], object] | None = None
    """Called with the operation and the serialized response before the success is recorded.

    If the process dies before the success is recorded, the operation is delivered again and this hook is called again.
    """
    on_exhausted: Callable[[Operation], object] | None = None
    """Called when the policy has given up and this has been recorded (LG-7), for example to notify an operator."""
    on_conflict: Callable[[Operation], object] | None = None
    """Called after ABORTED or ALREADY_EXISTS is recorded as a conflict (LG-8), for example to reconcile data."""
    on_blocked: Callable[[Operation], object] | None = None
    """Called after `on_exhausted` or `on_conflict` for an operation with an order key, which now holds back the later
    operations of its key until it is replayed, resolved or discarded."""
    on_expired: Callable[[Operation], object] | None = None
    """Called when an operation was not executed before its `not_after`, and this has been recorded (LG-17)."""
    refresh_credentials: Refresh | None = None
    """Called on UNAUTHENTICATED (RT-4). It may return metadata pairs, which this deliverer sends with all further
    attempts and keeps only in memory."""

    def __post_init__(self) -> None:
        """Check that each hook is callable; OptionError if one is not."""
        for name in (part.name for part in fields(self)):
            hook = getattr(self, name)
            if hook is not None and not callable(hook):
                raise OptionError(f"LedgerHooks.{name}", hook, "a function or a coroutine function")


async def call_hook(hook: Callable[[*ArgumentTs], Awaitable[ResultT] | ResultT], *arguments: *ArgumentTs) -> ResultT:
    """Call a hook and await it if it is a coroutine function.

    If the hook raises CancelledError but this task was not cancelled, a RuntimeError is raised instead.
    """
    try:
        answer: Any = hook(*arguments)
        result: ResultT = await answer if inspect.isawaitable(answer) else answer
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError("the hook raised CancelledError, but its caller was not cancelled") from error
    return result


async def run_hook(target: str, hook: Callable[[*ArgumentTs], object], *arguments: *ArgumentTs) -> None:
    """Call a hook whose result does not matter; exceptions are logged."""
    try:
        await call_hook(hook, *arguments)
    except Exception:  # noqa: BLE001 - a hook is user code
        _LOG.exception("%s: a hook of the ledger raised", target)
