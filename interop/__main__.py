"""The entry point of `python -m interop`. The commands are in `commands.py`."""

from __future__ import annotations

import os


def main() -> None:
    """Run the command line."""
    # grpc's core logs failed handshakes to stderr. It reads this variable when it is imported.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from interop.commands import cli  # noqa: PLC0415 - after GRPC_VERBOSITY is set

    cli(prog_name="python -m interop")


if __name__ == "__main__":
    main()
