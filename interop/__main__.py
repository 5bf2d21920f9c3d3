"""Runs all commands from a checkout, without installing the distribution: `python -m interop`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # grpc's core reads this when it is imported
sys.path.insert(0, str(Path(__file__).parent))

from grpc_judge.checkout import cli

if __name__ == "__main__":
    cli(prog_name="python -m interop")
