"""Programs that have a command line of their own, such as etcd's or nginx's, as servers by the contract.

A keeper stands in front of the program: it starts it, says when the program takes connections, hands on signals under
the names that the program has for them, and ends with all that it started when its standard input ends.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from interop.servers.server_program import HOST, ServeOrder, end_with_input, say_listening

__all__ = ["Native", "configuration", "free_port", "keep"]

_STARTUP = 30.0
"""How long a program may take until it takes connections, in seconds."""
_LOOK = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Native:
    """A program with a command line of its own.

    Attributes:
        name: what it is called, as a program and among the versions.
        command: makes the command line from the order and a folder that the program has for itself.
        version: what makes it tell its version.
        drain: the signal by which it ends gracefully.
        reload: the signal by which it reads its configuration anew, if it has one.
        environment: what it needs beside ours.
    """

    name: str
    command: Callable[[ServeOrder, Path], Sequence[str]]
    version: Sequence[str]
    drain: signal.Signals = signal.SIGTERM
    reload: signal.Signals | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def keep(native: Native, order: ServeOrder) -> None:
    """Run the program until it ends, and end as it does."""
    folder = Path(tempfile.mkdtemp(prefix=f"{native.name}-"))
    end_with_input(lambda: _end_all(folder))
    order = order if order.port else replace(order, port=free_port())
    process = subprocess.Popen(  # noqa: S603 - what the server's own module says
        native.command(order, folder),
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        env={**os.environ, **native.environment},
    )
    _hand_on(native, process)
    _wait_for(order.port, process)
    say_listening(order.port, **{native.name: _version(native)})
    status = process.wait()
    shutil.rmtree(folder, ignore_errors=True)
    sys.exit(status if status >= 0 else 128 - status)


def _hand_on(native: Native, process: subprocess.Popen[bytes]) -> None:
    handed = {signal.SIGTERM: native.drain} | ({signal.SIGHUP: native.reload} if native.reload else {})
    for ours in handed:
        signal.signal(ours, lambda number, _frame: process.send_signal(handed[signal.Signals(number)]))


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    over = time.monotonic() + _STARTUP
    while process.poll() is None and time.monotonic() < over:
        with socket.socket() as sock:
            if sock.connect_ex((HOST, port)) == 0:
                return
        time.sleep(_LOOK)
    if process.poll() is not None:
        sys.exit(process.returncode)
    process.kill()
    sys.exit(f"it took no connections within {_STARTUP:g} s")


def _version(native: Native) -> str:
    said = subprocess.run(native.version, capture_output=True, text=True, check=False)  # noqa: S603 - as above
    found = re.search(r"\d+(\.\d+)+\S*", said.stdout + said.stderr)
    return found[0] if found else "unknown"


def configuration(template: Path, folder: Path, **values: object) -> Path:
    """Fill in a template, whose `{port}` and the like stand between braces of its own; return the file in `folder`."""
    text = template.read_text()
    for name, value in {"folder": folder, **values}.items():
        text = text.replace(f"{{{name}}}", str(value))
    filled = folder / template.name
    filled.write_text(text)
    return filled


def free_port() -> int:
    """Return a port that is free at this moment; none of these programs can choose one and say which."""
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
        return port


def _end_all(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)
