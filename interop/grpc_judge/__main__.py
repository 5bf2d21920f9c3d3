"""The entry point of `grpc-judge` and `python -m grpc_judge`. `commands.py` has the commands."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command line."""
    # grpc's core logs failed handshakes to stderr. It reads this variable when it is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from grpc_judge.commands import cli  # noqa: PLC0415 - after GRPC_VERBOSITY is set

    cli(prog_name="grpc-judge")


if __name__ == "__main__":
    main()
