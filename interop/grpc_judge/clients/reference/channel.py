"""The reference client's channel: it keeps one connection, backs off between attempts, and makes calls."""

from __future__ import annotations

import asyncio
import contextlib
import ssl

from grpc_judge.clients.peer_program import CallFailed, CallOrder
from grpc_judge.clients.reference.backoff import Backoff
from grpc_judge.clients.reference.connection import Connection, NotTakenError, headers
from grpc_judge.clients.reference.habits import Habits

_TRIES = 5
"""How many times a call is sent in total if no server accepts it."""


class Channel:
    """A channel to one target. It dials between `open` and `close`."""

    def __init__(self, order: CallOrder, habits: Habits) -> None:
        """Create the channel without dialling."""
        self._order = order
        self._habits = habits
        self._backoff = Backoff(order, habits)
        self._loop = asyncio.get_running_loop()
        self._context = ssl.create_default_context(cadata=order.ca.decode()) if order.ca else None
        if self._context is not None:
            self._context.set_alpn_protocols(["h2"])
        self._connection: Connection | None = None
        self._failed = False
        self._changed = asyncio.Event()
        self._wanted = asyncio.Event()
        self._strays: list[Connection] = []
        self._standing: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Allow the channel to dial as soon as a call needs a connection."""
        self._dialling = self._loop.create_task(self._dial_on())

    async def close(self) -> None:
        """Stop dialling and close the connection."""
        self._dialling.cancel()
        await asyncio.gather(self._dialling, return_exceptions=True)
        for task in self._standing:
            task.cancel()
        for connection in filter(None, [self._connection, *self._strays]):
            connection.abort()

    async def call(self, number: str, *, wait_for_ready: bool) -> None:
        """Make a call with this id. A wait-for-ready call keeps waiting while attempts fail.

        Raises:
            CallFailed: the call failed.
        """
        for _ in range(_TRIES):
            connection = await self._usable(wait_for_ready=wait_for_ready and self._habits.waits_for_ready)
            scheme = "http" if self._context is None else "https"
            try:
                return await connection.call(headers(self._order.target, scheme, number))
            except NotTakenError:
                if not self._habits.retries_refused:
                    break
            except CallFailed:
                if not self._habits.repeats_lost:
                    raise
        raise CallFailed("UNAVAILABLE")

    async def _usable(self, *, wait_for_ready: bool) -> Connection:
        while self._connection is None or self._connection.ended.done():
            self._wanted.set()
            if self._failed and not wait_for_ready:
                if not self._habits.ends_failed:
                    await asyncio.Event().wait()
                raise CallFailed("UNAVAILABLE")
            await self._changed.wait()
        return self._connection

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _dial_on(self) -> None:
        """Dial repeatedly and wait for the end of each connection before the next dial."""
        await self._wanted.wait()
        await asyncio.sleep(self._habits.first_late * self._backoff.initial)
        replaced, failed = 0, 0
        while replaced <= self._habits.replaces:
            await self._wanted.wait()
            await asyncio.sleep(self._backoff.wakes(self._loop.time()))
            reason = await self._attempt()
            if reason:
                failed += 1
                if failed == self._habits.gives_up_after or reason in self._habits.gives_up_on.split():
                    break
                continue
            failed = 0
            replaced += await self._live() > self._backoff.initial
        await asyncio.Event().wait()

    async def _attempt(self) -> str:
        """Make one attempt. Return why it failed, or an empty string if it succeeded."""
        self._wanted.clear()
        now = self._loop.time()
        self._backoff.start(now)
        connection = self._new_connection()
        reason = await self._outcome(connection)
        if not reason:
            self._connection, self._failed = connection, False
            if self._habits.strays and not self._strays:
                self._strays.append(stray := self._new_connection())
                await self._connected(stray)
        else:
            self._backoff.fail(self._loop.time(), reason)
            self._failed = True
        self._tell()
        return reason

    def _new_connection(self) -> Connection:
        return Connection(self._habits)

    async def _outcome(self, connection: Connection) -> str:
        """Wait for SETTINGS until the limit. Return why they did not arrive, or an empty string if they did."""
        established = asyncio.ensure_future(self._established(connection))
        early = self._habits.next_before_limit * self._backoff.min_connect_timeout
        limit = self._backoff.limit
        try:
            async with asyncio.timeout_at(None if limit is None else limit - early) as timeout:
                if self._habits.extends_on_bytes:
                    connection.heard = lambda: timeout.reschedule(self._loop.time() + self._backoff.min_connect_timeout)
                await asyncio.shield(established)
        except TimeoutError:
            late = (self._habits.closes_late + self._habits.next_before_limit) * self._backoff.min_connect_timeout
            self._leave(established, connection, late)
            return "limit"
        except ConnectionRefusedError:
            return "refused"
        except ConnectionResetError:
            return "reset"
        except ssl.SSLCertVerificationError:
            connection.abort()
            return "certificate"
        except OSError as error:
            connection.abort()
            return "garbage" if isinstance(error, ssl.SSLError) else str(error)
        except asyncio.CancelledError:
            self._leave(established, connection, 0.0)
            raise
        finally:
            connection.heard = lambda: None
        return ""

    async def _established(self, connection: Connection) -> None:
        await self._connected(connection)
        await connection.ready

    async def _connected(self, connection: Connection) -> None:
        host, _, port = self._order.target.rpartition(":")
        await self._loop.create_connection(
            lambda: connection,
            host,
            int(port),
            ssl=self._context,
            server_hostname="localhost" if self._context is not None else None,
        )
        if self._context is not None:
            self._backoff.handshaken()

    def _leave(self, established: asyncio.Future[None], connection: Connection, late: float) -> None:
        """Abandon an attempt after `late` seconds."""

        async def leave() -> None:
            try:
                await asyncio.sleep(late)
            finally:
                established.cancel()
                connection.abort()
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    await established

        task = self._loop.create_task(leave())
        self._standing.add(task)
        task.add_done_callback(self._standing.discard)

    async def _live(self) -> float:
        """Wait until the connection ends and report the loss to the backoff.

        Returns how long the connection lasted, in seconds.
        """
        connection, began = self._connection, self._loop.time()
        assert connection is not None
        reason = await asyncio.shield(connection.ended)
        now = self._loop.time()
        stable_after = (self._order.stable_after_ms or 0) / 1000
        young = now - began < stable_after and not connection.served
        paid = connection.paid or (connection.served and self._habits.unavailable_pays)
        self._backoff.lose(now, reason, counts=young and self._habits.knows_stable_after, paid=paid)
        self._connection = None
        self._tell()
        return now - began
