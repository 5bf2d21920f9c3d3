"""Whether two runs agree: the JSON of each in, what differs out.

Verdicts have to be equal. Of a clause that is missed in both, the figure has to be alike: a count by no more than a
factor, and a time has to miss on the same side by a like part of the bound that it misses. The figures of what holds
are inside their bands, which is all that is asked of them, since they are jittered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["TOLERANCE", "Difference", "compare", "versions_changed"]

_FACTORS = {"attempts": 2.0, "calls": 4.0, "connections": 10.0, "clients": 1.0, "times": 1.5}
"""By what unit. How many calls are lost depends on which were running at the moment; how fast a flood is, on whether
a client sees each end of a connection before or after its SETTINGS."""
_BY_CHANCE = {"jitter-does-not-compound"}
"""Clauses of which the figure says nothing: which gap drifts out of its band, and on which side."""
_PART = 0.5

TOLERANCE = (
    "Verdicts are equal. Where a clause is missed, a count differs by no more than a factor (of attempts "
    f"{_FACTORS['attempts']:g}, of calls {_FACTORS['calls']:g}, of connections {_FACTORS['connections']:g}) and one on "
    "top; a time misses on the same side, and its part of the bound that it misses differs by no more than "
    f"{_PART:g}. Of {', '.join(sorted(_BY_CHANCE))} the figure is chance, and not compared."
)
"""In words, for those who read results."""

_Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What two runs do not agree on.

    Attributes:
        peer: whose it is.
        clause: which; empty if a whole peer is missing in one of them.
        old: what the older run says, in words.
        new: what the newer one says.
        vanished: whether the older one saw a failure that the newer one did not see. What a client does by chance does
            not show in every run, so a failure that was seen weighs more than one that was not.
        appeared: whether it is the other way round.
    """

    peer: str
    clause: str
    old: str
    new: str
    vanished: bool = False
    appeared: bool = False

    def __str__(self) -> str:
        """Say it in a line."""
        return f"{' '.join(filter(None, (self.peer, self.clause)))}: was {self.old}; is {self.new}"


def compare(old: _Json, new: _Json) -> list[Difference]:
    """Return what differs, in the order of the older run."""
    return list(_differences(old, new))


def versions_changed(old: _Json, new: _Json) -> Iterator[str]:
    """Yield, in words, what was of another version: a good reason for another verdict."""
    newer = {peer["name"]: peer["versions"] for peer in new["peers"]}
    for peer in old["peers"]:
        for name, version in peer["versions"].items():
            now = newer.get(peer["name"], {}).get(name)
            if now is not None and now != version:
                yield f"{peer['name']}: {name} {version}, now {now}"


def _differences(old: _Json, new: _Json) -> Iterator[Difference]:
    newer = {peer["name"]: peer for peer in new["peers"]}
    for peer in old["peers"]:
        yield from _of_peer(peer, newer.pop(peer["name"], None))
    for peer in newer.values():
        if not peer["missing"]:
            yield Difference(peer=peer["name"], clause="", old="not judged", new="judged")


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
    if old["figure"] is None or new["figure"] is None:  # the program broke down, or did not
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
    """Return what the figure is of the bound that it misses."""
    bound = figure["allowed"]["low" if _too_low(figure) else "high"]
    return figure["seen"] / bound if bound else math.inf
