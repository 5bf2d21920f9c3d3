"""Runs a server as a process, which can be killed, drained, reloaded and frozen."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpc_judge.runner.process import ProgramError, ProgramProcess
from grpc_judge.servers.server import Server

_STARTUP = 60.0
"""How long a server may take until it listens, in seconds. A JVM starts slowly on a busy machine."""
_DRAIN = 20.0
"""How long a server may take to end gracefully, in seconds."""
_TAKES_HOLD = 0.05
"""The longest time that SIGSTOP takes to reach all threads and processes of a group, in seconds."""


class ServerError(ProgramError):
    """A server violated its contract. The message says how and includes the server's last output."""


@dataclass(frozen=True, slots=True)
class Listening:
    """What a server reports when it starts to listen.

    Attributes:
        port: the port, on 127.0.0.1.
        versions: the versions of the software that it uses.
    """

    port: int
    versions: Mapping[str, str]


class ServerProcess(ProgramProcess[Listening]):
    """One run of a server's program, which has ended when the context is left."""

    error = ServerError

    def __init__(self, server: Server, port: int, settings: Mapping[str, int], folder: str) -> None:
        """Prepare to run on `port` (0 for any free port) with these settings, and with temporary files in `folder`."""
        told = {"port": port, **settings}
        arguments = [part for name, value in told.items() for part in (f"--{name}", str(value))]
        super().__init__(server.name, [*server.filled(server.command), *arguments], {"TMPDIR": folder})

    async def listening(self) -> Listening:
        """Wait until the server listens.

        Raises:
            ServerError: the server ended or took too long.
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
        """Kill the server with SIGKILL. The kernel closes its sockets."""
        self._signal_all(signal.SIGKILL)
        await self._process.wait()

    async def drain(self) -> None:
        """End the server gracefully with SIGTERM.

        Raises:
            ServerError: the server did not end within the limit.
        """
        self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_DRAIN):
                await self._process.wait()
        except TimeoutError:
            raise await self._fault(f"had not ended {_DRAIN:g} s after SIGTERM") from None

    def reload(self) -> None:
        """Make the server reload its configuration with SIGHUP."""
        self._process.send_signal(signal.SIGHUP)

    async def freeze(self) -> None:
        """Suspend the server's processes. The kernel still accepts connections, but nothing answers."""
        self._signal_all(signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)
        await asyncio.sleep(_TAKES_HOLD)

    def thaw(self) -> None:
        """Resume the server's processes."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
