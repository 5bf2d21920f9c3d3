"""Runs the commands of `grpc-judge` from a checkout: `python -m interop`, without installing the distribution."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from grpc_judge.__main__ import main

if __name__ == "__main__":
    main("python -m interop")
