"""`python -m interop verify`: a committed run against a fresh one, or one file against another."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from interop.clients.findings import read_findings
from interop.clients.peer import find_peers
from interop.conformance import CLAUSES
from interop.matrix.comparison import TOLERANCE, Difference, compare, versions_changed
from interop.matrix.results import to_summary
from interop.matrix.run import run_all
from interop.matrix.view import MatrixView
from interop.runner.manifest import ManifestError
from interop.runner.until_told import run_to_the_end
from interop.runner.written import write

__all__ = ["verify"]

_TRIES = 3
"""How often a failure that a run did not show is looked for again."""

_Json = dict[str, Any]
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(epilog=TOLERANCE)
@click.argument("old", type=_FILE)
@click.option("--against", "new", type=_FILE, help="Compare with this file; run nothing.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write the fresh verdicts here.")
@click.pass_context
def verify(context: click.Context, old: Path, new: Path | None, file: Path | None) -> None:
    """Run afresh what the file OLD has verdicts of, and say what differs.

    OLD is what `run --json` or `run --report` wrote. The fresh run has the same clients, clauses and length. A failure
    that it does not show is looked for again, up to three times, since what a client does by chance does not always
    show; one that appears, and that is known of the client, is named. The exit status is 1 if anything else differs.
    Other versions of what was judged are named, and are no difference.
    """
    before = _read(old)
    try:
        after = _read(new) if new is not None else run_to_the_end(_fresh(before))
        differences = compare(before, after)
    except (ManifestError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    except (KeyError, TypeError) as error:
        raise click.ClickException(f"{new or old} holds no results of this suite: {error!r}") from error
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
    """Return those failures that appear and that are known of the client, and all other differences."""
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
        raise click.ClickException(f"{path} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise click.ClickException(f"{path} holds no results of this suite")
    return found


async def _fresh(old: _Json) -> _Json:
    """Run what the older run had, and look again for failures that are not there."""
    peers = [peer["name"] for peer in old["peers"] if not peer["missing"]]
    new = await _run(peers, [clause["name"] for clause in old["clauses"]], full=old["full"])
    for _ in range(_TRIES):
        vanished = [difference for difference in compare(old, new) if difference.vanished]
        if not vanished:
            break
        for peer in dict.fromkeys(difference.peer for difference in vanished):
            concerned = [difference for difference in vanished if difference.peer == peer]
            again = await _run([peer], [difference.clause for difference in concerned], full=old["full"])
            _take_failures(new, again, concerned)
    return new


async def _run(names: Sequence[str], clauses: Sequence[str], *, full: bool) -> _Json:
    """Run what there is of these."""
    peers = [peer for peer in find_peers() if peer.name in names]
    return to_summary(await run_all(peers, [each for each in CLAUSES if each.name in clauses], MatrixView(), full=full))


def _take_failures(new: _Json, again: _Json, vanished: Iterable[Difference]) -> None:
    """Put the verdicts of another run in place of those whose failure had not shown."""
    found = {(peer["name"], each["clause"]): each for peer in again["peers"] for each in peer["verdicts"]}
    wanted = {(each.peer, each.clause): found.get((each.peer, each.clause)) for each in vanished}
    for peer in new["peers"]:
        peer["verdicts"] = [wanted.get((peer["name"], each["clause"])) or each for each in peer["verdicts"]]
