"""Runs the demo: `python -m examples.demo` in a checkout, or `python -m demo` in `examples` if it is installed."""

from __future__ import annotations

import argparse
import logging
import os
import sys

from grpc_backoff.base.base_errors import MissingExtra
from grpc_backoff.cli.guard import guarded
from grpc_backoff.cli.interrupt import end_on_interrupt

from . import play

_ABOUT = """
Demonstrates this library against real servers and checks the results. Several workers place orders continuously over
one of this library's channels, while the server refuses connections, stalls, drops connections, recovers, is killed,
comes back and is restarted. Then the same happens to a plain grpc channel. The exit status is 0 only if every check
passes.
"""


def _run() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=_ABOUT)
    parser.add_argument("--threads", action="store_true", help="use the threaded channels, and compare with plain grpc")
    arguments = parser.parse_args()
    try:
        sys.exit(not play(threads=arguments.threads))
    except MissingExtra as missing:
        sys.exit(str(missing))


if __name__ == "__main__":
    end_on_interrupt()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # or grpc's core logs across the table
    logging.getLogger().addHandler(logging.NullHandler())  # nothing else is written to standard error
    sys.exit(guarded(_run))
