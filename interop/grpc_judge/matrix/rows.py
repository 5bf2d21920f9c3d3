"""What a table says about one clause: the verdict, what was seen, what is allowed, by how much, and what to read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from grpc_judge.conformance import Clause, Outcome, Verdict
from grpc_judge.matrix.results import Demands, PeerResult, Results

HEADINGS = ("rule", "clause", "level", "verdict", "seen", "allowed", "missed by")
"""The headings of the fields of a row, except for its reading."""


class Row(NamedTuple):
    """One clause and one client, as text.

    Attributes:
        verdict: "pass", "FAIL", "known" for a failure that is allowed, "advice" for one of a recommendation, "not
            asked" or "late".
        read: the address of the document that the clause follows.
    """

    rule: str
    clause: str
    level: str
    verdict: str
    seen: str
    allowed: str
    missed_by: str
    read: str


def rows(peer: PeerResult, results: Results, demands: Demands) -> Iterator[Row]:
    """Yield a row for each clause that was judged; `demands` tells which failures count."""
    for clause in results.clauses:
        verdict = peer.verdict_on(clause)
        figure = None if verdict.reason else next(iter([*verdict.missed, *verdict.measures[::-1]]), None)
        yield Row(
            rule=clause.rule,
            clause=clause.name,
            level=clause.level.value,
            verdict=_word(clause, verdict, demands),
            seen=verdict.reason if figure is None else figure.shown,
            allowed="" if figure is None else figure.allowance,
            missed_by="" if figure is None or not figure.missed_by else figure.unit.count(figure.missed_by),
            read=clause.source,
        )


def _word(clause: Clause, verdict: Verdict, demands: Demands) -> str:
    if verdict.outcome is Outcome.FAIL:
        if demands.allow(clause):
            return "known"
        return "FAIL" if demands.require(clause) else "advice"
    return {Outcome.PASS: "pass", Outcome.NOT_APPLICABLE: "not asked", Outcome.INCONCLUSIVE: "late"}[verdict.outcome]
