"""Runs a server as a process, which can be killed, drained, reloaded and frozen."""

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
"""How long a server may take until it listens, in seconds: a JVM takes long to start on a busy machine."""
_DRAIN = 20.0
"""How long it may take to end gracefully, in seconds."""
_TAKES_HOLD = 0.05
"""How long SIGSTOP takes at most to reach all threads and processes of a group, in seconds."""


class ServerError(ProgramError):
    """A server did not do what its contract requires; the message says what is wrong, with its last output."""


@dataclass(frozen=True, slots=True)
class Listening:
    """What a server reports when it listens.

    Attributes:
        port: the port, on 127.0.0.1.
        versions: the versions of the software it uses.
    """

    port: int
    versions: Mapping[str, str]


class ServerProcess(ProgramProcess[Listening]):
    """One run of a server's program; leaving the context ends it."""

    error = ServerError

    def __init__(self, server: Server, port: int, settings: Mapping[str, int], folder: str) -> None:
        """Run on `port` (0 for any free one) with these arguments, and with temporary files in `folder`."""
        told = {"port": port, **settings}
        arguments = [part for name, value in told.items() for part in (f"--{name}", str(value))]
        super().__init__(server.name, [*server.filled(server.command), *arguments], {"TMPDIR": folder})

    async def listening(self) -> Listening:
        """Wait until the server listens.

        Raises:
            ServerError: it ended before that, or took too long.
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
        """Kill the server; the kernel closes its sockets."""
        self._signal_all(signal.SIGKILL)
        await self._process.wait()

    async def drain(self) -> None:
        """End the server gracefully, with SIGTERM.

        Raises:
            ServerError: it does not end in time.
        """
        self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_DRAIN):
                await self._process.wait()
        except TimeoutError:
            raise await self._fault(f"had not ended {_DRAIN:g} s after SIGTERM") from None

    def reload(self) -> None:
        """Make the server reload its configuration, with SIGHUP."""
        self._process.send_signal(signal.SIGHUP)

    async def freeze(self) -> None:
        """Stop the server's processes: the kernel still accepts connections, but nothing answers."""
        self._signal_all(signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)
        await asyncio.sleep(_TAKES_HOLD)

    def thaw(self) -> None:
        """Resume the server's processes."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
