"""`python -m benchmarks`: the entry point. The command stands in `command.py`."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command."""
    # grpc's core writes its own account of failed handshakes to stderr. It, and each process of ours, reads this when
    # it is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from benchmarks.command import main as command  # noqa: PLC0415 - after GRPC_VERBOSITY is set

    command(prog_name="python -m benchmarks")


if __name__ == "__main__":
    main()
