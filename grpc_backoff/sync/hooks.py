"""Runs the program's hooks (RT-4 to RT-6) and lets calls share one renewal of credentials.

The hooks of a blocking call run in the thread that made the call. Those of a future or a response stream run on a
thread for listeners (`listeners.py`).
"""

from __future__ import annotations

import inspect
import logging
import math
import threading
from collections.abc import Callable
from contextvars import Context
from dataclasses import fields
from typing import Any

from grpc_backoff.base_errors import OptionError
from grpc_backoff.calls.machine import Hook, Metadata
from grpc_backoff.config.hooks import FailedCall, RetryHooks, renewed_metadata

_LOG = logging.getLogger(__name__)


class Hooks:
    """One channel's hooks."""

    def __init__(self, hooks: RetryHooks, target: str, now: Callable[[], float]) -> None:
        """Start with no hook running.

        Raises:
            OptionError: a hook is a coroutine function, which would never be awaited.
        """
        for name in (part.name for part in fields(hooks)):
            given = getattr(hooks, name)
            if inspect.iscoroutinefunction(given):
                raise OptionError(f"RetryHooks.{name}", given, "a function, not a coroutine function")
        self._hooks = hooks
        self._target = target
        self._now = now
        self._renewing = threading.RLock()
        self._renewer: int | None = None
        """The thread that is renewing the credentials."""
        self._renewed: Metadata | None = None
        self._renewed_at = -math.inf
        self._renewals = 0

    def can_refresh(self) -> bool:
        """Return whether credentials can be renewed (RT-4); always False for calls that the hook itself makes."""
        return self._hooks.refresh_credentials is not None and self._renewer != threading.get_ident()

    def ask(self, hook: Hook, failed: FailedCall, began: float, context: Context) -> Metadata | None:
        """Run a hook and return the renewed metadata; None if it renewed nothing or raised.

        Args:
            hook: the hook to run.
            failed: the argument of the hook.
            began: when the failed attempt began, in seconds on the channel's clock; a renewal since then need not be
                repeated.
            context: the call's context, in which the hook runs.
        """
        if hook is Hook.REFRESH:
            return self._renewal(failed, began, context)
        function = getattr(self._hooks, hook.value)
        if function is not None:
            self._call(function, failed, context)
        return None

    def _renewal(self, failed: FailedCall, began: float, context: Context) -> Metadata | None:
        """Wait for the renewal of credentials that a call needs and return its result (RT-4).

        One run of the hook serves all calls whose attempts began before the run ended, because those attempts used the
        old credentials. A failed run serves only the calls that waited for it, because the next run may succeed.
        """
        seen = self._renewals
        with self._renewing:
            waited = self._renewals != seen
            if waited or (self._renewed is not None and began < self._renewed_at):
                return self._renewed
            self._renewer = threading.get_ident()
            try:
                self._renewed = self._call(self._hooks.refresh_credentials, failed, context, renewed_metadata)
            finally:
                self._renewer = None
            self._renewed_at = self._now()
            self._renewals += 1
            return self._renewed

    def _call(
        self, function: Any, failed: FailedCall, context: Context, read: Callable[[Any], Metadata] = lambda _: ()
    ) -> Metadata | None:
        try:
            return read(context.copy().run(function, failed))
        except Exception:  # noqa: BLE001 - a hook may raise anything
            _LOG.exception("a hook of the channel to %s raised", self._target)
            return None
