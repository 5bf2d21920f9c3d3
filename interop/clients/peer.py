"""The peers, which are the clients that are judged: reads the manifests in the directories beside this file."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

from interop.runner.manifest import ManifestError, Table
from interop.runner.program import Program

__all__ = ["Peer", "Setting", "find_peers"]

_FOLDER = Path(__file__).parent


class Setting(enum.Enum):
    """A setting of a peer. The value is its name in manifests; the argument is `--<value>-ms`."""

    INITIAL = "initial"
    MAX = "max"
    MIN_CONNECT_TIMEOUT = "min-connect-timeout"
    STABLE_AFTER = "stable-after"
    HOLD = "hold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer(Program):
    """One client.

    Attributes:
        configurable: its settings.
        must_pass: whether a failure of this peer is a failure of the run.
        loud: whether it makes attempts without a pause in between, so that it floods every failing server.
    """

    configurable: frozenset[Setting]
    must_pass: bool = False
    loud: bool = False

    def can_be_told(self, *settings: Setting) -> bool:
        """Return whether it has all of these settings."""
        return self.configurable.issuperset(settings)


def find_peers(folder: Path = _FOLDER) -> list[Peer]:
    """Return the peers whose manifests are in this directory: those that must pass first, then by name.

    Raises:
        ManifestError: one of them cannot be read.
    """
    peers = [_read(path) for path in folder.glob("*/peer.toml")]
    return sorted(peers, key=lambda peer: (not peer.must_pass, peer.name))


def _read(path: Path) -> Peer:
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
