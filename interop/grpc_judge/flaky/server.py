"""The flaky server: a port, a script and a record of every connection."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import time
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self

from grpc_backoff.testing.port import Port, reset
from grpc_judge.flaky.behaviour import Behaviour, Handshake
from grpc_judge.flaky.behaviours import Refuse
from grpc_judge.flaky.player import Player
from grpc_judge.flaky.record import Record
from grpc_judge.flaky.script import Script, steps_of
from grpc_judge.flaky.tls import Tls
from grpc_judge.flaky.visitor import Visitor
from grpc_judge.timeline import Timeline, Window


class FlakyServer:
    """A server that fails according to its script and records what it sees.

    It belongs to the event loop on which its context was entered. A connection keeps its behaviour until the connection
    ends; a new script applies only to later connections.
    """

    def __init__(
        self,
        script: Script,
        tls: Tls | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        client: str = "",
        epoch: float | None = None,
    ) -> None:
        """Create a server, which starts when its context is entered.

        Args:
            script: what to do with each connection.
            tls: the certificate and key to serve TLS with; None for plaintext.
            host: the IP address to listen on.
            port: the port to listen on; 0 for any free port.
            client: a label for every visit in the timeline, to distinguish the visits of several servers.
            epoch: the zero of the timeline on `time.monotonic`, so that several servers can share it; None for the time
                at which the server starts.

        Raises:
            ValueError: the script is not valid.
            ssl.SSLError: the certificate or the key is not valid.
        """
        self._steps = steps_of(script)
        self._contexts: dict[Handshake, ssl.SSLContext] = {}
        if tls is not None:
            self._contexts = {Handshake.H2: tls.context("h2"), Handshake.HTTP1: tls.context()}
        self._host, self._number = host, port
        self._client = client
        self._asked_epoch = epoch
        self._visitors: set[Visitor] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._changed = asyncio.Event()

    @property
    def target(self) -> str:
        """The address and port, in the form of a gRPC target."""
        return self._port.target

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        return self._port.number

    async def __aenter__(self) -> Self:
        """Listen on the port and start the script.

        Raises:
            ValueError: the host is not an IP address.
            OSError: the port is in use.
        """
        self._loop = asyncio.get_running_loop()
        self._port = Port(self._host, self._number, self._accepted)
        self._begin(time.monotonic() if self._asked_epoch is None else self._asked_epoch)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """Close the port and every open connection, as happens when a process ends."""
        self._stop_clock()
        self._port.close()
        self._drop_all()
        await self._all_gone()

    def timeline(self) -> Timeline:
        """Return everything seen so far."""
        visits = tuple(record.visit() for record in self._records)
        return Timeline(visits=visits, refusing=tuple(self._refusing), taken=self._clock())

    def play(self, script: Script) -> None:
        """Switch to another script, which starts now.

        Raises:
            ValueError: the script is not valid.
        """
        self._steps = steps_of(script)
        self._player = Player(self._steps, time.monotonic())
        self._place = -1
        self._follow(time.monotonic())

    def break_all(self) -> None:
        """Reset every open connection."""
        for visitor in self._visitors:
            visitor.wire.reset()

    async def restart(self) -> None:
        """Start over: reset all open connections, clear the timeline, reset its clock, and restart the script."""
        self._stop_clock()
        self._port.refuse()
        self.break_all()
        await self._all_gone()
        self._begin(time.monotonic())

    async def wait_for(self, connections: int = 0, ended: int = 0) -> None:
        """Wait until at least this many connections have been accepted and this many have ended.

        There is no time limit. Wrap it in `asyncio.timeout` if you need one.
        """
        while len(self._records) < connections or len(self._records) - len(self._visitors) < ended:
            await self._changed.wait()

    def _begin(self, epoch: float) -> None:
        self._epoch = epoch
        self._records: list[Record] = []
        self._refusing: list[Window] = []
        self.play(self._steps)

    def _clock(self) -> float:
        return time.monotonic() - self._epoch

    def _follow(self, now: float) -> None:
        """Apply the current step and schedule the next call of this method for the end of that step."""
        step = self._player.step(now)
        if self._place != self._player.place:
            self._place = self._player.place
            self._enter(step.behaviour)
        self._stop_clock()
        if math.isfinite(self._player.ends):
            self._timer = self._loop.call_later(self._player.ends - now, lambda: self._follow(time.monotonic()))

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _enter(self, behaviour: Behaviour | Refuse) -> None:
        refusing = bool(self._refusing) and self._refusing[-1].end is None
        if isinstance(behaviour, Refuse):
            self._port.refuse()
            if not refusing:
                self._refusing.append(Window(begin=self._clock(), end=None))
            if behaviour.kill:
                self._drop_all()
            return
        if refusing:
            self._refusing[-1] = replace(self._refusing[-1], end=self._clock())
        self._port.listen()

    def _accepted(self, sock: socket.socket) -> None:
        now = time.monotonic()
        self._follow(now)  # if the loop is late, the step may have timed out before its timer ran
        if not self._port.listening:
            reset(sock)
            return
        behaviour = self._player.take(now)
        record = Record(len(self._records) + 1, self._client, behaviour.name, self._clock)
        visitor = Visitor(sock, behaviour, record, self._contexts.get(behaviour.handshake))
        visitor.task.add_done_callback(partial(self._gone, visitor))
        self._records.append(record)
        self._visitors.add(visitor)
        self._tell()
        self._follow(now)

    def _gone(self, visitor: Visitor, task: asyncio.Task[None]) -> None:
        self._visitors.discard(visitor)
        self._tell()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "a behaviour failed", "exception": error, "task": task})

    def _tell(self) -> None:
        """Wake everything that waits for a connection to be accepted or to end."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _drop_all(self) -> None:
        for visitor in self._visitors:
            visitor.wire.drop()

    async def _all_gone(self) -> None:
        if self._visitors:
            await asyncio.wait({visitor.task for visitor in self._visitors})
