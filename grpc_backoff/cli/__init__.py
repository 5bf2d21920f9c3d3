"""The entry point of the command line. This module needs none of the optional packages.

The commands are in `commands.py`. They need the extra `cli`; this module checks that it is installed before it imports
them.

Internal: programs import from `grpc_backoff`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence

from grpc_backoff.cli.interrupt import end_on_interrupt


def require(extra: str, feature: str, modules: Iterable[str]) -> None:
    """Raise `MissingExtra` if one of the modules is not installed; this imports none of them."""
    import importlib.util  # noqa: PLC0415 - imported late, as in `main`

    from grpc_backoff.base.base_errors import MissingExtra  # noqa: PLC0415

    if any(importlib.util.find_spec(module) is None for module in modules):
        raise MissingExtra(extra, feature)


def main() -> None:
    """Run the command line: the entry point of the console script `grpc-backoff` and of `python -m grpc_backoff`."""
    if sys.argv[1:2] == ["run"] and sys.argv[2:3] not in ([], ["-h"], ["--help"]):
        run_program(sys.argv[2:])  # the program's output, errors and signals are left alone
        return
    end_on_interrupt()  # before any slow import
    from grpc_backoff.cli.guard import guarded  # noqa: PLC0415

    sys.exit(guarded(_run))


def _run() -> None:
    import logging  # noqa: PLC0415

    from grpc_backoff.base.base_errors import MissingExtra  # noqa: PLC0415

    try:
        require("cli", "the command line", ("click", "rich"))
    except MissingExtra as missing:
        sys.exit(str(missing))
    # Without this, grpc's core writes about failed handshakes to stderr, in the middle of the table. The core reads
    # this variable when it is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from grpc_backoff.cli.commands import cli  # noqa: PLC0415 - needs the extra that was just checked

    logging.getLogger().addHandler(logging.NullHandler())  # the commands report errors themselves, in one line
    cli(prog_name="grpc-backoff")


def run_program(words: Sequence[str]) -> None:
    """Run the user's program, without click, which would handle its errors and signals differently."""
    from grpc_backoff.cli import program  # noqa: PLC0415 - the other commands do not need it

    try:
        program.run(program.find(words))
    except program.ProgramError as error:
        sys.stderr.write(f"grpc-backoff run: {error}\n")
        sys.exit(2)
