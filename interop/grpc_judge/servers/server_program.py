"""Code that the Python server programs share: the command line, the line of output, and the exit when stdin ends."""

from __future__ import annotations

import json
import os
import platform
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

import click

HOST = "127.0.0.1"

_PORT = click.IntRange(0, 65535)
_MILLISECONDS = click.IntRange(min=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOrder:
    """The command-line arguments of a server program.

    Attributes:
        port: the port to listen on; 0 for any free port.
        upstream: the port of the server behind a proxy; None if this is not a proxy.
        max_age_ms: MAX_CONNECTION_AGE; None for no limit.
        grace_ms: MAX_CONNECTION_AGE_GRACE, which is how long running calls may continue after that.
    """

    port: int
    upstream: int | None
    max_age_ms: int | None
    grace_ms: int


def say_listening(port: int, **versions: str) -> None:
    """Print the line of output: the port, and the versions of the software that the server uses."""
    versions["python"] = platform.python_version()
    click.echo(json.dumps({"event": "listening", "port": port, "versions": versions}))


def end_with_input(end: Callable[[], object] = lambda: os._exit(0)) -> None:
    """Call `end` on another thread when standard input ends, which means that the parent process is gone."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        end()

    threading.Thread(target=wait, daemon=True).start()


def command(run: Callable[[ServeOrder], None]) -> click.Command:
    """Return a command that parses the arguments of a server and calls `run` with them."""

    @click.command()
    @click.option("--port", type=_PORT, required=True)
    @click.option("--upstream", type=_PORT)
    @click.option("--max-age-ms", type=_MILLISECONDS)
    @click.option("--grace-ms", type=_MILLISECONDS, default=1000)
    def server(port: int, upstream: int | None, max_age_ms: int | None, grace_ms: int) -> None:
        """Serve until SIGTERM, or until standard input ends."""
        run(ServeOrder(port=port, upstream=upstream, max_age_ms=max_age_ms, grace_ms=grace_ms))

    return server
