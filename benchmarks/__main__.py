"""The entry point of `python -m benchmarks`. The command itself is in `command.py`."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command."""
    # Keeps grpc's core from logging failed handshakes to stderr. The core reads this variable when it is imported, here
    # and in each child process.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from benchmarks.command import main as command  # noqa: PLC0415 - after GRPC_VERBOSITY is set

    command(prog_name="python -m benchmarks")


if __name__ == "__main__":
    main()
