"""A peer as a process: its command line and the word to begin go out, its two lines come in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from interop.conformance import Calls
from interop.peers.manifest import ROOT, Peer, Setting

__all__ = ["Account", "PeerError", "PeerProcess"]

_STARTUP = 60.0
"""How long a peer may take to be ready, in seconds: a virtual machine that warms up on a busy computer."""
_WINDING_DOWN = 30.0
"""How long it may take to end once the time for calls has passed."""
_WORKERS = 4
_PAUSE_MS = 20
_LAST_WORDS = 400


class PeerError(Exception):
    """A peer did not do what a peer has to; says what, and what it wrote last."""


@dataclass(frozen=True, slots=True)
class Account:
    """What a peer says of itself at its end.

    Attributes:
        calls: what became of its calls.
        versions: of what it used.
    """

    calls: Calls
    versions: Mapping[str, str]


class PeerProcess:
    """One run of a peer's program, from entering to leaving the context; whatever happens, it does not outlive that."""

    def __init__(
        self, peer: Peer, target: str, seconds: float, settings: Mapping[Setting, int], ca: Path | None
    ) -> None:
        """Have it call `target` for so long; `settings` are in milliseconds, and with `ca` it uses TLS."""
        self._peer = peer
        self._seconds = seconds
        arguments = {"target": target, "seconds": f"{seconds:g}", "workers": _WORKERS, "pause-ms": _PAUSE_MS}
        arguments |= {f"{setting.value}-ms": value for setting, value in settings.items()}
        if ca is not None:
            arguments["ca"] = str(ca)
        self._arguments = [part for name, value in arguments.items() for part in (f"--{name}", str(value))]

    async def __aenter__(self) -> Self:
        """Start it.

        Raises:
            PeerError: it cannot be run.
        """
        try:
            self._process = await self._start()
        except OSError as error:
            raise PeerError(f"{self._peer.name} cannot be run: {error}") from error
        assert self._process.stderr is not None
        self._complaints = asyncio.create_task(self._process.stderr.read())
        self._ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read())
        return self

    async def _start(self) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._peer.filled(self._peer.command),
            *self._arguments,
            cwd=ROOT,
            env=_environment(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # a command may start others, and all of them have to end
        )

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        """End it, if it has not ended."""
        await self._stop(_WINDING_DOWN if self._reading.done() else 0.0)
        await asyncio.gather(self._reading, self._complaints, return_exceptions=True)

    async def ready(self) -> None:
        """Wait until it can begin.

        Raises:
            PeerError: it ended instead, or took too long.
        """
        ready = asyncio.create_task(self._ready.wait())
        await asyncio.wait({ready, self._reading}, timeout=_STARTUP, return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if not self._ready.is_set():
            raise await self._fault(f"was not ready within {_STARTUP:g} s")

    def begin(self) -> None:
        """Let it make its first call."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")

    async def account(self) -> Account:
        """Return what it says of its calls, once it has ended.

        Raises:
            PeerError: it ended without a word, or it did not end.
        """
        await asyncio.wait({self._reading}, timeout=self._seconds + _WINDING_DOWN)
        if not self._reading.done():
            raise await self._fault(f"went on for {_WINDING_DOWN:g} s after its time")
        if self._reading.exception() is not None:
            raise await self._fault("said what is no account of its calls")
        account = self._reading.result()
        if account is None:
            raise await self._fault("gave no account of its calls")
        return account

    async def _read(self) -> Account | None:
        assert self._process.stdout is not None
        account = None
        async for line in self._process.stdout:
            said = _parse(line)
            if said.get("event") == "ready":
                self._ready.set()
            elif said.get("event") == "done":
                account = _account(said)
        return account

    async def _stop(self, patience: float) -> None:
        """End the process, if it does not end by itself."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await self._process.wait()
                return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def _fault(self, what: str) -> PeerError:
        """Return the error that says so, or how the program ended, with its last words."""
        silent = self._reading.done() and self._reading.exception() is None
        await self._stop(1.0 if silent else 0.0)
        words = (await self._complaints).decode(errors="replace").strip()[-_LAST_WORDS:]
        how = f"ended with status {self._process.returncode}" if silent else what
        return PeerError(f"{self._peer.name} {how}" + (f": {words}" if words else ""))


def _environment() -> dict[str, str]:
    """Return ours without proxies, which grpc would use even for this machine's own address."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return kept | {"GRPC_VERBOSITY": "NONE"}


def _parse(line: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(line)
    except ValueError:
        return {}  # a runtime that greets
    return said if isinstance(said, dict) else {}


def _account(said: Mapping[str, Any]) -> Account:
    calls = Calls(made=said["made"], ok=said["ok"], failed=said["failed"], unfinished=said["unfinished"])
    return Account(calls, said["versions"])
