"""The demo's script: the sequence of things that happen to the servers while the traffic continues."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from grpc_backoff.testing.front import FlakyFront, healthy, settings_then_close, silent

from .orders import OrderBook, Server
from .traffic import CallRecord, Traffic

__all__ = ["INITIAL_BACKOFF", "OPTIONS", "Run", "Scene", "SceneRecord", "Script"]

INITIAL_BACKOFF = 0.2

OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", round(INITIAL_BACKOFF * 1000)),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),  # the two runs of the demo must not share connections
)
"""The channel options of both runs: gRPC's usual options, with short backoffs."""

_RECOVERY_LIMIT = 10.0
_CONNECTION_AGE = 3.0
"""The age in seconds, plus or minus a tenth, at which the old server sends GOAWAY. The scene before it is shorter."""
_GRACE = 2.0
_POLL = 0.02


class Scene(enum.Enum):
    """The scenes of the script in order; the values are their titles."""

    REFUSED = "the server is down: connections are refused"
    SILENT = "the server hangs: it accepts connections but sends nothing"
    HANGING_UP = "the server sends SETTINGS and hangs up"
    HEALTHY = "the server is up"
    KILLED = "the server is killed while it serves traffic"
    BACK = "the server is back"
    RESTART = "rolling restart: the old server sends GOAWAY"


_SECONDS = {
    Scene.REFUSED: 1.5,
    Scene.SILENT: 2.4,
    Scene.HANGING_UP: 2.6,
    Scene.HEALTHY: 1.0,
    Scene.KILLED: 1.5,
    Scene.BACK: 1.0,
    Scene.RESTART: 0.5,
}
"""How long each scene lasts, in seconds, after its action and any wait for a first answer."""

OUTAGES = frozenset({Scene.REFUSED, Scene.SILENT, Scene.HANGING_UP, Scene.KILLED})
RECOVERIES = frozenset({Scene.HEALTHY, Scene.BACK})


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneRecord:
    """The results of a scene.

    Attributes:
        scene: the scene.
        began: when it began, on the event loop's clock.
        ended: when it ended.
        connections: how many connections the front accepted.
        recovered_in: seconds to the first answer, if the scene waits for one; None if there was none.
    """

    scene: Scene
    began: float
    ended: float
    connections: int
    recovered_in: float | None

    @property
    def seconds(self) -> float:
        """How long the scene lasted, in seconds."""
        return self.ended - self.began


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The results of running the script with one kind of channel."""

    made: int
    records: Sequence[CallRecord]
    twice: int
    connections: int
    scenes: Sequence[SceneRecord]


class Script:
    """Runs all scenes once on one channel."""

    def __init__(
        self,
        make_channel: Callable[[str], AbstractAsyncContextManager[Any]],
        place: Callable[[Any], Callable[..., Awaitable[str]]],
        *,
        begins: Callable[[Scene], object] = lambda _phase: None,
        ended: Callable[[SceneRecord], object] = lambda _record: None,
    ) -> None:
        """Prepare to run the scenes on the channel that `make_channel(target)` returns.

        Orders are placed with `place(channel)`. `begins` is called with each scene before it starts, and `ended` with
        the record of each scene that has ended.
        """
        self._make_channel = make_channel
        self._place = place
        self._begins = begins
        self._ended = ended
        self._book = OrderBook()
        self._records: list[SceneRecord] = []
        self._servers = contextlib.AsyncExitStack()
        self._old: Server | None = None
        self.front = FlakyFront()
        self.traffic: Traffic | None = None
        self.channel: Any = None

    async def play(self) -> Run:
        """Run all scenes; return once every call has ended and everything is closed."""
        async with self._servers, self.front:
            server = await self._serve()
            self.front.upstream = server.address
            async with self._make_channel(self.front.target) as self.channel:
                self.traffic = traffic = Traffic(self._place(self.channel))
                async with asyncio.TaskGroup() as group:
                    group.create_task(traffic.run())
                    try:
                        await self._play_phases(traffic)
                    finally:
                        traffic.stop()
            return Run(
                made=traffic.made,
                records=traffic.records,
                twice=self._book.twice(),
                connections=len(self.front.visits),
                scenes=self._records,
            )

    async def _play_phases(self, traffic: Traffic) -> None:
        acts = {
            Scene.REFUSED: self.front.refuse,
            Scene.SILENT: self._be_silent,
            Scene.HANGING_UP: self._hang_up,
            Scene.HEALTHY: self._be_healthy,
            Scene.KILLED: self._kill,
            Scene.BACK: self._come_back,
            Scene.RESTART: self._restart,
        }
        now = asyncio.get_running_loop().time
        for scene in Scene:
            self._begins(scene)
            traffic.outage = scene in OUTAGES
            began, visits = now(), len(self.front.visits)
            await acts[scene]()
            recovered_in = await traffic.until_answered(_RECOVERY_LIMIT) if scene not in OUTAGES else None
            await asyncio.sleep(_SECONDS[scene])
            record = SceneRecord(
                scene=scene,
                began=began,
                ended=now(),
                connections=len(self.front.visits) - visits,
                recovered_in=recovered_in,
            )
            self._records.append(record)
            self._ended(record)

    async def _serve(self, max_connection_age: float | None = None) -> Server:
        return await self._servers.enter_async_context(Server.running(self._book, max_connection_age))

    async def _be_silent(self) -> None:
        self.front.behaviour = silent
        await self.front.listen()

    async def _hang_up(self) -> None:
        self.front.behaviour = settings_then_close()
        await self.front.break_all()  # end the connections of the previous scene

    async def _be_healthy(self) -> None:
        self.front.behaviour = healthy

    async def _kill(self) -> None:
        await self.front.refuse()
        await self.front.break_all()

    async def _come_back(self) -> None:
        self._old = await self._serve(_CONNECTION_AGE)
        self.front.upstream = self._old.address
        await self.front.listen()

    async def _restart(self) -> None:
        """Wait until the old server's connections have aged and drained, then stop that server.

        The connections must drain first: grpcio's server cancels any call that reaches it after `stop` but before the
        client has seen the GOAWAY, and the client cannot prevent that.
        """
        old = list(self.front.visits)
        new = await self._serve()
        self.front.upstream = new.address
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RECOVERY_LIMIT):
                while any(visit.ended is None for visit in old):  # noqa: ASYNC110 - a visit has no event to wait for
                    await asyncio.sleep(_POLL)
        if self._old is not None:
            await self._old.stop(_GRACE)
