"""Connectors that a program or a test writes as a coroutine, as a connection's manager takes them."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable

from grpc_backoff.aio.core_channel import CoreChannel
from grpc_backoff.aio.loops import start, until_done
from grpc_backoff.base.logs import Log
from grpc_backoff.base.status import Failure, Loss, Stage
from grpc_backoff.connection.connector import ConnectError, Connector
from grpc_backoff.engine.core_connector import SlotConnector, Tell
from grpc_backoff.engine.gate import unheard
from grpc_backoff.engine.home import Home

_LOG = Log(__name__)


class CoroutineConnection(CoreChannel):
    """A connection that such a connector makes; its other methods are those of `Connection`, too."""

    @abstractmethod
    async def lost(self) -> Loss:
        """Wait until the connection ends; see `Connection.lost`."""

    @abstractmethod
    async def watch_redials(self, tell: Callable[[], None]) -> None:
        """Call `tell` for each redial; see `Connection.watch_redials`."""


class SharedConnector:
    """A connector whose attempts are coroutines, and how many slots use it; the last one closes it."""

    def __init__(self, connector: Connector[CoroutineConnection]) -> None:
        self.connector = connector
        self.slots = 0


class CoroutineConnector(SlotConnector[CoroutineConnection]):
    """One slot's use of a connector whose attempts are coroutines.

    Attributes:
        shared: the connector, which other slots may use, too.
        home: the event loop.
        open: the connections that it has made and that have not ended.
    """

    def __init__(self, shared: SharedConnector, home: Home, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.shared = shared
        shared.slots += 1
        self._released = False
        self.home = home
        self.open: set[CoroutineConnection] = set()
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()

    def connect(self, limit: float, tell: Tell[CoroutineConnection]) -> _AttemptTask:
        """Make one attempt, in a task of its own, which then watches the connection."""
        attempt = _AttemptTask(self.shared.connector, tell)
        attempt.task = start(self._loop, self._run(attempt, limit), self._tasks)
        return attempt

    async def _run(self, attempt: _AttemptTask, limit: float) -> None:
        try:
            connection = await self.shared.connector.connect(limit)
        except ConnectError as error:
            for _ in range(0 if attempt.tell is unheard else error.redials):
                self.redialled(late=True)
            attempt.tell(error.failure)
            return
        except Exception as error:  # noqa: BLE001
            # A bug in a connector must not leave the channel waiting for ever, so treat it as a failed attempt.
            _LOG.exception("an attempt to connect raised an unexpected exception")
            attempt.tell(Failure(Stage.UNKNOWN, repr(error)))
            return
        finally:
            attempt.task = None
        self.open.add(connection)
        try:
            attempt.tell(connection)
            if attempt.tell is not unheard:
                await connection.lost()
                self.lost()
                await connection.watch_redials(self.redialled)
        finally:
            self.open.discard(connection)
            connection.retire()
            self.closed()

    def retire(self) -> None:
        """Close every connection when its last call ends, and watch none any longer."""
        for task in self._tasks:
            task.cancel()

    async def close(self, grace: float | None) -> None:
        """Use the connector no more, and close it if no other slot uses it; see `Connector.close`.

        If this was cancelled, it is called again.
        """
        if not self._released:
            self._released = True
            self.shared.slots -= 1
        self.retire()
        if not self.shared.slots:
            await self.shared.connector.close(grace)
        await until_done(*self._tasks)

    async def end_calls(self, owner: object, grace: float | None) -> None:
        """Give one channel's calls up to `grace` seconds to finish, then cancel them; connections stay open (SH-7)."""
        await asyncio.gather(*(connection.end_calls(owner, grace) for connection in self.open))


class _AttemptTask:
    def __init__(self, connector: Connector[CoroutineConnection], tell: Tell[CoroutineConnection]) -> None:
        self.tell = tell
        self.task: asyncio.Task[None] | None = None
        self.decided = connector.decided

    def abandon(self) -> None:
        self.tell = unheard
        if self.task is not None:
            self.task.cancel()
