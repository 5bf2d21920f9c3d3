"""Servers in other languages, for the tests of this project's channel in `tests/interop_suite/servers`.

`README.md` in this directory specifies what a server program must do.
"""

from __future__ import annotations

from pathlib import Path

from grpc_judge.runner.manifest import Table
from grpc_judge.runner.program import Program


def find_servers() -> list[Program]:
    """Return the servers whose manifests are in this directory, sorted by folder.

    Raises:
        ManifestError: a manifest is not valid.
    """
    return [Program(**Table(path, set()).common()) for path in sorted(Path(__file__).parent.glob("*/server.toml"))]
