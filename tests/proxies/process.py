"""Processes of proxies and servers: started, signalled and ended without an event loop, as `tests/programs.py` says."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hyperframe.frame import SettingsFrame

from tests.proxies.kinds import PROXIES, Place, Proxy, request

STARTUP = 60.0  # seconds until a server serves: a JVM starts slowly on a busy machine
DRAIN = 20.0  # seconds until a server has ended gracefully
TAKES_HOLD = 0.05  # seconds until SIGSTOP has reached all threads and processes of a group
LOOK = 0.01
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SettingsFrame(0).serialize()

# Runs a command until standard input ends, which the programs in `interop/grpc_judge/servers` do by themselves. The
# shell that then kills the process group is not a child of the program, because HAProxy waits for all of its children.
UNTIL_INPUT_ENDS = (
    *("sh", "-c"),
    'exec 3<&0; ({ cat <&3 >/dev/null; kill -9 0; } &); exec "$@" </dev/null 3<&-',
    "until-input-ends",
)


def unused_port() -> int:
    """Return a port on which nothing listens, outside the range from which the kernel gives ports to connections."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_768)  # tests seed the other source of chance
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port


def serves(port: int) -> bool:
    """Return whether a server sends its SETTINGS; etcd accepts connections some time before that."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1.0) as sock:
            sock.sendall(PREFACE)
            return sock.recv(1) != b""
    except OSError:
        return False


class Process:
    """A server on a port of its own, which can be started there again after it was killed or drained."""

    def __init__(self, name: str, command: Sequence[str], port: int, folder: Path, **signals: signal.Signals | None):
        """Prepare to run this command, which listens on `port`; `signals` names those for `drain` and `reload`."""
        self.name = name
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        self._command = command
        self._log = folder / "log"
        self._signals = signals

    @property
    def target(self) -> str:
        """The target for a channel."""
        return f"127.0.0.1:{self.port}"

    @property
    def said(self) -> str:
        """What it printed."""
        return self._log.read_text(errors="replace")

    def start(self) -> None:
        """Start it and wait until it serves."""
        environment = {**os.environ, "GRPC_VERBOSITY": "NONE"}
        environment["ETCD_UNSUPPORTED_ARCH"] = os.uname().machine  # etcd requires it unless on amd64
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        over = time.monotonic() + STARTUP
        while not serves(self.port):
            assert self.process.poll() is None, self._says(f"ended with status {self.process.returncode}")
            assert time.monotonic() < over, self._says(f"did not serve within {STARTUP:g} s")
            time.sleep(LOOK)

    def _says(self, what: str) -> str:
        return f"{self.name} {what}: {self.said.strip()[-400:]}"

    def kill(self) -> None:
        """Kill it with SIGKILL, with everything that it started; or what is left of it."""
        if self.process is None:
            return  # it could not be started
        self._signal_all(signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()

    def drain(self) -> int:
        """End it gracefully; return its exit status."""
        self._signal("drain")
        try:
            status = self.process.wait(DRAIN)
        except subprocess.TimeoutExpired:
            told = self._signals["drain"].name
            raise AssertionError(self._says(f"had not ended {DRAIN:g} s after {told}")) from None
        self.kill()
        return status

    def reload(self) -> None:
        """Make it reload its configuration."""
        self._signal("reload")

    def freeze(self) -> None:
        """Suspend its processes. The kernel still accepts connections, but nothing answers."""
        self._signal_all(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        time.sleep(TAKES_HOLD)

    def thaw(self) -> None:
        """Resume its processes."""
        self._signal_all(signal.SIGCONT)

    def _signal(self, what: str) -> None:
        self.process.send_signal(self._signals[what])

    def _signal_all(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


class Front(Process):
    """A proxy in front of a server."""

    def __init__(self, proxy: Proxy, place: Place, settings: Mapping[str, Any]):
        """Prepare to run this proxy in this place, with these settings of each section."""
        command = [*UNTIL_INPUT_ENDS, *proxy.command(place, settings)]
        super().__init__(proxy.name, command, place.port, place.folder, drain=proxy.drain, reload=proxy.reload)
        self._proxy = proxy
        self._place = place

    def post(self, path: str) -> str:
        """Send a POST request to the port for its administration, such as `/healthcheck/fail` of Envoy."""
        return request(self._place, path, "POST")

    def connections(self) -> int:
        """Return how many connections it has accepted, including those that asked whether it serves."""
        return self._proxy.connections(self._place)


def prepared(name: str, upstream: int, folder: Path, **settings: Any) -> Front:
    """Return a proxy that has not been started yet. Its files are in `folder`."""
    return Front(PROXIES[name], Place(unused_port(), upstream, unused_port(), folder), settings)


@contextlib.contextmanager
def running(name: str, upstream: int, **settings: Any) -> Iterator[Front]:
    """Run a proxy in front of the server on the port `upstream`, with these settings of each section.

    It serves when the context is entered, and has ended, with all of its processes, when the context is left. In a
    coroutine, entering the context holds up the event loop for the tenths of a second that a proxy takes to start.
    """
    with tempfile.TemporaryDirectory(prefix=f"{name}-") as folder:
        process = prepared(name, upstream, Path(folder), **settings)
        try:
            process.start()
            yield process
        finally:
            process.kill()
