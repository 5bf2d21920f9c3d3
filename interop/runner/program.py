"""What a client's and a server's program have in common: what it needs, how it is built, and how it is run."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOT", "BuildError", "Program", "build", "finish"]

ROOT = Path(__file__).parents[2]
"""Where commands are run."""

_BUILD_LIMIT = 600.0


class BuildError(Exception):
    """A program could not be built; says the last line that its tools wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program, as its manifest describes it.

    Attributes:
        name: as it stands in tables.
        folder: where its program is.
        command: how to run it.
        modules: the Python modules that it needs.
        programs: the programs that it needs.
        build: how to build it.
        only_by_name: whether it takes part only where it is asked for by name.
    """

    name: str
    folder: Path
    command: tuple[str, ...]
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    build: tuple[tuple[str, ...], ...] = ()
    only_by_name: bool = False

    @property
    def missing(self) -> str:
        """What it needs and is not here, in words; empty if nothing is missing."""
        lacking = [f"the Python module {name}" for name in self.modules if not importlib.util.find_spec(name)]
        lacking += [f"the program {name}" for name in self.programs if shutil.which(name) is None]
        return " and ".join(lacking)

    def filled(self, command: Sequence[str]) -> list[str]:
        """Return one of its commands with `{python}` and `{here}` filled in."""
        return [part.replace("{python}", sys.executable).replace("{here}", str(self.folder)) for part in command]


async def build(program: Program) -> None:
    """Run the program's build commands, in its folder.

    Raises:
        BuildError: one of them could not be run, failed, or took too long.
    """
    for command in program.build:
        try:
            status, output = await finish(program.filled(command), program.folder, _BUILD_LIMIT)
        except OSError as error:
            raise BuildError(f"{command[0]} could not be run: {error}") from error
        if status is None:
            raise BuildError(f"{command[0]} took longer than {_BUILD_LIMIT:g} s")
        if status:
            last = output.rpartition("\n")[2]
            raise BuildError(f"{command[0]} failed: {last}")


async def finish(command: Sequence[str], folder: Path, limit: float) -> tuple[int | None, str]:
    """Run a command to its end in a folder; return its exit status and what it wrote.

    The status is None if the command took longer than `limit` seconds. It is killed then, with all that it started, as
    it is when this is cancelled.

    Raises:
        OSError: it could not be run.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # a command may start others, and all of them have to end
    )
    writing = asyncio.create_task(process.communicate())
    try:
        await asyncio.wait({writing}, timeout=limit)
        status = process.returncode if writing.done() else None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        output, _ = await writing
    return status, output.decode(errors="replace").strip()
