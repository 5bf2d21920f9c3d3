"""Runs an ASGI server in Python as `servers/README.md` specifies: `serve.py SERVER --port P`."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

_COMMANDS: Final = {
    "uvicorn": ["uvicorn", "app:app", "--port={port}", "--http=zttp", "--http2", "--log-level=warning"],
    "hypercorn": ["hypercorn", "app:app", "--bind=127.0.0.1:{port}"],
    "pyvoy": ["pyvoy", "app:app", "--port={port}"],
}
"""The command of each server, which is run in the folder of the application."""


def main() -> None:
    """Become the server; all of it ends with standard input."""
    parser = argparse.ArgumentParser()
    parser.add_argument("server", choices=_COMMANDS)
    parser.add_argument("--port", type=int, required=True)
    order = parser.parse_args()
    versions = {order.server: version(order.server), "python": platform.python_version()}
    print(json.dumps({"event": "listening", "port": order.port, "versions": versions}), flush=True)
    if not os.fork():
        _end_with_input()
    name, *arguments = _COMMANDS[order.server]
    program = str(Path(sys.executable).parent / name)
    os.chdir(Path(__file__).parent)
    os.execv(program, [program, *(each.format(port=order.port) for each in arguments)])  # noqa: S606


def _end_with_input() -> None:
    """Wait for the end of standard input in a process of its own, then kill the process group, which is the server."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
