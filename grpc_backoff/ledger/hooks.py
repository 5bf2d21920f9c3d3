"""What a program can do when an operation ends or needs help."""

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
    """Functions or coroutine functions that a deliverer calls. What they raise is logged and changes nothing.

    `on_exhausted` and `on_conflict` run beside the deliveries, and are called for attempts recorded by hand, too.
    """

    on_success: Callable[[Operation, bytes], Any] | None = None
    """Called with the operation and the response's bytes, before the success is recorded; the bytes are not stored.

    Where the process dies in between, the operation is delivered again and this is called again.
    """
    on_exhausted: Callable[[Operation], Any] | None = None
    """Called when the policy has given up, once that is recorded (LG-7): the notification."""
    on_conflict: Callable[[Operation], Any] | None = None
    """Called on ABORTED and ALREADY_EXISTS, once that is recorded (LG-8): the reconciliation."""
    refresh_credentials: Callable[[Operation], Any] | None = None
    """Called on UNAUTHENTICATED (RT-4). It may return pairs of metadata, which this deliverer sends from then on; they
    are kept in memory alone."""

    def __post_init__(self) -> None:
        """Refuse what cannot be called; OptionError says which."""
        for name in names_of(self):
            hook = getattr(self, name)
            if hook is not None and not callable(hook):
                raise OptionError(f"LedgerHooks.{name}", hook, "a function or a coroutine function")


async def call_hook(hook: Callable[..., Any], *given: Any) -> Any:
    """Call a hook, and wait for it if it is a coroutine function.

    A hook that waited for what somebody else cancelled has failed; this task goes on. RuntimeError says so.
    """
    try:
        answer = hook(*given)
        return await answer if inspect.isawaitable(answer) else answer
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError("the hook raised CancelledError, but nobody cancelled its caller") from error


async def run_hook(target: str, hook: Callable[..., Any], *given: Any) -> None:
    """Call a hook whose answer does not matter; what it raises is logged."""
    try:
        await call_hook(hook, *given)
    except Exception:  # noqa: BLE001 - the hook is the program's
        _LOG.exception("%s: a hook of the ledger raised", target)
