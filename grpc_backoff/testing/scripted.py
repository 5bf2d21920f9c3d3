"""A channel whose connections follow a script, for testing code that makes calls on a channel.

A one-minute outage takes milliseconds::

    clock = FakeClock()
    connector = ScriptedConnector(clock, [Fails()])  # every attempt fails
    async with scripted_channel(connector, f"127.0.0.1:{port}") as channel:  # a server started by the test
        work = asyncio.create_task(code_under_test(channel))
        await clock.advance(60)
        connector.play([Succeeds()])  # from now on every attempt succeeds
        await clock.advance(150)  # no gap between two attempts is longer
        await work

`connector.connections[-1].end()` breaks a connection. Attempts, gaps, retries and the deadlines of pending calls follow
the test's clock. A call that has a connection is a real call to a real server, and takes real time, because on a clock
that jumps grpc would time out for no reason.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from typing import Unpack

import grpc
import grpc.aio

from grpc_backoff.aio.channel import Channel, Interceptors
from grpc_backoff.aio.coroutine_connector import CoroutineConnection
from grpc_backoff.base.status import Link, Loss
from grpc_backoff.config.channel_settings import ChannelSettings, Options
from grpc_backoff.config.core_options import LOCAL_POOL
from grpc_backoff.config.places import AUTHORITY, NAME_OVERRIDE
from grpc_backoff.config.proxies import DIRECT
from grpc_backoff.config.target import AF_UNIX, Target, parse_target
from grpc_backoff.grpcio.aio_private import core_channel
from grpc_backoff.testing.connector import ScriptedConnection, ScriptedConnector
from grpc_backoff.testing.relay import Ends, relay

_READY, _IDLE = grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.IDLE


def scripted_channel(
    connector: ScriptedConnector,
    target: str,
    credentials: grpc.ChannelCredentials | None = None,
    options: Options | None = None,
    compression: grpc.Compression | None = None,
    interceptors: Interceptors | None = None,
    **settings: Unpack[ChannelSettings],
) -> Channel:
    """Create a channel that connects by a script, on the script's clock.

    Everything else is as in `aio.insecure_channel`, or in `aio.secure_channel` if there are `credentials`.

    Args:
        connector: follows the script. `connector.play` continues with another script. `connector.connections[-1].end()`
            ends the connection: its running calls fail with UNAVAILABLE, as on a broken connection, unless the end is
            graceful.
        target: the server that receives the calls while the script provides a connection, usually one started by the
            test.
        credentials: as in `aio.secure_channel`.
        options: as in `aio.insecure_channel`.
        compression: as in `aio.insecure_channel`.
        interceptors: as in `aio.insecure_channel`.
        settings: as in `aio.insecure_channel`, except for `clock`, which is the script's. By default, `rng` yields the
            same numbers for each channel, which makes tests reproducible.

    Raises:
        grpc_backoff.OptionError: as in `aio.insecure_channel`; also if the target is not the address of a socket.
    """
    settings = {"rng": random.Random(0), **settings, "clock": connector.clock}
    return Channel(
        target,
        credentials,
        options,
        compression,
        interceptors,
        **settings,
        connector=_ServedConnector(connector, parse_target(target), credentials),
    )


class _ServedConnector:
    """Connects as the script says; each connection has a line to a real server, which can be cut."""

    def __init__(self, script: ScriptedConnector, target: Target, credentials: grpc.ChannelCredentials | None) -> None:
        self._script = script
        self._target = target
        self._credentials = credentials
        self._made: list[_ServedConnection] = []
        self.decided = script.decided

    async def connect(self, limit: float) -> _ServedConnection:
        scripted = await self._script.connect(limit)
        line = _Line(self._target)
        made = _ServedConnection(scripted, self._script, line, self._open(line.open()))
        self._made.append(made)
        return made

    async def close(self, grace: float | None) -> None:
        made, self._made = self._made, []
        await self._script.close(grace)
        await asyncio.gather(*(connection.close(grace) for connection in made))

    def _open(self, place: str) -> grpc.aio.Channel:
        """Return a channel of grpc's own that uses a line, but knows the server by its real name."""
        insecure = self._credentials is None
        name = (AUTHORITY, self._target.host_port) if insecure else (NAME_OVERRIDE, self._target.host)
        return core_channel(place, self._credentials, [(LOCAL_POOL, 1), DIRECT, name])


class _ServedConnection(CoroutineConnection):
    """A connection that lasts as long as the script says."""

    def __init__(
        self, scripted: ScriptedConnection, script: ScriptedConnector, line: _Line, channel: grpc.aio.Channel
    ) -> None:
        super().__init__(channel, asyncio.get_running_loop(), script.clock.now)
        self.scripted = scripted
        self.check = self._check
        self._line = line
        self._breaking = asyncio.create_task(self._break_when_lost())

    def _check(self, _try_to_connect: bool) -> int:
        return (_READY if self.alive() else _IDLE).value[0]

    def alive(self) -> bool:
        return self.scripted.alive()

    def loss(self) -> Loss | None:
        return self.scripted.loss()

    async def lost(self) -> Loss:
        return await self.scripted.lost()

    def last_used(self) -> float:
        return self.clock_now() if self.running else self.scripted.last_used()

    def look(self) -> None:
        """Do nothing, because only the script ends the connection."""

    def _judge(self, _call: grpc.aio.Call) -> bool:
        """Record the use; how the connection counts is for the script to decide."""
        self.scripted.used = self.clock_now()
        return False

    async def watch_redials(self, tell: Callable[[], None]) -> None:
        """Return at once, because only the script dials here."""

    def retire(self) -> None:
        super().retire()
        self.scripted.retire()

    def link(self) -> Link:
        return Link.OPEN if self.alive() else Link.BROKEN

    async def _break_when_lost(self) -> None:
        if not (await self.lost()).graceful:
            self._line.break_all()

    async def close(self, grace: float | None) -> None:
        self._breaking.cancel()
        await self.close_channel(grace)
        await self._line.close()


class _Line:
    """A path to a server that can be cut, which ends calls in the same way as a broken network."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._serving: asyncio.Task[asyncio.Server] | None = None
        self._ends: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut = False

    def open(self) -> str:
        """Return the address to connect to instead of the server's.

        This does not wait until the line is being served: that takes a few turns of the event loop, and the script's
        clock does not wait for them.
        """
        sock = socket.create_server(("127.0.0.1", 0))
        self._serving = asyncio.ensure_future(asyncio.start_server(self._carry, sock=sock))
        return f"127.0.0.1:{sock.getsockname()[1]}"

    def break_all(self) -> None:
        self._cut = True
        for end in self._ends:
            end.transport.abort()

    async def close(self) -> None:
        self.break_all()
        if self._serving is not None:
            (await self._serving).close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio runs this in a task"
        self._tasks.add(task)
        self._ends.add(writer)
        try:
            server = await self._reach()
            self._ends.add(server[1])
            if self._cut:
                self.break_all()
            await relay((reader, writer), server)
            writer.close()
        except OSError:
            writer.transport.abort()  # there is no server: act as if it had hung up
        finally:
            self._tasks.discard(task)

    async def _reach(self) -> Ends:
        for address in self._target.addresses[:1]:
            if address.family is AF_UNIX:
                return await asyncio.open_unix_connection(address.sockaddr)
        return await asyncio.open_connection(self._target.host, self._target.port)
