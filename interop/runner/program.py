"""The programs of clients and servers: what they need, how they are built, and how they are run."""

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
"""The working directory of commands."""

_BUILD_LIMIT = 600.0


class BuildError(Exception):
    """A program could not be built; the message has the last line that its tools wrote."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One program, as its manifest describes it.

    Attributes:
        name: the name shown in tables.
        folder: the folder of the program.
        command: the command that runs it.
        modules: the Python modules that it needs.
        programs: the programs that it needs.
        build: the commands that build it.
        only_by_name: whether it takes part only if requested by name.
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
        """The modules and programs that it needs and that are missing, in words; empty if there are none."""
        lacking = [f"the Python module {name}" for name in self.modules if not importlib.util.find_spec(name)]
        lacking += [f"the program {name}" for name in self.programs if shutil.which(name) is None]
        return " and ".join(lacking)

    def filled(self, command: Sequence[str]) -> list[str]:
        """Return one of its commands with `{python}` and `{here}` filled in."""
        return [part.replace("{python}", sys.executable).replace("{here}", str(self.folder)) for part in command]


async def build(program: Program) -> None:
    """Run the program's build commands, in its folder.

    Raises:
        BuildError: a command could not be run, failed, or took too long.
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
    """Run a command to its end in a folder; return its exit status and output.

    If it takes longer than `limit` seconds, or if this is cancelled, the command is killed with everything it started.
    The status is None after a timeout.

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
