"""The command line: the entry point, and nothing that needs the optional packages.

The commands stand in `commands.py`. They need the extra `cli`, which this module looks for before it imports them.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence

from grpc_backoff.errors import MissingExtra

__all__ = ["main", "require"]


def require(extra: str, modules: Iterable[str]) -> None:
    """Raise `MissingExtra` if one of the modules is not installed; imports none of them."""
    if any(importlib.util.find_spec(module) is None for module in modules):
        raise MissingExtra(extra)


def main() -> None:
    """Run the command line; the console script `grpc-backoff` and `python -m grpc_backoff` end up here."""
    if sys.argv[1:2] == ["run"] and sys.argv[2:3] not in ([], ["-h"], ["--help"]):
        _run(sys.argv[2:])
        return
    try:
        require("cli", ("click", "rich"))
    except MissingExtra as missing:
        sys.stderr.write(f"grpc-backoff: {missing}\n")
        sys.exit(1)
    # grpc's core writes its own account of failed handshakes to stderr, across the table. It reads this when imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from grpc_backoff.cli.commands import cli  # noqa: PLC0415 - needs what was just looked for

    cli(prog_name="grpc-backoff")


def _run(words: Sequence[str]) -> None:
    """Run somebody's program: without click, whose handling of errors and signals is not the program's."""
    from grpc_backoff.cli import program  # noqa: PLC0415 - the other commands have no need of it

    try:
        program.run(program.find(words))
    except program.ProgramError as error:
        sys.stderr.write(f"grpc-backoff run: {error}\n")
        sys.exit(2)
