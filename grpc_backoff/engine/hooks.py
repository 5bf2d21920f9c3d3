"""The base class of both APIs' hooks (RT-4 to RT-6): calls share one renewal of credentials."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, ClassVar

from grpc_backoff.base.logs import Log
from grpc_backoff.base.record import NamedTuple
from grpc_backoff.decide.calls.call_machine import Hook, Metadata

if TYPE_CHECKING:
    from grpc_backoff.config.hooks import Hook as HookFunction
    from grpc_backoff.config.hooks import RetryHooks

Done = Callable[[Metadata | None], None]
_RENEWAL: ContextVar[list[Done] | None] = ContextVar("grpc_backoff_renewal", default=None)
"""The renewal of credentials during which the current code runs. Calls made by it must not wait for that renewal."""


class HookRun(NamedTuple):
    """A hook that has to run, once.

    Attributes:
        function: the hook.
        context: in which it runs; nothing else has entered this copy of the call's context.
        read: returns what the call needs of the hook's answer; may raise.
        over: to be called with that, or with None if the hook has failed.
    """

    function: HookFunction
    context: Context
    read: Callable[[object], Metadata | None]
    over: Done


class ChannelHooks:
    """One channel's hooks; subclasses run them."""

    _log: ClassVar[Log]

    def __init__(self, hooks: RetryHooks, target: str, now: Callable[[], float]) -> None:
        """Start with no hook running."""
        self._hooks = hooks
        self._target = target
        self._now = now
        self._lock = threading.RLock()  # reentrant, because a finalizer may make a call
        self._renewal: list[Done] | None = None
        """Who waits for the renewal that is running; None if none is."""
        self._renewed: Metadata | None = None
        self._renewed_at = -math.inf

    def can_refresh(self, context: Context | None = None) -> bool:
        """Return whether credentials can be renewed for a call with this context, by default the current one (RT-4).

        For calls that the hook itself makes, in any style, this is False: the hook may wait for them.
        """
        within = _RENEWAL.get() if context is None else context.get(_RENEWAL)
        return self._hooks.refresh_credentials is not None and (within is None or within is not self._renewal)

    def _prepare(self, hook: Hook, began: float, context: Context, done: Done) -> HookRun | None:
        """Return the run of a hook after which `done` is called; None if `done` was called or another run does it.

        One run of the hook that renews credentials serves all calls whose attempts began before the run ended, because
        those attempts used the old credentials. A failed run serves only the calls that waited for it, because the next
        run may succeed.

        Args:
            hook: the hook to run.
            began: when the failed attempt began, in seconds on the channel's clock; a renewal since then need not be
                repeated.
            context: the call's context, in which the hook runs.
            done: called with the renewed metadata, or with None.
        """
        function: Any = getattr(self._hooks, hook.value, None)
        if hook is not Hook.REFRESH:
            if function is None:
                done(None)
                return None
            return HookRun(function, context.copy(), lambda _answer: None, lambda _: self._tell([done], None))
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
        from grpc_backoff.config.hooks import renewed_metadata  # noqa: PLC0415 - it is loaded: there is a hook

        within = context.copy()
        within.run(_RENEWAL.set, self._renewal)
        return HookRun(function, within, renewed_metadata, self._renewal_over)

    def _renewal_over(self, renewed: Metadata | None) -> None:
        with self._lock:
            waiting, self._renewal = self._renewal or [], None
            self._renewed, self._renewed_at = renewed, self._now()
        self._tell(waiting, renewed)

    def _tell(self, waiting: list[Done], renewed: Metadata | None) -> None:
        for done in waiting:
            try:
                done(renewed)
            except Exception:  # noqa: BLE001 - from a clock, for example; the others must not wait for ever
                self._log.exception("a step of a call to %s raised", self._target)
