"""Servers of other projects and in other languages, for the tests of this project's channel.

The tests are in `tests/interop_suite/servers`. `README.md` in this directory specifies what a server program must do.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from grpc_judge.runner.manifest import Table
from grpc_judge.runner.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerProgram(Program):
    """A server, as its manifest describes it.

    Attributes:
        ages: whether it can end connections at an age.
        graceful: whether it loses no calls when SIGTERM ends it.
        full: whether only the full run has it, because it is built or tested for too long.
    """

    ages: bool = False
    graceful: bool = False
    full: bool = False


def find_servers() -> list[ServerProgram]:
    """Return the servers whose manifests are in this directory, sorted by folder.

    Raises:
        ManifestError: a manifest is not valid.
    """
    return [_read(path) for path in sorted(Path(__file__).parent.glob("*/server.toml"))]


def _read(path: Path) -> ServerProgram:
    flags = ("ages", "graceful", "full")
    table = Table(path, set(flags))
    return ServerProgram(**table.common() | {flag: table.flag(flag) for flag in flags})
