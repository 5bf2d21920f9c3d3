"""The entry point of `python -m benchmarks.dispersal`. The command itself is in `command.py`."""

from __future__ import annotations

import sys

from grpc_backoff.cli.guard import guarded
from grpc_backoff.cli.interrupt import end_on_interrupt


def main() -> None:
    """Run the command."""
    from benchmarks.dispersal.command import dispersal  # noqa: PLC0415 - an interrupt may come while numpy is imported

    dispersal(prog_name="python -m benchmarks.dispersal")


if __name__ == "__main__":
    end_on_interrupt()
    sys.exit(guarded(main))
