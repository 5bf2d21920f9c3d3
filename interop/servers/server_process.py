"""A server as a process: started on a port, killed, drained, reloaded, frozen, and started again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from interop.runner.process import ProgramError, ProgramProcess
from interop.servers.server import Server

__all__ = ["Listening", "ServerError", "ServerProcess"]

_STARTUP = 60.0
"""How long a server may take until it listens, in seconds: a virtual machine that warms up on a busy computer."""
_DRAIN = 20.0
"""How long it may take to end gracefully."""
_TAKES_HOLD = 0.05
"""How long a stop takes to reach all threads and all processes of a group, at most, in seconds."""


class ServerError(ProgramError):
    """A server did not do what a server has to; says what, and what it wrote last."""


@dataclass(frozen=True, slots=True)
class Listening:
    """What a server says of itself when it listens.

    Attributes:
        port: where, on 127.0.0.1.
        versions: of what it uses.
    """

    port: int
    versions: Mapping[str, str]


class ServerProcess(ProgramProcess[Listening]):
    """One run of a server's program, from entering to leaving the context, which does not let it live on."""

    error = ServerError

    def __init__(self, server: Server, port: int, settings: Mapping[str, int], folder: str) -> None:
        """Have it listen there (0: anywhere), with these arguments, and its temporary files in `folder`."""
        told = {"port": port, **settings}
        arguments = [part for name, value in told.items() for part in (f"--{name}", str(value))]
        super().__init__(server.name, [*server.filled(server.command), *arguments], {"TMPDIR": folder})

    async def listening(self) -> Listening:
        """Wait until it listens.

        Raises:
            ServerError: it ended instead, or took too long.
        """
        await self._be_ready(_STARTUP)
        return self._said

    def _heard(self, said: Mapping[str, Any]) -> Listening | None:
        if said.get("event") != "listening":
            return None
        self._said = Listening(int(said["port"]), dict(said["versions"]))
        self._ready.set()
        return self._said

    async def kill(self) -> None:
        """End it without a goodbye; the kernel closes its sockets."""
        self._signal_all(signal.SIGKILL)
        await self._process.wait()

    async def drain(self) -> None:
        """Have it end gracefully.

        Raises:
            ServerError: it does not end.
        """
        self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_DRAIN):
                await self._process.wait()
        except TimeoutError:
            raise await self._fault(f"had not ended {_DRAIN:g} s after SIGTERM") from None

    def reload(self) -> None:
        """Have it read its configuration anew."""
        self._process.send_signal(signal.SIGHUP)

    async def freeze(self) -> None:
        """Stop it, so that the kernel accepts connections but nothing answers."""
        self._signal_all(signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)
        await asyncio.sleep(_TAKES_HOLD)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
