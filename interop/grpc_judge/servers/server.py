"""Finds the servers and reads their manifests, which resemble those of peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grpc_judge.runner.manifest import ManifestError, Table
from grpc_judge.runner.program import Program
from grpc_judge.servers.happenings import Happening

EMPTY_CALL = "/grpc.testing.TestService/EmptyCall"

_FOLDER = Path(__file__).parent
_KEYS = {"method", "proxy", "graceful", "happenings"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server(Program):
    """A server, as its manifest describes it.

    Attributes:
        method: the method that is called, with an empty message.
        proxy: whether it is a proxy in front of another server.
        graceful: whether SIGTERM ends it without losing calls; if not, the client is not blamed for lost calls.
        happenings: what can happen to it.
    """

    method: str = EMPTY_CALL
    proxy: bool = False
    graceful: bool = True
    happenings: tuple[Happening, ...]

    @property
    def delays(self) -> bool:
        """Whether the server can delay its answers, so that calls are in progress when something happens."""
        return self.method == EMPTY_CALL


def find_servers(folder: Path = _FOLDER) -> list[Server]:
    """Return the servers with manifests in subfolders of `folder`, sorted by name, with proxies last.

    Raises:
        ManifestError: a manifest is not valid.
    """
    servers = [_read(path) for path in folder.glob("*/server.toml")]
    return sorted(servers, key=lambda server: (server.proxy, server.name.lower()))


def _read(path: Path) -> Server:
    table = Table(path, _KEYS)
    proxy = table.flag("proxy")
    possible = [happening.value for happening in Happening if proxy or not happening.for_proxies]
    return Server(
        **table.common(),
        method=table.text("method", EMPTY_CALL),
        proxy=proxy,
        graceful=table.flag("graceful", default=True),
        happenings=tuple(_happening(path, name, possible) for name in table.texts("happenings", possible)),
    )


def _happening(path: Path, name: str, possible: Sequence[str]) -> Happening:
    if name not in possible:
        raise ManifestError(f"{path}: happenings={name!r}: expected one of {', '.join(possible)}")
    return Happening(name)
