"""Finds the peers, which are the clients under test, by the manifests in the directories next to this file."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

from grpc_judge.runner.manifest import ManifestError, Table
from grpc_judge.runner.program import Program

_FOLDER = Path(__file__).parent


class Setting(enum.Enum):
    """A setting that a peer may support. The value is its name in manifests, and the argument is `--<value>-ms`."""

    INITIAL = "initial"
    MAX = "max"
    MIN_CONNECT_TIMEOUT = "min-connect-timeout"
    STABLE_AFTER = "stable-after"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer(Program):
    """A client under test, as its manifest describes it.

    Attributes:
        configurable: the settings that it supports.
        must_pass: whether the run fails if this peer fails.
        tls: whether it can use TLS.
        loud: whether it attempts to connect without any pause, and so floods every failing server.
    """

    configurable: frozenset[Setting]
    must_pass: bool = False
    tls: bool = True
    loud: bool = False

    def can_be_told(self, *settings: Setting) -> bool:
        """Return whether the peer supports all of these settings."""
        return self.configurable.issuperset(settings)


def find_peers(folder: Path = _FOLDER) -> list[Peer]:
    """Return the peers whose manifests are in this directory, sorted by name with those that must pass first.

    Raises:
        ManifestError: a manifest cannot be read.
    """
    peers = [read_peer(path) for path in folder.glob("*/peer.toml")]
    return sorted(peers, key=lambda peer: (not peer.must_pass, peer.name))


def read_peer(path: Path) -> Peer:
    """Return the peer that this manifest describes.

    Raises:
        ManifestError: the manifest cannot be read.
    """
    table = Table(path, {"configurable", "must_pass", "loud", "only_by_name"})
    return Peer(
        **table.common(),
        configurable=frozenset(_setting(path, name) for name in table.texts("configurable")),
        must_pass=table.flag("must_pass"),
        loud=table.flag("loud"),
        only_by_name=table.flag("only_by_name"),
    )


def _setting(path: Path, name: str) -> Setting:
    try:
        return Setting(name)
    except ValueError:
        known = ", ".join(setting.value for setting in Setting)
        raise ManifestError(f"{path}: configurable={name!r}: expected one of {known}") from None
