"""Runs one case: starts a server, calls it over our channel, disrupts it, and returns what was observed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

from grpc_backoff import ConnectionEvent, aio
from grpc_judge.conformance import Terms
from grpc_judge.matrix.scenarios import COMPRESSED
from grpc_judge.servers.happenings import COURSES, RELOADS, Happening
from grpc_judge.servers.observation import Observation
from grpc_judge.servers.server import Server
from grpc_judge.servers.server_process import ServerProcess
from grpc_judge.servers.traffic import Traffic

TERMS = COMPRESSED
_BEFORE = 1.0
"""How long calls are made before the server is disrupted, in seconds."""
_AFTER = 1.0
"""How long calls continue after they are answered again, in seconds."""
_RECOVERY = 3.0
"""How long to wait for an answer beyond the longest backoff, in seconds."""


async def perform(server: Server, upstream: Server | None, happening: Happening, folder: str) -> Observation:
    """Run a case and return what was observed.

    Args:
        server: the server.
        upstream: the server behind it; None if it is not a proxy.
        happening: what happens to it.
        folder: where the servers put their temporary files.

    Raises:
        ServerError: a server violated its contract.
    """
    async with AsyncExitStack() as stack:
        return await _Stage(server, upstream, happening, folder, stack).play()


class _Stage:
    """A case's running servers."""

    def __init__(
        self, server: Server, upstream: Server | None, happening: Happening, folder: str, stack: AsyncExitStack
    ) -> None:
        self._server, self._upstream, self._happening = server, upstream, happening
        self._folder, self._stack = folder, stack
        self._staging = COURSES[happening]
        self._clock = asyncio.get_running_loop().time
        self._settings = dict(self._staging.settings)
        self._versions: dict[str, str] = {}

    async def _set(self) -> None:
        if self._upstream is not None:
            self._behind, self._behind_port = await self._start(self._upstream, 0, {})
            self._settings["upstream"] = self._behind_port
        self._front, self._port = await self._start(self._server, 0, self._settings)

    async def _start(self, server: Server, port: int, settings: Mapping[str, int]) -> tuple[ServerProcess, int]:
        process = await self._stack.enter_async_context(ServerProcess(server, port, settings, self._folder))
        listening = await process.listening()
        self._versions = {**listening.versions, **self._versions}
        return process, listening.port

    async def play(self) -> Observation:
        """Start the servers, make calls, disrupt the server meanwhile, and return what was observed."""
        await self._set()
        staging, events = self._staging, list[ConnectionEvent]()
        options = [*_options(TERMS), *staging.options]
        began = self._clock()
        async with aio.insecure_channel(f"127.0.0.1:{self._port}", options, listeners=[events.append]) as channel:
            async with Traffic(channel, self._server.method, staging.deadline, everybody=staging.everybody) as traffic:
                await traffic.answered_since(began, TERMS.cap + _RECOVERY)
                await asyncio.sleep(_BEFORE)
                struck = self._clock()
                gone, back = await self._happen()
                await traffic.answered_since(back, TERMS.cap + _RECOVERY)
                await asyncio.sleep(_AFTER)
                await traffic.answered_since(self._clock(), TERMS.cap + _RECOVERY)
                state = channel.get_state()  # read now, since an aging connection may end soon
            return Observation(
                server=self._server,
                happening=self._happening,
                terms=TERMS,
                calls=tuple(traffic.calls),
                events=tuple(events),
                began=began,
                struck=struck,
                gone=gone,
                back=back,
                over=self._clock(),
                state=state,
                versions=self._versions,
            )

    async def _happen(self) -> tuple[float, float]:
        """Disrupt the server as the case says; return the times at which it went away and came back."""
        match self._happening:
            case Happening.KILLED:
                await self._front.kill()
                return await self._away(self._restart_front)
            case Happening.DRAINED:
                await self._front.drain()
                return await self._away(self._restart_front)
            case Happening.UPSTREAM_DOWN:
                await self._behind.kill()
                return await self._away(self._restart_behind)
            case Happening.FROZEN | Happening.PINGED:
                await self._front.freeze()
                return await self._away(self._thaw)
            case Happening.RELOADED:
                for _ in range(RELOADS):
                    self._front.reload()
                    await asyncio.sleep(self._staging.lasts)
            case Happening.AGED:
                await asyncio.sleep(self._staging.lasts)
        return self._clock(), self._clock()

    async def _away(self, bring_back: Callable[[], Awaitable[None]]) -> tuple[float, float]:
        gone = self._clock()
        await asyncio.sleep(self._staging.lasts)
        await bring_back()
        return gone, self._clock()

    async def _restart_front(self) -> None:
        self._front, _ = await self._start(self._server, self._port, self._settings)

    async def _restart_behind(self) -> None:
        assert self._upstream is not None
        self._behind, _ = await self._start(self._upstream, self._behind_port, {})

    async def _thaw(self) -> None:
        self._front.thaw()


def _options(terms: Terms) -> list[tuple[str, int]]:
    told = {"initial": terms.initial, "max": terms.cap, "min": terms.min_connect_timeout}
    return [(f"grpc.{name}_reconnect_backoff_ms", round(1000 * seconds)) for name, seconds in told.items()]
