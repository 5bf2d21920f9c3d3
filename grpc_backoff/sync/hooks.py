"""Runs the program's hooks (RT-4 to RT-6).

The hooks of a blocking call run in the thread that made the call. Those of a future or a response stream run in threads
of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from dataclasses import fields
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from grpc_backoff.base import threads
from grpc_backoff.base.base_errors import OptionError
from grpc_backoff.base.logs import Log
from grpc_backoff.base.threads import new_queue
from grpc_backoff.config.channel_setup import is_coroutine_function
from grpc_backoff.decide.calls.call_machine import Hook, Metadata
from grpc_backoff.engine.hooks import ChannelHooks, Done, HookRun

if TYPE_CHECKING:
    from grpc_backoff.config.hooks import FailedCall, RetryHooks


class Hooks(ChannelHooks):
    """One channel's hooks."""

    _log = Log(__name__)

    def __init__(self, hooks: RetryHooks, target: str, now: Callable[[], float]) -> None:
        """Start with no hook running.

        Raises:
            OptionError: a hook is a coroutine function, which would never be awaited.
        """
        for part in fields(hooks):
            hook = getattr(hooks, part.name)
            if hook is not None and is_coroutine_function(hook):
                raise OptionError(f"RetryHooks.{part.name}", hook, "a function, not a coroutine function")
        super().__init__(hooks, target, now)

    def ask(self, hook: Hook, failed: FailedCall, began: float, context: Context) -> Metadata | None:
        """Run a hook in this thread and return the renewed metadata; None if it renewed nothing or raised.

        The arguments are those of `_prepare`; `failed` is the hook's.
        """
        answer: SimpleQueue[Metadata | None] = new_queue()
        run = self._prepare(hook, began, context, answer.put)
        if run is not None:
            self._run(run, failed)
        return answer.get()

    def start(
        self,
        hook: Hook,
        failed: FailedCall,
        began: float,
        context: Context,
        done: Done,
        otherwise: Callable[[Callable[[], None]], object],
    ) -> None:
        """Run a hook in a thread of its own, then call `done` with the renewed metadata; see `ask`.

        A hook may wait for futures that need hooks themselves, so no hook waits for the thread of another. Without such
        a hook, or for the result of another call's renewal, no thread is needed. If none can be started, `otherwise`
        is given the work.
        """
        run = self._prepare(hook, began, context, done)
        if run is not None:
            work = partial(self._run, run, failed)
            try:
                threads.start(work, "grpc-backoff-hook")
            except RuntimeError:  # the interpreter is about to exit, or there are too many threads
                otherwise(work)

    def _run(self, run: HookRun, failed: FailedCall) -> None:
        answer = None
        try:
            answer = run.read(run.context.run(run.function, failed))
        except Exception:  # noqa: BLE001 - a hook may raise anything
            self._log.exception("a hook of the channel to %s raised", self._target)
        finally:
            run.over(answer)
