"""Runs the program's hooks (RT-4 to RT-6) and lets calls share one renewal of credentials.

The hooks of a blocking call run in the thread that made the call. Those of a future or a response stream run in threads
of their own.
"""

from __future__ import annotations

import inspect
import logging
import math
import threading
from collections.abc import Callable
from contextvars import Context, ContextVar
from dataclasses import fields
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.decide.calls.call_machine import Hook, Metadata

if TYPE_CHECKING:
    from grpc_backoff.config.hooks import FailedCall, RetryHooks

_LOG = logging.getLogger(__name__)

Work = Callable[[], None]
Done = Callable[[Metadata | None], None]
_RENEWAL: ContextVar[list[Done] | None] = ContextVar("grpc_backoff_renewal", default=None)
"""The renewal of credentials during which the current code runs. Calls made by it must not wait for that renewal."""


def _nothing(_answer: object) -> None:
    """Ignore what a hook returns."""


class Hooks:
    """One channel's hooks."""

    def __init__(self, hooks: RetryHooks | None, target: str, now: Callable[[], float]) -> None:
        """Start with no hook running.

        Raises:
            OptionError: a hook is a coroutine function, which would never be awaited.
        """
        for part in () if hooks is None else fields(hooks):
            hook = getattr(hooks, part.name)
            if hook is not None and inspect.iscoroutinefunction(hook):
                raise OptionError(f"RetryHooks.{part.name}", hook, "a function, not a coroutine function")
        self._hooks = hooks
        self._target = target
        self._now = now
        self._lock = threading.RLock()  # reentrant, because a finalizer may make a call
        self._renewal: list[Done] | None = None
        """Who else waits for the renewal that is running; None if none is."""
        self._renewed: Metadata | None = None
        self._renewed_at = -math.inf

    def can_refresh(self, context: Context | None = None) -> bool:
        """Return whether credentials can be renewed for a call with this context, by default the current one (RT-4).

        For calls that the hook itself makes, in any style, this is False: the hook may wait for them.
        """
        within = _RENEWAL.get() if context is None else context.get(_RENEWAL)
        can = self._hooks is not None and self._hooks.refresh_credentials is not None
        return can and (within is None or within is not self._renewal)

    def ask(self, hook: Hook, failed: FailedCall, began: float, context: Context) -> Metadata | None:
        """Run a hook in this thread and return the renewed metadata; None if it renewed nothing or raised.

        Args:
            hook: the hook to run.
            failed: the argument of the hook.
            began: when the failed attempt began, in seconds on the channel's clock; a renewal since then need not be
                repeated.
            context: the call's context, in which the hook runs.
        """
        answer: SimpleQueue[Metadata | None] = SimpleQueue()
        work = self._prepare(hook, failed, began, context, answer.put)
        if work is not None:
            work()
        return answer.get()

    def start(
        self,
        hook: Hook,
        failed: FailedCall,
        began: float,
        context: Context,
        done: Done,
        otherwise: Callable[[Work], object],
    ) -> None:
        """Run a hook in a thread of its own, then call `done` with the renewed metadata; see `ask`.

        A hook may wait for futures that need hooks themselves, so no hook waits for the thread of another. Without such
        a hook, or for the result of another call's renewal, no thread is needed. If none can be started, `otherwise`
        is given the work.
        """
        work = self._prepare(hook, failed, began, context, done)
        if work is not None:
            thread = threading.Thread(target=work, name="grpc-backoff-hook", daemon=True)
            try:
                Context().run(thread.start)
            except RuntimeError:  # the interpreter is about to exit, or there are too many threads
                otherwise(work)

    def _prepare(self, hook: Hook, failed: FailedCall, began: float, context: Context, done: Done) -> Work | None:
        """Return what runs the hook and calls `done`; None if nothing has to be run, and `done` was or will be called.

        One run of the hook that renews credentials serves all calls whose attempts began before the run ended, because
        those attempts used the old credentials. A failed run serves only the calls that waited for it, because the next
        run may succeed.
        """
        if hook is not Hook.REFRESH:
            function = getattr(self._hooks, hook.value, None)
            if function is None:
                done(None)
                return None
            return lambda: self._tell([done], self._call(function, failed, context))
        with self._lock:
            if self._renewal is not None:
                self._renewal.append(done)
                return None
            known = self._renewed is not None and began < self._renewed_at
            if not known:
                self._renewal = [done]
        if known:
            done(self._renewed)
            return None
        return lambda: self._renew(failed, context)

    def _renew(self, failed: FailedCall, context: Context) -> None:
        from grpc_backoff.config.hooks import renewed_metadata  # noqa: PLC0415 - it is loaded: there is a hook

        within, renewed = context.copy(), None
        within.run(_RENEWAL.set, self._renewal)
        try:
            renewed = self._call(getattr(self._hooks, Hook.REFRESH.value), failed, within, renewed_metadata)
        finally:
            with self._lock:
                waiting, self._renewal = self._renewal or [], None
                self._renewed, self._renewed_at = renewed, self._now()
            self._tell(waiting, renewed)

    def _tell(self, waiting: list[Done], renewed: Metadata | None) -> None:
        for done in waiting:
            try:
                done(renewed)
            except Exception:  # noqa: BLE001 - from a clock, for example; the others must not wait for ever
                _LOG.exception("a step of a call to %s raised", self._target)

    def _call(
        self,
        function: Any,
        failed: FailedCall,
        context: Context,
        read: Callable[[object], Metadata | None] = _nothing,
    ) -> Metadata | None:
        try:
            return read(context.copy().run(function, failed))
        except Exception:  # noqa: BLE001 - a hook may raise anything
            _LOG.exception("a hook of the channel to %s raised", self._target)
            return None
