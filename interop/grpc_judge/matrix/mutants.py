"""Tests the judge (`python -m interop mutants`): it must find each defect of the reference client, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import click

from grpc_judge.clients.peer import Peer, find_peers
from grpc_judge.clients.reference.defects import DEFECTS
from grpc_judge.conformance import CLAUSES, Scenario, Verdict
from grpc_judge.conformance.scenario import SCHEDULE
from grpc_judge.matrix.judged import RIGHT, Judged, has_place, insert, judged, table
from grpc_judge.matrix.run import run_all
from grpc_judge.matrix.view import MatrixView
from grpc_judge.runner.program import split
from grpc_judge.runner.until_told import run_to_the_end
from grpc_judge.runner.written import machine, write

_SHORT = (
    RIGHT,
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
"""The defects of `--short`: one for each method by which the judge detects a fault."""
_AT_ONCE = 16


@click.command()
@click.option("--defects", "names", multiple=True, metavar="NAME", help="Judge only this defect; may be repeated.")
@click.option("--rounds", type=click.IntRange(min=1), default=1, help="How often to judge each defect.")
@click.option("--full", is_flag=True, help="As long as the full run; otherwise, small defects may be missed.")
@click.option("--own", is_flag=True, help="Run only the scenarios of the clauses that should fail.")
@click.option("--short", is_flag=True, help="Judge a few defects, each only in its own scenarios.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write the results to this file.")
@click.option(
    "--page",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Insert the table into this page, between the two comments that name this command.",
)
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
    page: Path | None,
    at_once: int,
) -> None:
    """Judge the reference client without defects and with each defect.

    All rounds run concurrently. The exit status is 0 if each defect fails one of the clauses meant for it and no other
    clause, and if the correct client fails none.
    """
    if short and (names or full):
        raise click.UsageError("--short goes with neither --defects nor --full")
    command = f"python -m interop mutants{' --own' if own else ''}{' --full' if full else ''}"
    if page is not None and not has_place(page, command):
        raise click.ClickException(f"--page={page}: expected a page with the comment <!-- begin: {command} -->")
    chosen = _chosen(_SHORT if short else names)
    peers = [_peer(name, number) for number in range(1, rounds + 1) for name in chosen]
    scenarios = _own_scenarios(chosen) if own or short else None
    results = run_to_the_end(
        run_all(
            peers,
            CLAUSES,
            MatrixView(),
            full=full,
            at_once=at_once,
            loud=False,
            wanted=scenarios and {peer.name: scenarios[_defect(peer.name)] for peer in peers},
        )
    )
    verdicts: dict[str, list[Sequence[Verdict]]] = {name: [] for name in chosen}
    for result in results.peers:
        verdicts[_defect(result.name)].append(result.verdicts)
    found = [judged(name, each) for name, each in verdicts.items()]
    for each in found:
        click.echo(str(each))
    wrong = [each for each in found if not each.right and (each.others or _has_to_be_seen(each, full=full))]
    click.echo(f"{len(found)} judged, {len(wrong)} wrong: {', '.join(each.name for each in wrong) or 'none'}")
    if file is not None:
        write({"machine": machine(), "full": full, "defects": [asdict(each) for each in found]}, file)
    if page is not None:
        insert(page, command, table(found))
    context.exit(1 if wrong else 0)


def _has_to_be_seen(judged: Judged, *, full: bool) -> bool:
    return full or judged.name == RIGHT or not DEFECTS[judged.name].full


def _chosen(given: Iterable[str]) -> list[str]:
    wanted, known = split(given), [RIGHT, *DEFECTS]
    for name in sorted(wanted):
        if name not in known:
            raise click.ClickException(f"--defects={name}: expected one of {', '.join(known)}")
    return [name for name in known if not wanted or name in wanted]


def _own_scenarios(names: Iterable[str]) -> dict[str, set[Scenario]]:
    """Return what each defect's own clauses need; for the correct client, what all these clauses need."""
    own = {
        name: set(SCHEDULE).union(*(each.scenarios for each in CLAUSES if each.name in DEFECTS[name].clauses))
        for name in names
        if name in DEFECTS
    }
    return {RIGHT: set(SCHEDULE).union(*own.values()), **own}


def _peer(name: str, number: int) -> Peer:
    """Return the reference client with this defect, named after the defect and the round."""
    reference = next(peer for peer in find_peers() if peer.name == "reference")
    command = reference.command if name == RIGHT else (*reference.command, "--defect", name)
    return replace(reference, name=f"{name} {number}", command=command)


def _defect(name: str) -> str:
    """Return the name of the defect of the peer with this name."""
    return name.rpartition(" ")[0]
