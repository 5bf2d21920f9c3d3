"""The program; see `interop/clients/README.md`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc

import grpc_backoff
from grpc_backoff import AttemptStarted, aio
from grpc_backoff.connection import events
from interop.clients.grpc_aio import call_all, credentials
from interop.clients.holding import hold_all
from interop.clients.peer_program import Announcements, CallOrder, Tally, command

_REDIAL: Any = getattr(events, "CoreRedial", ())  # a channel without that event announces no redials


class _Announcer:
    """A listener that notes what the channel announces."""

    def __init__(self, began: float) -> None:
        self.announced = Announcements()
        self._began = began

    def __call__(self, event: events.ConnectionEvent) -> None:
        if isinstance(event, AttemptStarted):
            self.announced.attempts.append(event.at - self._began)
        elif isinstance(event, _REDIAL):
            self.announced.redials.append(event.at - self._began)

    def closed(self) -> None:
        """Note that the channel is closed."""
        self.announced.closed = time.monotonic() - self._began


async def _run(order: CallOrder) -> tuple[Tally, Announcements | None]:
    announcer = _Announcer(order.began)
    channel = _channel(order, announcer)
    if order.hold_ms is None:
        return await call_all(order, channel), None
    return await hold_all(order, channel, announcer.closed), announcer.announced


def _channel(order: CallOrder, announcer: _Announcer) -> aio.Channel:
    secret, options, listeners = credentials(order), [*order.core_options, *order.own_options], [announcer]
    if secret is None:
        return aio.insecure_channel(order.target, options, listeners=listeners)
    return aio.secure_channel(order.target, secret, options, listeners=listeners)


@command
def main(order: CallOrder) -> None:
    """Keep one channel busy."""
    tally, announced = asyncio.run(_run(order))
    tally.say_done(announced, grpc_backoff=grpc_backoff.__version__, grpcio=grpc.__version__)


if __name__ == "__main__":
    main()
