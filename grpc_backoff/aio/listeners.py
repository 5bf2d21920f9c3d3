"""The receivers of events: the listeners of one channel, and the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextvars import Context
from typing import Protocol

from grpc_backoff.aio.loops import raise_soon
from grpc_backoff.config.arguments import Listener
from grpc_backoff.telemetry.log import log_event

__all__ = ["Event", "Listeners", "tell"]

_LOG = logging.getLogger(__name__)


class Event(Protocol):
    """What a listener receives: an event of the connection, or of a retried call."""

    @property
    def target(self) -> str:
        """The channel's target as given."""
        ...


def tell(listeners: Iterable[Listener], event: Event, loop: asyncio.AbstractEventLoop) -> None:
    """Call some listeners with an event; none can keep it from the others (CH-11)."""
    for listener in tuple(listeners):
        try:
            Context().run(listener, event)
        except (KeyboardInterrupt, SystemExit) as error:
            raise_soon(error, loop)  # not from here, which would abort the rest of a step
        except BaseException:  # noqa: BLE001 - CH-11: whatever it is, it is the listener's
            _LOG.exception("a listener of the channel to %s raised", event.target)


class Listeners:
    """The listeners of one channel. Its connection's events are logged where they occur, those of its calls here."""

    def __init__(self, given: Iterable[Listener], loop: asyncio.AbstractEventLoop) -> None:
        """Start with these listeners."""
        self.given: list[Listener] = list(given)
        self._loop = loop
        self._closed = False

    def hear(self, event: Event) -> None:
        """Notify the channel's listeners of an event."""
        tell(self.given, event, self._loop)

    def hear_of_call(self, event: Event) -> None:
        """Log an event of a call, and notify the channel's listeners."""
        if not self._closed:
            tell((log_event, *self.given), event, self._loop)

    def close(self) -> None:
        """Stop notifying and logging (CB-10)."""
        self._closed = True
        self.given.clear()
