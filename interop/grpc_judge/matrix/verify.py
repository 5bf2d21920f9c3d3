"""Compares committed results with a new run, or two files with each other: `python -m interop verify`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from grpc_judge.clients.findings import read_findings
from grpc_judge.clients.peer import find_peers
from grpc_judge.conformance import CLAUSES
from grpc_judge.matrix.comparison import TOLERANCE, Difference, compare, versions_changed
from grpc_judge.matrix.results import to_summary
from grpc_judge.matrix.run import run_all
from grpc_judge.matrix.view import MatrixView
from grpc_judge.runner.until_told import run_to_the_end
from grpc_judge.runner.written import write

_TRIES = 3
"""How many further runs to make for a failure that only one of the runs saw."""

_Json = dict[str, Any]
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(epilog=TOLERANCE)
@click.argument("old", type=_FILE)
@click.option("--against", "new", type=_FILE, help="Compare with this file instead of a new run.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write the new verdicts here.")
@click.pass_context
def verify(context: click.Context, old: Path, new: Path | None, file: Path | None) -> None:
    """Repeat the run recorded in the file OLD and print what differs.

    OLD was written by `run --json` or `run --report`. The new run has the same clients, clauses and length. Some
    failures depend on chance, so if only one of the two runs shows a failure, that part runs again until both agree, up
    to three times. A new failure that the client's findings mention is listed, but is not an error. Changed versions of
    clients are listed too, and are not an error. The exit status is 1 if anything else differs.
    """
    before = _read(old)
    try:
        after = _read(new) if new is not None else run_to_the_end(_fresh(before))
        differences = compare(before, after)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    except (KeyError, TypeError) as error:
        raise click.ClickException(f"{new or old} has no results of this suite: {error!r}") from error
    if file is not None:
        write(after, file)
    for changed in versions_changed(before, after):
        click.echo(f"another version: {changed}")
    known, unknown = _sorted(differences)
    for difference in known:
        click.echo(f"by chance, as its findings say: {difference}")
    for difference in unknown:
        click.echo(f"DIFFERS {difference}")
    verdicts = sum(len(peer["verdicts"]) for peer in before["peers"])
    click.echo(f"{verdicts} verdicts, {len(unknown)} differ")
    context.exit(1 if unknown else 0)


def _sorted(differences: Iterable[Difference]) -> tuple[list[Difference], list[Difference]]:
    """Split the differences into new failures that the client's findings explain, and all others."""
    findings = {peer.name: read_findings(peer.folder) for peer in find_peers()}
    known: list[Difference] = []
    unknown: list[Difference] = []
    for each in differences:
        said = any(each.clause in finding.clauses for finding in findings.get(each.peer, ()))
        (known if each.appeared and said else unknown).append(each)
    return known, unknown


def _read(path: Path) -> _Json:
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise click.ClickException(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise click.ClickException(f"{path} has no results of this suite")
    return found


async def _fresh(old: _Json) -> _Json:
    """Repeat the older run and then rerun each client and clause whose failure only one of the runs saw."""
    peers = [peer["name"] for peer in old["peers"] if not peer["missing"]]
    new = await _run(peers, [clause["name"] for clause in old["clauses"]], full=old["full"])
    for _ in range(_TRIES):
        doubtful = [each for each in compare(old, new) if each.vanished or each.appeared]
        if not doubtful:
            break
        for peer in dict.fromkeys(each.peer for each in doubtful):
            concerned = [each for each in doubtful if each.peer == peer]
            again = await _run([peer], [each.clause for each in concerned], full=old["full"])
            _take_verdicts(new, again, concerned)
    return new


async def _run(names: Sequence[str], clauses: Sequence[str], *, full: bool) -> _Json:
    """Run the clients and clauses with these names, except any that no longer exist."""
    peers = [peer for peer in find_peers() if peer.name in names]
    return to_summary(await run_all(peers, [each for each in CLAUSES if each.name in clauses], MatrixView(), full=full))


def _take_verdicts(new: _Json, again: _Json, doubtful: Iterable[Difference]) -> None:
    """Replace the verdicts in doubt with those of another run."""
    found = {(peer["name"], each["clause"]): each for peer in again["peers"] for each in peer["verdicts"]}
    wanted = {(each.peer, each.clause): found.get((each.peer, each.clause)) for each in doubtful}
    for peer in new["peers"]:
        peer["verdicts"] = [wanted.get((peer["name"], each["clause"])) or each for each in peer["verdicts"]]
