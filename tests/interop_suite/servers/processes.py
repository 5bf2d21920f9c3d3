"""The servers and proxies of other projects, and their processes, which tests kill, drain, reload and freeze."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from hyperframe.frame import SettingsFrame

from grpc_judge.runner.process import free_port
from grpc_judge.runner.program import Program
from grpc_judge.servers import find_servers
from tests import programs

HERE = Path(__file__).parent
STARTUP = 60.0  # seconds until a server serves: a JVM starts slowly on a busy machine
DRAIN = 20.0  # seconds until a server has ended gracefully
TAKES_HOLD = 0.05  # seconds until SIGSTOP has reached all threads and processes of a group
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SettingsFrame(0).serialize()
A_DAY = 86_400_000  # milliseconds

# Runs a command until standard input ends, which the programs in `interop/grpc_judge/servers` do by themselves. The
# shell that then kills the process group is not a child of the program, because HAProxy waits for all of its children.
UNTIL_INPUT_ENDS = (
    *("sh", "-c"),
    'exec 3<&0; ({ cat <&3 >/dev/null; kill -9 0; } &); exec "$@" </dev/null 3<&-',
    "until-input-ends",
)


def as_specified(port, *, max_age_ms, **_):
    """Return the arguments of the programs that `interop/grpc_judge/servers/README.md` specifies."""
    return ["--port", port, *(["--max-age-ms", max_age_ms] if max_age_ms else [])]


def etcd(port, *, folder, **_):
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    return [
        *("--name", "one", "--data-dir", folder / "data", "--logger", "zap", "--log-level", "error"),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}"),
    ]


def haproxy(port, *, folder, upstream, **_):
    return ["-W", "-q", "-f", configuration("haproxy.cfg", folder, port=port, upstream=upstream)]


def nginx(port, *, folder, upstream, max_age_ms):
    max_age = f"{max_age_ms or A_DAY}ms"
    filled = configuration("nginx.conf", folder, port=port, upstream=upstream, max_age=max_age, folder=folder)
    return ["-p", folder, "-c", filled, "-e", "stderr"]


def configuration(name, into, **values):
    """Write a template to a folder, replacing placeholders such as `{port}` but no other braces; return the file."""
    text = (HERE / name).read_text()
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", str(value))
    (into / name).write_text(text)
    return into / name


@dataclass(frozen=True, slots=True, kw_only=True)
class Server(Program):
    """A server or a proxy.

    Attributes:
        arguments: returns the arguments of its command, given a port, a folder for its files, the port of the server
            behind it, and the age at which it ends connections, in milliseconds (None for never).
        version: the command that prints its version; if there is none, it does so itself when it starts.
        method: the method that is called, with an empty message.
        proxy: whether it is a proxy in front of another server.
        graceful: whether it ends without losing calls when it is told to; if not, the channel is not blamed for those.
        ages: whether it can end connections at an age.
        drain: the signal that ends it gracefully.
        reload: the signal that makes it reload its configuration.
    """

    arguments: Callable[..., Iterable[object]] = as_specified
    version: tuple[str, ...] = ()
    method: str = "/grpc.testing.TestService/EmptyCall"
    proxy: bool = False
    graceful: bool = True
    ages: bool = True
    drain: signal.Signals = signal.SIGTERM
    reload: signal.Signals = signal.SIGHUP


def installed(name, version, **how):
    """Return a server that Debian packages; `version` is the argument with which it prints its version."""
    return Server(
        name=name,
        folder=HERE,
        command=(*UNTIL_INPUT_ENDS, name),
        programs=(name,),
        version=(name, version),
        **how,
    )


GRPCIO = Server(
    name="grpcio server",
    folder=HERE,
    command=(*UNTIL_INPUT_ENDS, "{python}", "-m", "tests.interop_suite.servers.grpcio_server"),
    graceful=False,  # its core fails calls with CANCELLED that arrive while it stops
)
SERVERS = [
    installed(
        "etcd",
        "--version",
        arguments=etcd,
        method="/etcdserverpb.Maintenance/Status",
        graceful=False,  # on SIGTERM, its connections break while calls are running
        ages=False,
    ),
    *(Server(**asdict(program)) for program in find_servers()),
    GRPCIO,
    installed("haproxy", "-v", arguments=haproxy, proxy=True, ages=False, drain=signal.SIGUSR1, reload=signal.SIGUSR2),
    installed("nginx", "-v", arguments=nginx, proxy=True, drain=signal.SIGQUIT),
]


class Running:
    """A server on a port of its own, which can be started there again after it was killed or drained."""

    def __init__(self, server, folder, *, upstream=None, max_age_ms=None):
        self.server = server
        self.port = free_port()
        self._folder = folder / server.name
        self._folder.mkdir()
        self._log = self._folder / "log"
        arguments = server.arguments(self.port, folder=self._folder, upstream=upstream, max_age_ms=max_age_ms)
        self._command = [*server.filled(server.command), *map(str, arguments)]
        self.process = None

    async def start(self):
        """Start the server and wait until it serves."""
        environment = {**os.environ, "GRPC_VERBOSITY": "NONE"}
        environment["ETCD_UNSUPPORTED_ARCH"] = os.uname().machine  # etcd requires it unless on amd64
        with self._log.open("wb") as log:
            self.process = await programs.start(
                *self._command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        over = time.monotonic() + STARTUP
        while not await serves(self.port):
            assert self.process.poll() is None, self._says(f"ended with status {self.process.returncode}")
            assert time.monotonic() < over, self._says(f"did not serve within {STARTUP:g} s")
            await asyncio.sleep(0.01)

    def _says(self, what):
        return f"{self.server.name} {what}: {self._log.read_text(errors='replace').strip()[-400:]}"

    async def version(self):
        """Return the line in which the server says its version."""
        said = self._log.read_text()
        if self.server.version:
            _, said = await programs.output(*self.server.version, within=10)
        return said.partition("\n")[0]

    async def kill(self):
        """Kill the server with SIGKILL, with everything that it started; or what is left of it."""
        if self.process is None:
            return  # it could not be started
        self._signal_all(signal.SIGKILL)
        await asyncio.to_thread(self.process.wait)
        self.process.stdin.close()

    async def drain(self):
        """End the server gracefully."""
        self.process.send_signal(self.server.drain)
        try:
            status = await asyncio.to_thread(self.process.wait, DRAIN)
        except subprocess.TimeoutExpired:
            raise AssertionError(self._says(f"had not ended {DRAIN:g} s after {self.server.drain.name}")) from None
        await self.kill()
        assert status == 0 or not self.server.graceful, self._says(f"ended with status {status}")

    def reload(self):
        """Make the server reload its configuration."""
        self.process.send_signal(self.server.reload)

    async def freeze(self):
        """Suspend the server's processes. The kernel still accepts connections, but nothing answers."""
        self._signal_all(signal.SIGSTOP)
        await asyncio.to_thread(os.waitid, os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)
        await asyncio.sleep(TAKES_HOLD)

    async def thaw(self):
        """Resume the server's processes."""
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


async def serves(port):
    """Return whether a server sends its SETTINGS; etcd accepts connections some time before that."""
    try:
        async with asyncio.timeout(1.0):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(writer):
                writer.write(PREFACE)
                return await reader.read(1) != b""
    except (OSError, TimeoutError):
        return False


@contextlib.asynccontextmanager
async def running(server, folder, **settings):
    """Run a server, whose processes have all ended when the context is left; yield it once it serves."""
    process = Running(server, folder, **settings)
    try:
        await process.start()
        yield process
    finally:
        await process.kill()
