"""The verdicts on the reference client's defects over several rounds, and the table that shows them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpc_judge.clients.reference.defects import DEFECTS, Defect
from grpc_judge.conformance import Outcome, Verdict

RIGHT = "none"
"""The name under which the correct client is judged."""
_NO_DEFECT = Defect(clauses=(), says="a correct client", changes={})
_HEADINGS = ("defect", "what it is", "clauses that should fail", "rounds as expected", "other clauses that failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdicts on one defect in all rounds.

    Attributes:
        name: the name of the defect; "none" for the correct client.
        expected: the clauses that should fail.
        rounds: how many times it was judged.
        seen: the number of rounds in which at least one expected clause failed and no other clause did; for the correct
            client, the number of rounds in which no clause failed.
        others: how many times each other clause failed.
        inconclusive: how many verdicts were inconclusive because the judge was late.
        wrong: the verdicts of the other clauses, as text.
    """

    name: str
    expected: tuple[str, ...]
    rounds: int
    seen: int
    others: Mapping[str, int]
    inconclusive: int
    wrong: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """Whether an expected clause failed in every round, and no other clause failed in any round."""
        return not self.others and self.seen == self.rounds

    def __str__(self) -> str:
        """Return the verdicts as one line of text."""
        others = "".join(f", {clause} {count} times" for clause, count in self.others.items())
        late = f", {self.inconclusive} inconclusive" if self.inconclusive else ""
        expected = " ".join(self.expected) or "no clause"
        return f"{self.name}: {expected} in {self.seen} of {self.rounds}{others}{late}"


def judged(name: str, rounds: Sequence[Sequence[Verdict]]) -> Judged:
    """Combine the verdicts of several rounds on one defect."""
    expected = DEFECTS.get(name, _NO_DEFECT).clauses
    failed = [{verdict.clause: verdict for verdict in each if verdict.outcome is Outcome.FAIL} for each in rounds]
    wrong = [verdict for each in failed for clause, verdict in each.items() if clause not in expected]
    passed = [any(verdict.outcome is Outcome.PASS for verdict in each) for each in rounds]
    seen = sum(
        conclusive and not each.keys() - set(expected) and bool(each) == bool(expected)
        for conclusive, each in zip(passed, failed, strict=True)
    )
    return Judged(
        name=name,
        expected=expected,
        rounds=len(rounds),
        seen=seen,
        others=dict(Counter(verdict.clause for verdict in wrong)),
        inconclusive=sum(verdict.outcome is Outcome.INCONCLUSIVE for each in rounds for verdict in each),
        wrong=tuple(f"{verdict.clause}: {verdict}" for verdict in wrong),
    )


def table(found: Iterable[Judged]) -> str:
    """Return the verdicts as a Markdown table."""
    return "\n".join(_line(cells) for cells in _rows(found)) + "\n"


def has_place(page: Path, command: str) -> bool:
    """Return whether the page contains the two comments that name the command."""
    return _place(command).search(page.read_text("utf-8")) is not None


def insert(page: Path, command: str, text: str) -> None:
    """Write `text` between the two comments that name the command, replacing what was there."""
    page.write_text(_place(command).sub(lambda _: f"\n{text}\n", page.read_text("utf-8")), "utf-8")


def _place(command: str) -> re.Pattern[str]:
    begin, end = f"<!-- begin: {command} -->\n", f"<!-- end: {command} -->"
    return re.compile(f"(?<={re.escape(begin)}).*?(?={re.escape(end)})", re.DOTALL)


def _rows(found: Iterable[Judged]) -> Iterator[Sequence[str]]:
    yield _HEADINGS
    yield ["---"] * len(_HEADINGS)
    for each in found:
        defect = DEFECTS.get(each.name, _NO_DEFECT)
        others = ", ".join(f"{clause} {count}" for clause, count in each.others.items())
        says = f"{defect.says} (small)" if defect.full else defect.says
        yield each.name, says, ", ".join(each.expected), f"{each.seen} of {each.rounds}", others


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")
