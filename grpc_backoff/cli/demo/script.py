"""The demo's script: what happens to the servers, in which order, while the traffic goes on."""

from __future__ import annotations

import asyncio
import contextlib
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from grpc_backoff.cli.demo.orders import OrderBook, Server, place
from grpc_backoff.cli.demo.traffic import CallRecord, Traffic
from grpc_backoff.testing.front import FlakyFront, healthy, settings_then_close, silent

__all__ = ["INITIAL_BACKOFF", "OPTIONS", "Phase", "PhaseRecord", "Run", "Script"]

INITIAL_BACKOFF = 0.2

OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", round(INITIAL_BACKOFF * 1000)),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),  # the two runs of the demo share nothing
)
"""The channel options of both runs: gRPC's rules with small numbers."""

_RECOVERY_LIMIT = 10.0
_CONNECTION_AGE = 3.0
"""When the server that is to be replaced sends GOAWAY, give or take a tenth; the phase before is shorter."""
_GRACE = 2.0
_POLL = 0.02


class Phase(enum.Enum):
    """The parts of the script, in their order, by what they are called."""

    REFUSED = "the server is down: connections are refused"
    SILENT = "the server hangs: connections are accepted, and then nothing"
    HANGING_UP = "a proxy without its server: SETTINGS, then it hangs up"
    HEALTHY = "the server is up"
    KILLED = "the server is killed in mid-traffic"
    BACK = "the server is back"
    RESTART = "rolling restart: a new server takes over, the old one says GOAWAY"


_SECONDS = {
    Phase.REFUSED: 1.5,
    Phase.SILENT: 2.4,
    Phase.HANGING_UP: 2.6,
    Phase.HEALTHY: 1.0,
    Phase.KILLED: 1.5,
    Phase.BACK: 1.0,
    Phase.RESTART: 0.5,
}
"""How long each lasts; a phase that begins with waiting for something lasts so much longer."""

OUTAGES = frozenset({Phase.REFUSED, Phase.SILENT, Phase.HANGING_UP, Phase.KILLED})
RECOVERIES = frozenset({Phase.HEALTHY, Phase.BACK})


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRecord:
    """What a phase came to.

    Attributes:
        phase: which.
        began: when, on the event loop's clock.
        ended: when.
        connections: how many connections the front accepted.
        recovered_in: seconds to the first answer, where the phase waits for one; None if there was none.
    """

    phase: Phase
    began: float
    ended: float
    connections: int
    recovered_in: float | None

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.ended - self.began


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the script came to with one kind of channel."""

    made: int
    records: Sequence[CallRecord]
    twice: int
    connections: int
    phases: Sequence[PhaseRecord]


class Script:
    """Plays all phases once, against one channel."""

    def __init__(
        self,
        make_channel: Callable[[str], grpc.aio.Channel],
        *,
        begins: Callable[[Phase], object] = lambda _phase: None,
        ended: Callable[[PhaseRecord], object] = lambda _record: None,
    ) -> None:
        """Play with the channel that `make_channel(target)` returns; `begins` and `ended` hear of each phase."""
        self._make_channel = make_channel
        self._begins = begins
        self._ended = ended
        self._book = OrderBook()
        self._records: list[PhaseRecord] = []
        self._servers = contextlib.AsyncExitStack()
        self._old: Server | None = None
        self.front = FlakyFront()
        self.traffic: Traffic | None = None
        self.channel: Any = None

    async def play(self) -> Run:
        """Play it; return once every call has ended and everything is closed."""
        async with self._servers, self.front:
            server = await self._serve()
            self.front.upstream = server.address
            async with self._make_channel(self.front.target) as self.channel:
                self.traffic = traffic = Traffic(place(self.channel))
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
                phases=self._records,
            )

    async def _play_phases(self, traffic: Traffic) -> None:
        acts = {
            Phase.REFUSED: self.front.refuse,
            Phase.SILENT: self._be_silent,
            Phase.HANGING_UP: self._hang_up,
            Phase.HEALTHY: self._be_healthy,
            Phase.KILLED: self._kill,
            Phase.BACK: self._come_back,
            Phase.RESTART: self._restart,
        }
        now = asyncio.get_running_loop().time
        for phase in Phase:
            self._begins(phase)
            traffic.outage = phase in OUTAGES
            began, visits = now(), len(self.front.visits)
            await acts[phase]()
            recovered_in = await traffic.until_answered(_RECOVERY_LIMIT) if phase not in OUTAGES else None
            await asyncio.sleep(_SECONDS[phase])
            record = PhaseRecord(
                phase=phase,
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
        await self.front.break_all()  # what hangs is gone, so that the whole phase is about the new behaviour

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
        """Let the old server's connections grow old and be drained, then stop it.

        Drained first: a call that reaches grpcio's server between `stop` and the client's hearing of its GOAWAY is
        cancelled there, whatever the client does.
        """
        old = list(self.front.visits)
        new = await self._serve()
        self.front.upstream = new.address
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_RECOVERY_LIMIT):
                while any(visit.ended is None for visit in old):  # noqa: ASYNC110 - a visit has no event
                    await asyncio.sleep(_POLL)
        if self._old is not None:
            await self._old.stop(_GRACE)
