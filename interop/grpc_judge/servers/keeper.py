"""Adapts programs with their own command lines, such as etcd or nginx, to the contract of server programs.

A keeper starts the program and reports when it accepts connections. It translates the signals that it receives into
those that the program expects. When its standard input ends, it exits and ends everything it started.
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

from grpc_judge.servers.server_program import HOST, ServeOrder, end_with_input, say_listening

_STARTUP = 30.0
"""How long a program may take until it accepts connections, in seconds."""
_LOOK = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Native:
    """A program with its own command line.

    Attributes:
        name: the name of the program, also used for its version.
        command: returns the command line, given the arguments and a folder for the program's files.
        version: the command that prints its version.
        drain: the signal that ends it gracefully.
        reload: the signal that makes it reload its configuration, if there is one.
        environment: environment variables that it needs in addition to ours.
    """

    name: str
    command: Callable[[ServeOrder, Path], Sequence[str]]
    version: Sequence[str]
    drain: signal.Signals = signal.SIGTERM
    reload: signal.Signals | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def keep(native: Native, order: ServeOrder) -> None:
    """Run the program until it ends and exit with its status."""
    folder = Path(tempfile.mkdtemp(prefix=f"{native.name}-"))
    end_with_input(lambda: _end_all(folder))
    order = order if order.port else replace(order, port=free_port())
    process = subprocess.Popen(  # noqa: S603 - the command of a server's module
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
    said = subprocess.run(native.version, capture_output=True, text=True, check=False)  # noqa: S603 - same as above
    found = re.search(r"\d+(\.\d+)+\S*", said.stdout + said.stderr)
    return found[0] if found else "unknown"


def configuration(template: Path, folder: Path, **values: object) -> Path:
    """Write a template to `folder`, replacing placeholders such as `{port}` but no other braces; return the file."""
    text = template.read_text()
    for name, value in {"folder": folder, **values}.items():
        text = text.replace(f"{{{name}}}", str(value))
    filled = folder / template.name
    filled.write_text(text)
    return filled


def free_port() -> int:
    """Return a port that is currently free, because native programs cannot choose a port and report it."""
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
        return port


def _end_all(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.killpg(0, signal.SIGKILL)
