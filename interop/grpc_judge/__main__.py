"""The entry point of `grpc-judge`, `python -m grpc_judge` and `python -m interop`. `commands.py` has the commands."""

from __future__ import annotations

import os

__all__ = ["main"]


def main(name: str = "grpc-judge") -> None:
    """Run the command line; `name` is how the user called it."""
    # grpc's core logs failed handshakes to stderr. It reads this variable when it is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from grpc_judge.commands import cli  # noqa: PLC0415 - after GRPC_VERBOSITY is set

    cli(prog_name=name)


if __name__ == "__main__":
    main()
