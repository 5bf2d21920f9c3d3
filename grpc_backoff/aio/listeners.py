"""The receivers of events: the listeners of one channel, and the log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from grpc_backoff.aio.loops import raise_soon
from grpc_backoff.base.logs import Log
from grpc_backoff.config.channel_setup import Listener
from grpc_backoff.decide.connections.happened import Happened
from grpc_backoff.telemetry.log import listens, log_event

if TYPE_CHECKING:
    from grpc_backoff.decide.calls.events import CallEvent

_LOG = Log(__name__)


def tell(listeners: Iterable[Listener], event: Any, loop: asyncio.AbstractEventLoop) -> None:
    """Call each listener with an event. If one raises, the others still receive the event (CH-11)."""
    for listener in tuple(listeners):
        try:
            Context().run(listener, event)
        except (KeyboardInterrupt, SystemExit) as error:
            raise_soon(error, loop)  # raising it here would abort the machine's step
        except BaseException:  # noqa: BLE001 - CH-11: a listener may raise anything
            _LOG.exception("a listener of the channel to %s raised", event.target)


class Listeners:
    """One channel's listeners. Events from its calls are logged here; events from its connection, by the pool."""

    def __init__(self, listeners: Iterable[Listener], loop: asyncio.AbstractEventLoop) -> None:
        self.listeners: list[Listener] = list(listeners)
        self._loop = loop
        self._closed = False

    def hear(self, event: Happened | CallEvent) -> None:
        """Notify the channel's listeners of an event."""
        if self.listeners:
            tell(self.listeners, event.event() if isinstance(event, Happened) else event, self._loop)

    def hear_of_call(self, event: Happened | CallEvent) -> None:
        """Log an event that its pool does not log, and notify the channel's listeners."""
        if not self._closed:
            if listens(event):
                tell((log_event,), event, self._loop)
            self.hear(event)

    def close(self) -> None:
        """Stop notifying and logging (CB-10)."""
        self._closed = True
        self.listeners.clear()
