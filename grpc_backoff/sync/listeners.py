"""Delivers events: each channel has a thread for them, which runs only while there is something to report (TH-5a).

Listeners and connectivity callbacks are user code, so they run neither on the conductor nor under one of this library's
locks. The listeners and callbacks of one channel are called in order, one at a time.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from contextvars import Context
from queue import SimpleQueue
from typing import TYPE_CHECKING

import grpc

from grpc_backoff.base import threads
from grpc_backoff.base.logs import Log
from grpc_backoff.base.status import State
from grpc_backoff.base.threads import Running, new_queue
from grpc_backoff.config.channel_setup import Listener
from grpc_backoff.decide.connections.happened import Happened
from grpc_backoff.grpcio.sync_private import GRPCIOS_LOG
from grpc_backoff.telemetry.log import listens, log_event

if TYPE_CHECKING:
    from grpc_backoff.decide.calls.events import CallEvent

_LOG = Log(__name__)

Callback = Callable[[grpc.ChannelConnectivity], object]


class _Subscription:
    """One connectivity callback, and the last state that it was called with."""

    __slots__ = ("callback", "last")

    def __init__(self, callback: Callback) -> None:
        self.callback = callback
        self.last: State | None = None


class Listeners:
    """The listeners and the connectivity callbacks of one channel."""

    def __init__(self, listeners: Iterable[Listener], target: str) -> None:
        self.listeners: list[Listener] = list(listeners)
        self._target = target
        self._subscriptions: list[_Subscription] = []
        self._news: SimpleQueue[Callable[[], None]] = new_queue()  # a deque would take five times the memory
        self._telling = threading.Lock()
        self._thread: Running | None = None
        self._closed = False

    # For the channel.

    def subscribe(self, callback: Callback, state: Callable[[], State]) -> None:
        """Call `callback` with each new state; the first state is what `state` returns at the callback's first turn."""
        subscription = _Subscription(callback)
        self._subscriptions.append(subscription)
        self._tell(lambda: self._tell_state(subscription, state()))

    def unsubscribe(self, callback: Callback) -> None:
        """Remove a callback; harmless if it is not registered."""
        for subscription in tuple(self._subscriptions):
            if subscription.callback == callback:
                self._subscriptions.remove(subscription)
                return

    def close(self) -> None:
        """Stop delivering, except for what is already queued (CB-10)."""
        self._closed = True
        self._subscriptions.clear()

    def wait(self, within: float) -> None:
        """Wait until everything that is queued has been delivered, for `within` seconds at most.

        Where no thread can be started, deliver it here.
        """
        if sys.is_finalizing():
            return  # a thread that delivers will never run again
        if not self._news.empty() or self._telling.locked():
            delivered = threading.Event()
            self._tell(delivered.set)
            if self._telling.acquire(blocking=False):
                self._run()
            elif self._thread is None or not self._thread.is_here():  # a thread cannot wait for itself
                delivered.wait(within)

    # Notifications.

    def hear(self, event: Happened | CallEvent) -> None:
        """Deliver an event to the listeners and the log."""
        if not self._closed and (self.listeners or listens(event)):
            self._tell(lambda: self._tell_event(event))

    hear_of_call = hear

    def changed(self, state: State) -> None:
        """Notify the callbacks of the channel's new state."""
        if self._subscriptions and not self._closed:
            self._tell(lambda: self._tell_all(state))

    def call(self, work: Callable[[], object]) -> None:
        """Run other user code when its turn comes, even on a closed channel."""
        self._tell(lambda: _guarded(work, self._target))

    # The thread.

    def _tell(self, news: Callable[[], None]) -> None:
        self._news.put(news)
        if self._telling.acquire(blocking=False):  # no thread is delivering at the moment
            try:
                self._thread = threads.start(self._run, "grpc-backoff-listeners")
            except RuntimeError:  # the interpreter is about to exit, or there are too many threads
                self._telling.release()

    def _run(self) -> None:
        while True:
            try:
                while not self._news.empty():
                    self._news.get()()
            finally:
                self._telling.release()
            # Something may have been queued between the last check and the release. The first thread to notice delivers
            # it.
            if self._news.empty() or not self._telling.acquire(blocking=False):
                return

    def _tell_event(self, event: Happened | CallEvent) -> None:
        _guarded(lambda: log_event(event), self._target)
        if self.listeners:
            told = event.event() if isinstance(event, Happened) else event
            for listener in tuple(self.listeners):
                _guarded(lambda listener=listener: listener(told), self._target)  # type: ignore[misc]

    def _tell_all(self, state: State) -> None:
        for subscription in tuple(self._subscriptions):
            self._tell_state(subscription, state)

    def _tell_state(self, subscription: _Subscription, state: State) -> None:
        if subscription.last is not state and subscription in self._subscriptions:
            subscription.last = state
            try:
                Context().run(subscription.callback, grpc.ChannelConnectivity[state.name])
            except BaseException:  # noqa: BLE001 - a callback may raise anything
                GRPCIOS_LOG.exception("Exception calling channel subscription callback!")


def _guarded(work: Callable[[], object], target: str) -> None:
    """Run user code; its exceptions are logged and otherwise ignored (CH-11)."""
    try:
        Context().run(work)
    except BaseException:  # noqa: BLE001 - a listener may raise anything
        _LOG.exception("a listener of the channel to %s raised", target)
