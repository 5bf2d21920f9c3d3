"""What a program can do when an operation finishes or needs help."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

from grpc_backoff.errors import OptionError
from grpc_backoff.ledger.records import Operation
from grpc_backoff.record import names_of, value

__all__ = ["LedgerHooks", "call_hook", "run_hook"]

_LOG = logging.getLogger("grpc_backoff")


@value(frozen=True, slots=True, kw_only=True)
class LedgerHooks:
    """Functions or coroutine functions that a deliverer calls. Exceptions from them are logged and otherwise ignored.

    `on_exhausted` and `on_conflict` run alongside the deliveries, and are also called for attempts recorded manually.
    """

    on_success: Callable[[Operation, bytes], Any] | None = None
    """Called with the operation and the serialized response before the success is recorded; the response is not stored.

    If the process dies in between, the operation is delivered again and this hook is called again.
    """
    on_exhausted: Callable[[Operation], Any] | None = None
    """Called when the policy has given up, after that is recorded (LG-7); use it to notify someone."""
    on_conflict: Callable[[Operation], Any] | None = None
    """Called on ABORTED and ALREADY_EXISTS, after that is recorded (LG-8); use it to reconcile."""
    refresh_credentials: Callable[[Operation], Any] | None = None
    """Called on UNAUTHENTICATED (RT-4). It may return pairs of metadata, which this deliverer sends from then on; they
    are kept in memory only."""

    def __post_init__(self) -> None:
        """Check that each hook is callable; OptionError names the wrong one."""
        for name in names_of(self):
            hook = getattr(self, name)
            if hook is not None and not callable(hook):
                raise OptionError(f"LedgerHooks.{name}", hook, "a function or a coroutine function")


async def call_hook(hook: Callable[..., Any], *given: Any) -> Any:
    """Call a hook, and await it if it is a coroutine function.

    If something that the hook awaits was cancelled, the hook has failed but this task continues: RuntimeError.
    """
    try:
        answer = hook(*given)
        return await answer if inspect.isawaitable(answer) else answer
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError("the hook raised CancelledError, but its caller was not cancelled") from error


async def run_hook(target: str, hook: Callable[..., Any], *given: Any) -> None:
    """Call a hook whose result does not matter; exceptions are logged."""
    try:
        await call_hook(hook, *given)
    except Exception:  # noqa: BLE001 - the hook is the program's
        _LOG.exception("%s: a hook of the ledger raised", target)
