"""Runs a program as a process while a context is open, and keeps its stderr."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from grpc_judge.runner.program import ROOT

_CHUNK = 1 << 16
_LAST_WORDS = 400
_LOOK = 0.02
"""How often to check whether a process has ended, in seconds."""


class ProgramError(Exception):
    """A program violated its contract. The message says how and includes the program's last output."""


class ProgramProcess:
    """One run of a program. It starts when the context is entered and has ended when the context is left.

    What it prints is discarded, unless a subclass reads it.
    """

    def __init__(self, name: str, command: Sequence[str], folder: Path = ROOT) -> None:
        """Prepare to run this command line in `folder`."""
        self._name = name
        self._command = list(command)
        self._folder = folder
        self._started = False

    async def __aenter__(self) -> Self:
        """Start the program.

        Raises:
            ProgramError: the program cannot be run.
        """
        await self._start()
        return self

    async def _start(self) -> None:
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                cwd=self._folder,
                env=_environment(),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # it may start other processes, which must be ended too
            )
        except OSError as error:
            raise ProgramError(f"{self._name} cannot be run: {error}") from error
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._complaints = asyncio.create_task(self._process.stderr.read())
        self._ended = asyncio.create_task(self._end_what_is_left())
        self._reading = asyncio.create_task(self._read(self._process.stdout))
        self._started = True

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """End the program if it is still running."""
        if not self._started:
            return
        await self._stop(0.0)
        await asyncio.gather(self._reading, self._complaints, return_exceptions=True)

    async def _read(self, output: asyncio.StreamReader) -> None:
        """Read what the program prints until it ends."""
        while await output.read(_CHUNK):
            pass

    async def _stop(self, patience: float) -> None:
        """Kill the process and everything it started, unless it ends by itself within `patience` seconds."""
        await asyncio.wait({self._ended}, timeout=patience)
        if not self._ended.done():
            self._kill()
        await self._ended

    async def _end_what_is_left(self) -> None:
        """Wait for the process to end, then kill everything it started, which would otherwise keep our pipes open."""
        while self._process.returncode is None:  # noqa: ASYNC110 - Python 3.11's `wait` also waits for pipes
            await asyncio.sleep(_LOOK)
        self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    async def _fault(self, what: str) -> ProgramError:
        """Return an error that says `what`, or the program's exit status if it ended, and its last stderr output."""
        silent = self._reading.done() and self._reading.exception() is None
        await self._stop(1.0 if silent else 0.0)
        words = (await self._complaints).decode(errors="replace").strip()[-_LAST_WORDS:]
        how = f"ended with status {self._process.returncode}" if silent else what
        return ProgramError(f"{self._name} {how}" + (f": {words}" if words else ""))


def free_port() -> int:
    """Return a port that is currently free, for programs that cannot choose one and report it."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _environment() -> dict[str, str]:
    """Return our environment without proxy settings, which grpc would apply even to loopback addresses."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return kept | {"GRPC_VERBOSITY": "NONE"}
