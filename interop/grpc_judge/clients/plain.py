"""Runs any program as a client: it gets a target and a time, makes calls, and need not report anything.

The judge sees everything on the server's side. Clauses about what only a client can report do not apply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from grpc_judge.clients.peer import Peer, Setting
from grpc_judge.clients.peer_process import WORKERS, Account
from grpc_judge.conformance import Calls
from grpc_judge.runner.process import ProgramProcess

_PLACES: Final = {setting: f"{{{setting.value.replace('-', '_')}_ms}}" for setting in Setting}
"""The place in a command line for the value of each setting, in milliseconds."""

_STARTUP = 60.0
"""How long a program may take to connect, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainPeer(Peer):
    """A program that knows nothing of the judge.

    Attributes:
        told: the arguments with which it uses another backoff; empty if it cannot.
        secured: the arguments with which it uses TLS; empty if it cannot.
    """

    told: tuple[str, ...] = ()
    secured: tuple[str, ...] = ()

    def filled_for(
        self, target: str, seconds: float, settings: Mapping[Setting, int], ca: Path | None
    ) -> Sequence[str]:
        """Return the command line with these values in their places."""
        parts = [*self.command, *(self.told if settings else ()), *(self.secured if ca is not None else ())]
        values = {"{target}": target, "{seconds}": f"{seconds:g}", "{workers}": str(WORKERS), "{ca}": str(ca)}
        values |= {_PLACES[setting]: str(value) for setting, value in settings.items()}
        for place, value in values.items():
            parts = [part.replace(place, value) for part in parts]
        return parts


def plain_peer(
    name: str, command: Sequence[str], *, told: Sequence[str] = (), secured: Sequence[str] = ()
) -> PlainPeer:
    """Return the peer that this command line starts, in the current directory.

    Raises:
        ValueError: a value that the program needs has no place in the arguments.
    """
    given = {"COMMAND": (command, "{target}"), "--tls-args": (secured, "{ca}")}
    for option, (parts, place) in given.items():
        if parts and not any(place in part for part in parts):
            raise ValueError(f"{option}={' '.join(parts)}: expected {place} in it")
    settings = {setting for setting, place in _PLACES.items() if any(place in part for part in told)}
    if told and not settings >= {Setting.INITIAL, Setting.MAX}:
        raise ValueError(f"--backoff-args={' '.join(told)}: expected {{initial_ms}} and {{max_ms}} in it")
    return PlainPeer(
        name=name,
        folder=Path.cwd(),
        command=tuple(command),
        configurable=frozenset(settings),
        told=tuple(told),
        secured=tuple(secured),
        tls=bool(secured),
    )


class PlainProcess(ProgramProcess):
    """One run of such a program. It starts at `begin` and is ended when it has been observed long enough."""

    def __init__(
        self,
        peer: PlainPeer,
        target: str,
        seconds: float,
        settings: Mapping[Setting, int],
        ca: Path | None,
        connected: Callable[[], Awaitable[None]],
    ) -> None:
        """Prepare to observe the program for `seconds` after `connected` has returned."""
        command = peer.filled_for(target, seconds + _STARTUP, settings, ca)
        super().__init__(peer.name, command, folder=peer.folder)
        self._seconds = seconds
        self._connected = connected

    async def __aenter__(self) -> Self:
        """Start nothing yet: the program makes calls as soon as it runs."""
        return self

    async def ready(self) -> None:
        """Return at once, because the program reports nothing."""

    async def begin(self) -> None:
        """Start the program.

        Raises:
            ProgramError: it cannot be run.
        """
        await self._start()

    async def account(self) -> Account:
        """Observe the program for its time; the report is empty.

        Raises:
            ProgramError: the program did not connect, or ended too soon.
        """
        connected = asyncio.ensure_future(self._connected())
        try:
            await asyncio.wait({connected, self._reading}, timeout=_STARTUP, return_when=asyncio.FIRST_COMPLETED)
            if not connected.done():
                raise await self._fault(f"did not connect within {_STARTUP:g} s")
        finally:
            connected.cancel()
        await asyncio.wait({self._reading}, timeout=self._seconds)
        if self._reading.done():
            raise await self._fault("ended too soon")
        return Account(Calls(), {})
