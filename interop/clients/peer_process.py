"""A peer as a process: its command line and the start signal are the input, its two lines are the output."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop.clients.peer import Peer, Setting
from interop.conformance import Announced, Calls
from interop.runner.process import ProgramError, ProgramProcess

__all__ = ["Account", "PeerError", "PeerProcess"]

_STARTUP = 60.0
"""How long a peer may take to start, in seconds: a virtual machine that warms up on a busy computer."""
_WINDING_DOWN = 30.0
"""How long a peer may take to exit once the time for calls is up, in seconds."""
_WORKERS = 4
_PAUSE_MS = 20


class PeerError(ProgramError):
    """A peer violated its contract; says how, and what it printed last."""


@dataclass(frozen=True, slots=True)
class Account:
    """What a peer reports at its end.

    Attributes:
        calls: the outcomes of its calls.
        versions: the versions of what it used.
        announced: what it reported about its dials, in seconds since its start signal; None if it was not asked.
    """

    calls: Calls
    versions: Mapping[str, str]
    announced: Announced | None = None


class PeerProcess(ProgramProcess[Account]):
    """One run of a peer's program, from entering to leaving the context; it never outlives the context."""

    error = PeerError

    def __init__(
        self, peer: Peer, target: str, seconds: float, settings: Mapping[Setting, int], ca: Path | None
    ) -> None:
        """Make it call `target` for this long; `settings` are in milliseconds, and with `ca` it uses TLS."""
        self._seconds = seconds
        self._holds = settings.get(Setting.HOLD, 0) / 1000
        told = {"target": target, "seconds": f"{seconds:g}", "workers": _WORKERS, "pause-ms": _PAUSE_MS}
        told |= {f"{setting.value}-ms": value for setting, value in settings.items()}
        if ca is not None:
            told["ca"] = str(ca)
        arguments = [part for name, value in told.items() for part in (f"--{name}", str(value))]
        super().__init__(peer.name, [*peer.filled(peer.command), *arguments])

    async def ready(self) -> None:
        """Wait until it is ready to start.

        Raises:
            PeerError: it exited instead, or took too long.
        """
        await self._be_ready(_STARTUP)

    def begin(self) -> None:
        """Let it make its first call."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")

    async def account(self) -> Account:
        """Return its report on its calls, once it has exited.

        Raises:
            PeerError: it exited without a report, or did not exit.
        """
        await asyncio.wait({self._reading}, timeout=self._seconds + self._holds + _WINDING_DOWN)
        if not self._reading.done():
            raise await self._fault(f"went on for {_WINDING_DOWN:g} s after its time")
        if self._reading.exception() is not None:
            raise await self._fault("said what is no account of its calls")
        account = self._reading.result()
        if account is None:
            raise await self._fault("gave no account of its calls")
        return account

    async def _end(self) -> None:
        await self._stop(_WINDING_DOWN if self._reading.done() else 0.0)

    def _heard(self, said: Mapping[str, Any]) -> Account | None:
        if said.get("event") == "ready":
            self._ready.set()
        return _account(said) if said.get("event") == "done" else None


def _account(said: Mapping[str, Any]) -> Account:
    calls = Calls(made=said["made"], ok=said["ok"], failed=said["failed"], unfinished=said["unfinished"])
    announced = said.get("announced")
    return Account(calls, said["versions"], None if announced is None else _announced(announced))


def _announced(said: Mapping[str, Any]) -> Announced:
    return Announced(attempts=tuple(said["attempts"]), redials=tuple(said["redials"]), closed=said["closed"])
