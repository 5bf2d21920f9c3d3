"""What a command line asks for: which peers, and which clauses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from interop.conformance import CLAUSES, Clause
from interop.peers.manifest import Peer

__all__ = ["choose_clauses", "choose_peers"]


def choose_peers(peers: Sequence[Peer], names: Iterable[str]) -> list[Peer]:
    """Return the peers of these names, or of these folders; all of them if there are none.

    Raises:
        ValueError: there is no such peer.
    """
    wanted = _split(names)
    for name in wanted:
        if not any(name in (peer.name, peer.folder.name) for peer in peers):
            raise ValueError(f"--peers {name}: there are {', '.join(peer.name for peer in peers)}")
    return [peer for peer in peers if not wanted or wanted & {peer.name, peer.folder.name}]


def choose_clauses(rules: Iterable[str]) -> list[Clause]:
    """Return the clauses of these rules, or of these names; all of them if there are none.

    Raises:
        ValueError: there is no such rule.
    """
    wanted = _split(rules)
    for rule in wanted:
        if not any(rule in (clause.name, clause.rule) for clause in CLAUSES):
            known = sorted({clause.rule for clause in CLAUSES}) + [clause.name for clause in CLAUSES]
            raise ValueError(f"--rules {rule}: there are {', '.join(known)}")
    return [clause for clause in CLAUSES if not wanted or wanted & {clause.name, clause.rule}]


def _split(given: Iterable[str]) -> set[str]:
    return {name.strip() for each in given for name in each.split(",") if name.strip()}
