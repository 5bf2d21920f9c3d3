"""Which peers there are: reads the manifests, says what a peer lacks, and builds it.

`Program` is what the manifests of peers and of servers have in common, and `Table` reads either.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import importlib.util
import os
import shutil
import signal
import sys
import tomllib
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "ROOT",
    "BuildError",
    "ManifestError",
    "Peer",
    "Program",
    "Setting",
    "Table",
    "build",
    "find_peers",
]

_FOLDER = Path(__file__).parent
ROOT = _FOLDER.parents[1]
"""Where commands are run."""

_COMMON = {"name", "command", "needs", "build"}
_NEEDS = {"modules", "programs"}
_BUILD_LIMIT = 600.0


class ManifestError(ValueError):
    """A manifest says what it cannot; names the file, the key, the value and what is allowed."""


class BuildError(Exception):
    """A program could not be built; says the last line that its tools wrote."""


class Setting(enum.Enum):
    """What a peer may be told. The value is the name in manifests; the argument is `--<value>-ms`."""

    INITIAL = "initial"
    MAX = "max"
    MIN_CONNECT_TIMEOUT = "min-connect-timeout"
    STABLE_AFTER = "stable-after"


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
    """

    name: str
    folder: Path
    command: tuple[str, ...]
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    build: tuple[tuple[str, ...], ...] = ()

    @property
    def missing(self) -> str:
        """What it needs and is not here, in words; empty if nothing is missing."""
        lacking = [f"the Python module {name}" for name in self.modules if not importlib.util.find_spec(name)]
        lacking += [f"the program {name}" for name in self.programs if shutil.which(name) is None]
        return " and ".join(lacking)

    def filled(self, command: Sequence[str]) -> list[str]:
        """Return one of its commands with `{python}` and `{here}` filled in."""
        return [part.replace("{python}", sys.executable).replace("{here}", str(self.folder)) for part in command]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer(Program):
    """One client.

    Attributes:
        configurable: what it can be told.
        must_pass: whether a failure of this peer is a failure of the run.
        loud: whether it makes attempts without a pause between them, so that it floods every server that fails.
    """

    configurable: frozenset[Setting]
    must_pass: bool = False
    loud: bool = False

    def can_be_told(self, *settings: Setting) -> bool:
        """Return whether it has all these settings."""
        return self.configurable.issuperset(settings)


def find_peers(folder: Path = _FOLDER) -> list[Peer]:
    """Return the peers whose manifests are in the folders of this one: those that must pass first, then by name.

    Raises:
        ManifestError: one of them cannot be read.
    """
    peers = [_read(path) for path in folder.glob("*/peer.toml")]
    return sorted(peers, key=lambda peer: (not peer.must_pass, peer.name))


def _read(path: Path) -> Peer:
    table = Table(path, {"configurable", "must_pass", "loud"})
    return Peer(
        **table.common(),
        configurable=frozenset(_setting(path, name) for name in table.texts("configurable")),
        must_pass=table.flag("must_pass"),
        loud=table.flag("loud"),
    )


class Table:
    """What stands in a manifest. All that reads it raises ManifestError for what is not allowed."""

    def __init__(self, path: Path, keys: AbstractSet[str]) -> None:
        """Read a file that may have these keys beside those that all programs have."""
        self._path = path
        try:
            self._found = tomllib.loads(path.read_text())
        except tomllib.TOMLDecodeError as error:
            raise ManifestError(f"{path}: {error}") from error
        _check_keys(path, self._found, _COMMON | keys)

    def common(self) -> dict[str, Any]:
        """Return the arguments that every Program has."""
        needs: Mapping[str, Any] = self._found.get("needs", {})
        _check_keys(self._path, needs, _NEEDS)
        return {
            "name": self.text("name"),
            "folder": self._path.parent,
            "command": self.texts("command"),
            "modules": _texts(self._path, "needs.modules", needs.get("modules", [])),
            "programs": _texts(self._path, "needs.programs", needs.get("programs", [])),
            "build": tuple(_texts(self._path, "build", command) for command in self._found.get("build", [])),
        }

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text."""
        return _text(self._path, self._found, key, default)

    def texts(self, key: str, default: list[str] | None = None) -> tuple[str, ...]:
        """Return a list of texts."""
        return _texts(self._path, key, self._found.get(key, default))

    def flag(self, key: str, *, default: bool = False) -> bool:
        """Return whether something is so."""
        value = self._found.get(key, default)
        if not isinstance(value, bool):
            raise ManifestError(f"{self._path}: {key} is {value!r}; it is true or false")
        return value


def _check_keys(path: Path, table: Mapping[str, Any], known: AbstractSet[str]) -> None:
    for key in sorted(table.keys() - known):
        raise ManifestError(f"{path}: {key} is no key; there are {', '.join(sorted(known))}")


def _text(path: Path, found: Mapping[str, Any], key: str, default: str | None) -> str:
    value = found.get(key, default)
    if not isinstance(value, str) or not value:
        raise ManifestError(f"{path}: {key} is {value!r}; it is a text that is not empty")
    return value


def _texts(path: Path, key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ManifestError(f"{path}: {key} is {value!r}; it is a list of texts")
    return tuple(value)


def _setting(path: Path, name: str) -> Setting:
    try:
        return Setting(name)
    except ValueError:
        known = ", ".join(setting.value for setting in Setting)
        raise ManifestError(f"{path}: configurable has {name!r}; there are {known}") from None


async def build(program: Program) -> None:
    """Run the program's build commands, in its folder.

    Raises:
        BuildError: one of them could not be run, failed, or took too long.
    """
    for command in program.build:
        try:
            await _run(program.filled(command), program.folder)
        except OSError as error:
            raise BuildError(f"{command[0]} could not be run: {error}") from error


async def _run(command: Sequence[str], folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # compilers start others, and all of them have to end
    )
    try:
        async with asyncio.timeout(_BUILD_LIMIT):
            output, _ = await process.communicate()
    except TimeoutError:
        raise BuildError(f"{command[0]} took longer than {_BUILD_LIMIT:g} s") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    if process.returncode:
        last = output.decode(errors="replace").strip().rpartition("\n")[2]
        raise BuildError(f"{command[0]} failed: {last}")
