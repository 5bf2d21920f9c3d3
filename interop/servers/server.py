"""Which servers there are: reads the manifests beside this file, which are like those of peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interop.runner.manifest import ManifestError, Table
from interop.runner.program import Program
from interop.servers.happenings import Happening

__all__ = ["EMPTY_CALL", "Server", "find_servers"]

EMPTY_CALL = "/grpc.testing.TestService/EmptyCall"

_FOLDER = Path(__file__).parent
_KEYS = {"method", "proxy", "graceful", "happenings"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server(Program):
    """One server, as its manifest describes it.

    Attributes:
        method: what is called on it, with an empty message.
        proxy: whether it stands in front of another server.
        graceful: whether it loses no call when it is told to end; what it loses then is no fault of the client's.
        happenings: what can happen to it.
    """

    method: str = EMPTY_CALL
    proxy: bool = False
    graceful: bool = True
    happenings: tuple[Happening, ...]

    @property
    def delays(self) -> bool:
        """Whether it answers as late as it is told, so that calls can be in the midst of something."""
        return self.method == EMPTY_CALL


def find_servers(folder: Path = _FOLDER) -> list[Server]:
    """Return the servers whose manifests are in the folders of this one: proxies last, then by name.

    Raises:
        ManifestError: one of them cannot be read.
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
