"""Runs a peer as a process: passes it arguments and the start signal and reads its two lines of output."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from grpc_judge.clients.peer import Peer, Setting
from grpc_judge.conformance import Calls
from grpc_judge.runner.process import ProgramProcess

WORKERS = 4
"""How many calls a client is asked to make concurrently."""

_STARTUP = 60.0
"""How long a peer may take to start, in seconds. A virtual machine starts slowly on a busy computer."""
_WINDING_DOWN = 30.0
"""How long a peer may take to exit after the time for calls, in seconds."""
_ASKED = 5.0
"""How long a peer that is told to stop may take to give its account, in seconds. Running calls have one of them."""
_PAUSE_MS = 20


@dataclass(frozen=True, slots=True)
class Account:
    """What a peer reports before it exits.

    Attributes:
        calls: the outcomes of its calls.
        versions: the versions of the software that it used.
    """

    calls: Calls
    versions: Mapping[str, str]


class PeerProcess(ProgramProcess):
    """One run of a peer's program. It starts when the context is entered and has ended when the context is left."""

    def __init__(
        self, peer: Peer, target: str, seconds: float, settings: Mapping[Setting, int], ca: Path | None
    ) -> None:
        """Prepare to call `target` for `seconds`. The values of `settings` are in milliseconds; `ca` enables TLS."""
        self._seconds = seconds
        told = {"target": target, "seconds": f"{seconds:g}", "workers": WORKERS, "pause-ms": _PAUSE_MS}
        told |= {f"{setting.value}-ms": value for setting, value in settings.items()}
        if ca is not None:
            told["ca"] = str(ca)
        arguments = [part for name, value in told.items() for part in (f"--{name}", str(value))]
        super().__init__(peer.name, [*peer.filled(peer.command), *arguments])
        self._ready = asyncio.Event()
        self._account: Account | None = None

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """End the program if it is still running. One that has given its account may end by itself."""
        await self._stop(_WINDING_DOWN if self._reading.done() else 0.0)
        await super().__aexit__(exc_type, exc_val, exc_tb)

    async def ready(self) -> None:
        """Wait until the peer is ready to start.

        Raises:
            ProgramError: the peer exited or took too long.
        """
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait({ready, self._reading}, timeout=_STARTUP, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if not self._ready.is_set():
            raise await self._fault(f"was not ready within {_STARTUP:g} s")

    async def begin(self) -> None:
        """Send the start signal, after which the peer makes its first call."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")

    async def account(self) -> Account:
        """Wait until the peer has exited and return its report.

        Raises:
            ProgramError: the peer exited without a report, or did not exit.
        """
        await asyncio.wait({self._reading}, timeout=self._seconds + _WINDING_DOWN)
        if not self._reading.done():
            raise await self._fault(f"went on for {_WINDING_DOWN:g} s after its time")
        if self._reading.exception() is not None:
            raise await self._fault("said what is no account of its calls")
        if self._account is None:
            raise await self._fault("gave no account of its calls")
        return self._account

    async def stop(self) -> Account | None:
        """Tell the peer to stop making calls, and return its report; None if it gives none soon, as not all can."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"stop\n")
        await asyncio.wait({self._reading}, timeout=_ASKED)
        return self._account

    async def _read(self, output: asyncio.StreamReader) -> None:
        async for line in output:
            said = _parse(line)
            if said.get("event") == "ready":
                self._ready.set()
            elif said.get("event") == "done":
                calls = Calls(made=said["made"], ok=said["ok"], failed=said["failed"], unfinished=said["unfinished"])
                self._account = Account(calls, said["versions"])


def _parse(line: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        return {}  # other output, such as a runtime's greeting
    return said if isinstance(said, dict) else {}
