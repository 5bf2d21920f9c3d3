"""The programs of clients and servers: their requirements, and how they are chosen, built and run."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

AnyProgram = TypeVar("AnyProgram", bound="Program")

ROOT = Path(__file__).parents[2]
"""The working directory of all commands: the folder that contains this package."""

_BUILD_LIMIT = 600.0
_TELLING = re.compile(r"\berror\b|\bfatal\b|not found|no such file", re.IGNORECASE)
"""What compilers and package managers say in the line that tells why they failed; other tools print more after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program, as its manifest describes it.

    Attributes:
        name: the name shown in tables.
        folder: the folder of the program.
        command: the command that runs it.
        modules: the Python modules that it needs.
        programs: the programs that it needs on the PATH.
        build: the commands that build it.
        only_by_name: whether it takes part only if named on the command line.
    """

    name: str
    folder: Path
    command: tuple[str, ...]
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    build: tuple[tuple[str, ...], ...] = ()
    only_by_name: bool = False

    @property
    def names(self) -> set[str]:
        """What it may be called on the command line; several programs may share the first word of their names."""
        return {self.name, self.folder.name, self.name.partition(" ")[0]}

    @property
    def missing(self) -> str:
        """A description of the required modules and programs that are missing; empty if there are none."""
        lacking = [f"the Python module {name}" for name in self.modules if not importlib.util.find_spec(name)]
        lacking += [f"the program {name}" for name in self.programs if shutil.which(name) is None]
        return " and ".join(lacking)

    def filled(self, command: Sequence[str]) -> list[str]:
        """Return one of the program's commands, with `{python}` and `{here}` replaced by their values."""
        return [part.replace("{python}", sys.executable).replace("{here}", str(self.folder)) for part in command]


def choose(programs: Sequence[AnyProgram], flag: str, given: Iterable[str]) -> list[AnyProgram]:
    """Return the programs with the names in the values of this option; all but those `only_by_name` if there are none.

    Raises:
        ValueError: a program does not exist.
    """
    wanted = split(given)
    for name in sorted(wanted):
        if not any(name in program.names for program in programs):
            raise ValueError(f"{flag}={name}: expected one of {', '.join(program.name for program in programs)}")
    if not wanted:
        return [program for program in programs if not program.only_by_name]
    return [program for program in programs if wanted & program.names]


def split(given: Iterable[str]) -> set[str]:
    """Return the names in the values of an option. Each value may contain several, separated by commas."""
    return {name.strip() for each in given for name in each.split(",") if name.strip()}


async def build(program: Program) -> str:
    """Run the program's build commands in its folder; return why one could not be run or failed, or an empty string.

    Of a command that failed, the line of its output is returned that gives the cause.
    """
    for command in program.build:
        try:
            status, output = await finish(program.filled(command), program.folder, _BUILD_LIMIT)
        except OSError as error:
            return f"{command[0]} could not be run: {error}"
        if status is None:
            return f"{command[0]} took longer than {_BUILD_LIMIT:g} s"
        if status:
            return f"{command[0]} failed: {_cause(output)}"
    return ""


def _cause(output: str) -> str:
    """Return the first line of output that mentions an error, or else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next(filter(_TELLING.search, lines), lines[-1] if lines else "it printed nothing")


async def finish(command: Sequence[str], folder: Path, limit: float) -> tuple[int | None, str]:
    """Run a command in a folder until it ends; return its exit status and output.

    If it takes longer than `limit` seconds, or if the caller is cancelled, the command is killed together with
    everything it started. The status is None after a timeout.

    Raises:
        OSError: the command could not be run.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # it may start other processes, which must be ended too
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
