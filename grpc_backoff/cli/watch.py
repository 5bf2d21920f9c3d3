"""Listens to the channel of `grpc-backoff connect`, and decides when to stop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from grpc_backoff.cli.attempts import AttemptLog
from grpc_backoff.cli.report import ChannelReport
from grpc_backoff.config.channel_settings import Listener
from grpc_backoff.decide.connections.events import AttemptFailed, Connected, ConnectionEvent, ConnectionStatus

if TYPE_CHECKING:
    from grpc_backoff.aio import Channel


@contextlib.contextmanager
def _signals_say(stop: Callable[[str], None]) -> Iterator[None]:
    """Within the block, make Ctrl-C and SIGTERM call `stop` with the word that the summary shows."""
    loop = asyncio.get_running_loop()
    installed = []
    for number, word in ((signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")):
        # This fails on Windows and outside the main thread, where KeyboardInterrupt is raised as usual.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop.add_signal_handler(number, stop, word)
            installed.append(number)
    try:
        yield
    finally:
        for number in installed:
            loop.remove_signal_handler(number)


class Watch:
    """Listens to one channel, shows its events, and decides when to stop.

    Attributes:
        log: what happened.
        ended: why the watch ended.
        seconds: how long it lasted.
        status: the channel's status at the end.
    """

    def __init__(self, report: ChannelReport, *, attempts: int | None, limit: float | None, once: bool) -> None:
        """Stop after this many attempts have ended, after `limit` seconds, or at the first READY; None is no limit."""
        self._report = report
        self._attempts = attempts
        self._limit = limit
        self._once = once
        self.log = AttemptLog(0.0)
        self.ended = ""
        self.seconds = 0.0
        self.status: ConnectionStatus | None = None
        self._stopped = asyncio.Event()
        self._error: Exception | None = None

    async def follow(self, opened: Callable[[Listener], Channel]) -> None:
        """Open a channel with a listener, and show what happens until there is a reason to stop."""
        self._channel = opened(self._heard)
        self._loop = asyncio.get_running_loop()
        self.log = AttemptLog(self._loop.time())  # now: to open the channel has imported grpc
        try:
            with _signals_say(self._stop):
                await self._until_stopped()
        finally:
            await self._channel.close()

    def _heard(self, event: ConnectionEvent) -> None:
        if self._stopped.is_set():
            return
        try:
            attempt = self.log.note(event)
            if attempt is not None:
                self._report.show(attempt)
        except Exception as error:  # noqa: BLE001 - mostly a closed pipe; a channel would only log it
            self._error = error
            self._stop("failed")
        if self._once and isinstance(event, Connected):
            self._stop("READY")
        elif self.log.ended == self._attempts and isinstance(event, AttemptFailed | Connected):
            self._stop("stopped")
            self.status = self._channel.connection_status()  # a channel that does not dial has no slots
            # Do this at once: the machine may already have requested the next attempt, which would be one too many.
            self._channel.stop_dialling()

    def _stop(self, word: str) -> None:
        """End the watch; `word` is the reason shown in the summary."""
        if not self._stopped.is_set():
            self.ended, self.seconds = word, self._loop.time() - self.log.origin
            self._stopped.set()

    async def _until_stopped(self) -> None:
        """Keep requesting a connection and refreshing the view until there is a reason to stop."""
        channel, period, began = self._channel, self._report.view.period, self.log.origin
        end = None if self._limit is None else self._loop.time() + self._limit
        while not self._stopped.is_set():
            channel.get_state(try_to_connect=True)
            self._report.refresh(channel.connection_status(), origin=began)
            left = period if end is None else min(period, end - self._loop.time())
            if left <= 0:
                self._stop("timed out")
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), left)
        self.status = self.status or channel.connection_status()
        if self._error is not None:
            raise self._error
