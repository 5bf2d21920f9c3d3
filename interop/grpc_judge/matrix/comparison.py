"""Compares two runs, given as JSON, and returns their differences.

Verdicts must be equal. If a clause fails in both runs, its figures must be similar. Counts must agree within a factor.
Times must miss their range on the same side, and by a similar fraction of the bound. Figures of clauses that hold are
not compared, because they are inside their ranges and vary with jitter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_FACTORS = {"attempts": 2.0, "calls": 4.0, "connections": 10.0, "clients": 1.0, "times": 1.5}
"""The allowed factor for each unit. The number of lost calls depends on which calls were running at that moment. The
rate of a flood depends on whether a client sees a connection end before or after its SETTINGS."""
_BY_CHANCE = {"jitter-does-not-compound"}
"""Clauses whose figure depends on chance, because any gap may leave its range on either side."""
_PART = 0.5

TOLERANCE = (
    "Verdicts must be equal. If a clause fails in both runs, its figures must be similar. The larger of two counts may "
    f"be at most the smaller one times a factor, plus one; the factor is {_FACTORS['attempts']:g} for attempts, "
    f"{_FACTORS['calls']:g} for calls and {_FACTORS['connections']:g} for connections. Times must miss their range on "
    "the same side; expressed as fractions of the bound that they miss, they may differ by at most "
    f"{_PART:g}. The figure of {', '.join(sorted(_BY_CHANCE))} depends on chance and is not compared."
)
"""A description of the tolerances for readers of the results."""

_Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One difference between two runs.

    Attributes:
        peer: the name of the peer.
        clause: the name of the clause; empty if a whole peer is missing in one of the runs.
        old: the result of the older run, as text.
        new: the result of the newer run, as text.
        vanished: whether only the older run saw a failure. Some failures depend on chance and do not occur in every
            run, so a run with a failure proves more than one without it.
        appeared: whether only the newer run saw a failure.
    """

    peer: str
    clause: str
    old: str
    new: str
    vanished: bool = False
    appeared: bool = False

    def __str__(self) -> str:
        """Return the difference as one line of text."""
        return f"{' '.join(filter(None, (self.peer, self.clause)))}: was {self.old}; is {self.new}"


def compare(old: _Json, new: _Json) -> list[Difference]:
    """Return the differences between two runs, in the order of the older run."""
    newer = {peer["name"]: peer for peer in new["peers"]}
    found = [each for peer in old["peers"] for each in _of_peer(peer, newer.pop(peer["name"], None))]
    added = (peer["name"] for peer in newer.values() if not peer["missing"])
    return [*found, *(Difference(peer=name, clause="", old="not judged", new="judged") for name in added)]


def versions_changed(old: _Json, new: _Json) -> Iterator[str]:
    """Yield a description of each changed version, which may explain a changed verdict."""
    newer = {peer["name"]: peer["versions"] for peer in new["peers"]}
    for peer in old["peers"]:
        for name, version in peer["versions"].items():
            now = newer.get(peer["name"], {}).get(name)
            if now is not None and now != version:
                yield f"{peer['name']}: {name} {version}, now {now}"


def _of_peer(old: _Json, new: _Json | None) -> Iterator[Difference]:
    if old["missing"]:
        if new is not None and not new["missing"]:
            yield Difference(peer=old["name"], clause="", old=f"left out, since {old['missing']}", new="judged")
        return
    if new is None or new["missing"]:
        why = "not judged" if new is None else f"left out, since {new['missing']}"
        yield Difference(peer=old["name"], clause="", old="judged", new=why)
        return
    verdicts = {verdict["clause"]: verdict for verdict in new["verdicts"]}
    for verdict in old["verdicts"]:
        other = verdicts.get(verdict["clause"])
        if other is None:
            yield Difference(peer=old["name"], clause=verdict["clause"], old=verdict["outcome"], new="not judged")
        elif not _alike(verdict, other):
            yield Difference(
                peer=old["name"],
                clause=verdict["clause"],
                old=_words(verdict),
                new=_words(other),
                vanished=verdict["outcome"] == "fail" and other["outcome"] != "fail",
                appeared=verdict["outcome"] != "fail" and other["outcome"] == "fail",
            )


def _words(verdict: _Json) -> str:
    return f"{verdict['outcome']} ({verdict['says']})"


def _alike(old: _Json, new: _Json) -> bool:
    if old["outcome"] != new["outcome"]:
        return False
    if old["outcome"] != "fail":
        return True
    if old["figure"] is None or new["figure"] is None:  # the program crashed in one of the runs
        return bool(old["figure"] == new["figure"])
    return old["clause"] in _BY_CHANCE or _figures_alike(old["figure"], new["figure"])


def _figures_alike(old: _Json, new: _Json) -> bool:
    if old["unit"] != new["unit"] or _too_low(old) != _too_low(new):
        return False
    if old["unit"] != "s":
        few, many = sorted(abs(figure["seen"]) for figure in (old, new))
        return bool(many <= _FACTORS[old["unit"]] * few + 1)
    return abs(_part(old) - _part(new)) <= _PART


def _too_low(figure: _Json) -> bool:
    low = figure["allowed"]["low"]
    return bool(low is not None and figure["seen"] < low)


def _part(figure: _Json) -> float:
    """Return the figure as a fraction of the bound that it missed."""
    bound = figure["allowed"]["low" if _too_low(figure) else "high"]
    return figure["seen"] / bound if bound else math.inf
