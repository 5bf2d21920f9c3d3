"""The servers and proxies of other projects, which tests kill, drain, reload and freeze."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from grpc_judge.runner.program import Program
from grpc_judge.servers import find_servers
from tests import programs
from tests.proxies import PROXIES, Process, prepared, unused_port
from tests.proxies.process import UNTIL_INPUT_ENDS

HERE = Path(__file__).parent


def as_specified(port, *, max_age_ms, grace_ms, **_):
    """Return the arguments of the programs that `interop/grpc_judge/servers/README.md` specifies."""
    aged = ["--max-age-ms", max_age_ms] if max_age_ms else []
    return ["--port", port, *aged, *(["--grace-ms", grace_ms] if grace_ms else [])]


def etcd(port, *, folder, **_):
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{unused_port()}"
    return [
        *("--name", "one", "--data-dir", folder / "data", "--logger", "zap", "--log-level", "error"),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}"),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server(Program):
    """A server or a proxy.

    Attributes:
        arguments: returns the arguments of its command, given a port, a folder for its files, the age at which it ends
            connections, in milliseconds (None for never), and for how many more milliseconds calls may run then (None
            for the server's default). A proxy's are in `tests/proxies`.
        version: the command that prints its version; if there is none, it does so itself when it starts.
        method: the method that is called, with an empty message.
        proxy: the proxy of `tests/proxies` that stands in front of another server; None for a server.
        graceful: whether it ends without losing calls when it is told to; if not, the channel is not blamed for those.
        ages: whether it can end connections at an age.
        full: whether only `make interop-full` tests it.
        drain: the signal that ends it gracefully; None if there is none.
        reload: the signal that makes it reload its configuration; None if there is none.
    """

    arguments: Callable[..., Iterable[object]] = as_specified
    version: tuple[str, ...] = ()
    method: str = "/grpc.testing.TestService/EmptyCall"
    proxy: str | None = None
    graceful: bool = True
    ages: bool = True
    full: bool = False
    drain: signal.Signals | None = signal.SIGTERM
    reload: signal.Signals | None = signal.SIGHUP


def proxied(name):
    """Return a proxy of `tests/proxies`."""
    proxy = PROXIES[name]
    return Server(
        name=name,
        folder=HERE,
        command=(),
        programs=(proxy.program,),
        version=(proxy.program, proxy.version),
        build=proxy.build,
        proxy=name,
        ages=name in AGED,
        drain=proxy.drain,
        reload=proxy.reload,
    )


# The settings with which proxies end each connection when it is a second old.
AGED = {
    "envoy": {"manager": {"common_http_protocol_options": {"max_connection_duration": "1s"}, "drain_timeout": "1s"}},
    "nginx": {"server": "keepalive_time 1s;"},
}
GRPCIO = Server(
    name="grpcio server",
    folder=HERE,
    command=(*UNTIL_INPUT_ENDS, "{python}", "-m", "tests.interop_suite.servers.grpcio_server"),
    graceful=False,  # its core fails calls with CANCELLED that arrive while it stops
)
SERVERS = [
    Server(
        name="etcd",
        folder=HERE,
        command=(*UNTIL_INPUT_ENDS, "etcd"),
        programs=("etcd",),
        version=("etcd", "--version"),
        arguments=etcd,
        method="/etcdserverpb.Maintenance/Status",
        graceful=False,  # on SIGTERM, its connections break while calls are running
        ages=False,
    ),
    *(Server(**asdict(program)) for program in find_servers()),
    GRPCIO,
    *map(proxied, PROXIES),
]


class Running:
    """A server on a port of its own, which can be started there again after it was killed or drained."""

    def __init__(self, server, folder, *, upstream=None, max_age_ms=None, grace_ms=None, settings=None):
        self.server = server
        folder = folder / server.name.replace("/", " ")
        folder.mkdir()
        if server.proxy:
            self._process = prepared(server.proxy, upstream, folder, **(settings or {}))
        else:
            port = unused_port()
            arguments = server.arguments(port, folder=folder, max_age_ms=max_age_ms, grace_ms=grace_ms)
            command = [*server.filled(server.command), *map(str, arguments)]
            self._process = Process(server.name, command, port, folder, drain=server.drain, reload=server.reload)
        self.port = self._process.port

    @property
    def process(self):
        """The process, which tests watch."""
        return self._process.process

    async def start(self):
        """Start the server and wait until it serves."""
        await asyncio.to_thread(self._process.start)

    async def version(self):
        """Return the line in which the server says its version."""
        said = self._process.said
        if self.server.version:
            _, said = await programs.output(*self.server.version, within=10)
        lines = said.strip().splitlines()
        return next((line for line in lines if line.startswith("{")), lines[0])

    async def kill(self):
        """Kill the server with SIGKILL, with everything that it started; or what is left of it."""
        await asyncio.to_thread(self._process.kill)

    async def drain(self):
        """End the server gracefully."""
        status = await asyncio.to_thread(self._process.drain)
        assert status == 0 or not self.server.graceful, f"{self.server.name} ended with status {status}"

    def reload(self):
        """Make the server reload its configuration."""
        self._process.reload()

    def post(self, path):
        """Send a POST request to the port for its administration."""
        return asyncio.to_thread(self._process.post, path)

    async def freeze(self):
        """Suspend the server's processes. The kernel still accepts connections, but nothing answers."""
        await asyncio.to_thread(self._process.freeze)

    async def thaw(self):
        """Resume the server's processes."""
        self._process.thaw()


@contextlib.asynccontextmanager
async def running(server, folder, **settings):
    """Run a server, whose processes have all ended when the context is left; yield it once it serves."""
    process = Running(server, folder, **settings)
    try:
        await process.start()
        yield process
    finally:
        await process.kill()
