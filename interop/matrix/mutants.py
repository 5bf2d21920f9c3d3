"""`python -m interop mutants`: tests the judge, which must detect each defect of the reference client and no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from interop.clients.peer import Peer, find_peers
from interop.clients.reference.defects import DEFECTS, Defect
from interop.conformance import CLAUSES, Outcome, Scenario
from interop.matrix.results import PeerResult
from interop.matrix.run import run_all
from interop.matrix.view import MatrixView
from interop.runner.choice import split
from interop.runner.until_told import run_to_the_end
from interop.runner.written import machine, write

__all__ = ["Judged", "mutants"]

_RIGHT = "none"
_SHORT = (
    _RIGHT,
    "initial-double",
    "multiplier-2.0",
    "cap-half",
    "jitter-none",
    "from-end",
    "reset-at-tls",
    "reset-never",
    "timeout-double",
    "goaway-flood",
    "refused-flood",
    "reset-flood",
    "refused-streams-fail",
    "reports-none-lost",
)
"""The defects of `--short`: one for each way of judging."""
_AT_ONCE = 16
_TIMED = (Scenario.HANG_UP, Scenario.STEADY)
"""The scenarios that a client's own schedule is fitted to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdicts on one defect, over all rounds.

    Attributes:
        name: the name of the defect; "none" for the correct client.
        expected: the clauses that should fail.
        rounds: how often it was judged.
        seen: in how many rounds one of these failed, and no other.
        others: how often each other clause failed.
        inconclusive: how many verdicts were inconclusive because the judge was late.
    """

    name: str
    expected: tuple[str, ...]
    rounds: int
    seen: int
    others: Mapping[str, int]
    inconclusive: int

    @property
    def right(self) -> bool:
        """Whether an expected clause failed in each round, and no other clause ever."""
        return not self.others and self.seen == self.rounds

    def __str__(self) -> str:
        """Return the verdicts in one line."""
        others = "".join(f", {clause} {count} times" for clause, count in self.others.items())
        late = f", {self.inconclusive} inconclusive" if self.inconclusive else ""
        expected = " ".join(self.expected) or "no clause"
        return f"{self.name}: {expected} in {self.seen} of {self.rounds}{others}{late}"


@click.command()
@click.option("--defects", "names", multiple=True, metavar="NAME", help="Judge only this defect; may be repeated.")
@click.option("--rounds", type=click.IntRange(min=1), default=1, help="How often to judge each defect.")
@click.option("--full", is_flag=True, help="As long as the full run; otherwise, small defects may be missed.")
@click.option("--own", is_flag=True, help="Run only the scenarios of the clauses that should fail.")
@click.option("--short", is_flag=True, help="Judge a few defects, each only in its own scenarios.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write the results to this file.")
@click.option("--at-once", type=click.IntRange(min=2), default=_AT_ONCE, help="How many processes run side by side.")
@click.pass_context
def mutants(
    context: click.Context,
    names: tuple[str, ...],
    rounds: int,
    full: bool,
    own: bool,
    short: bool,
    file: Path | None,
    at_once: int,
) -> None:
    """Judge the reference client, without any defect and with each one.

    The exit status is 0 if each defect fails one of the clauses meant for it and no other, and the correct client none.
    """
    if short and (names or full):
        raise click.UsageError("--short goes with neither --defects nor --full")
    chosen = _chosen(_SHORT if short else names)
    judged: dict[str, list[PeerResult]] = {name: [] for name in chosen}
    for _ in range(rounds):
        results = run_to_the_end(
            run_all(
                [_peer(name) for name in chosen],
                CLAUSES,
                MatrixView(),
                full=full,
                at_once=at_once,
                loud=False,
                wanted=_own_scenarios(chosen) if own or short else None,
            )
        )
        for result in results.peers:
            judged[result.name].append(result)
    found = [_judged(name, results) for name, results in judged.items()]
    for each in found:
        click.echo(str(each))
    wrong = [each for each in found if not each.right and (each.others or _has_to_be_seen(each, full=full))]
    click.echo(f"{len(found)} judged, {len(wrong)} wrong: {', '.join(each.name for each in wrong) or 'none'}")
    if file is not None:
        write({"machine": machine(), "full": full, "defects": [_plain(each) for each in found]}, file)
    context.exit(1 if wrong else 0)


def _has_to_be_seen(judged: Judged, *, full: bool) -> bool:
    return full or judged.name == _RIGHT or not DEFECTS[judged.name].full


def _plain(judged: Judged) -> dict[str, Any]:
    return {name: getattr(judged, name) for name in Judged.__slots__}


def _chosen(given: Iterable[str]) -> list[str]:
    wanted, known = split(given), [_RIGHT, *DEFECTS]
    for name in sorted(wanted):
        if name not in known:
            raise click.ClickException(f"--defects={name}: expected one of {', '.join(known)}")
    return [name for name in known if not wanted or name in wanted]


def _own_scenarios(names: Iterable[str]) -> dict[str, set[Scenario]]:
    """Return the scenarios of each defect's own clauses; for the correct client, those of all of them."""
    own = {
        name: {clause.scenario for clause in CLAUSES if clause.name in DEFECTS[name].clauses} | set(_TIMED)
        for name in names
        if name in DEFECTS
    }
    return {_RIGHT: set(_TIMED).union(*own.values()), **own}


def _peer(name: str) -> Peer:
    reference = next(peer for peer in find_peers() if peer.name == "reference")
    if name == _RIGHT:
        return replace(reference, name=name)
    return replace(reference, name=name, command=(*reference.command, "--defect", name))


def _judged(name: str, results: Sequence[PeerResult]) -> Judged:
    defect = DEFECTS.get(name, Defect(clauses=(), says="", changes={}))
    failed = [{verdict.clause for verdict in result.verdicts if verdict.outcome is Outcome.FAIL} for result in results]
    others = Counter(clause for each in failed for clause in each.difference(defect.clauses))
    passed = [any(verdict.outcome is Outcome.PASS for verdict in result.verdicts) for result in results]
    seen = sum(
        judged and not each.difference(defect.clauses) and bool(each) == bool(defect.clauses)
        for judged, each in zip(passed, failed, strict=True)
    )
    return Judged(
        name=name,
        expected=defect.clauses,
        rounds=len(results),
        seen=seen,
        others=dict(others),
        inconclusive=sum(each.outcome is Outcome.INCONCLUSIVE for result in results for each in result.verdicts),
    )
