"""Runs the demo: `python -m examples.demo` in a checkout, or `python -m demo` in `examples` if it is installed."""

from __future__ import annotations

import os
import sys

from grpc_backoff.cli.guard import guarded
from grpc_backoff.cli.interrupt import end_on_interrupt
from grpc_backoff.errors import MissingExtra

from . import play


def _run() -> None:
    try:
        sys.exit(not play())
    except MissingExtra as missing:
        sys.exit(str(missing))


if __name__ == "__main__":
    end_on_interrupt()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # or grpc's core logs across the table
    sys.exit(guarded(_run))
