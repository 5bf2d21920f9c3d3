"""`python -m interop run`: every peer in every scenario, and what is to be said of it.

Peers do not all perform at once: what one does must not be the reason why another one is late. They come in groups, and
the members of a group load first and begin together.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import click

from interop.conformance import CLAUSES, Absent, Clause, Evidence, Scenario, judge
from interop.peers.manifest import BuildError, ManifestError, Peer, build, find_peers
from interop.peers.process import PeerError
from interop.results import PeerResult, Results, to_json
from interop.scenarios import STAGINGS, Pace
from interop.trial import Trial, Trust
from interop.view import View

__all__ = ["REQUIRE_PEERS", "groups", "run", "run_all"]

REQUIRE_PEERS = "GRPC_BACKOFF_REQUIRE_PEERS"
"""The environment variable that makes a missing peer a failure, if it is 1."""

_AT_ONCE = 4 * (os.cpu_count() or 1)
"""How many processes perform side by side. They sleep nearly all the time."""

_OVERHEAD = 180.0
"""What a trial may take beyond its time for calls, in seconds: the slowest start, and the slowest end."""

Found = dict[Scenario, Evidence | Absent]


@click.command()
@click.option("--peers", "names", multiple=True, metavar="NAME", help="Only this peer; may be given again.")
@click.option(
    "--rules", multiple=True, metavar="RULE", help="Only this rule (CB-5) or clause (growth); may be given again."
)
@click.option("--full", is_flag=True, help="In real time, for the 540 s of the official test.")
@click.option("--json", "file", type=click.Path(dir_okay=False, path_type=Path), help="Write everything here.")
@click.option("--report", "folder", type=click.Path(file_okay=False, path_type=Path), help="Write a report here.")
@click.option("--at-once", type=click.IntRange(min=2), default=_AT_ONCE, help="How many processes, side by side.")
@click.pass_context
def run(
    context: click.Context,
    names: tuple[str, ...],
    rules: tuple[str, ...],
    full: bool,
    file: Path | None,
    folder: Path | None,
    at_once: int,
) -> None:
    """Put clients before servers that fail in every way, and say rule by rule how they connect.

    Time is compressed for clients that can be told shorter backoffs. The exit status is 0 if this project's own client
    passes every clause, else 1; what others fail is a result, not an error. A client that is missing on this machine is
    left out, which is an error only if the environment has GRPC_BACKOFF_REQUIRE_PEERS=1.
    """
    try:
        peers, clauses = choose_peers(find_peers(), names), choose_clauses(rules)
    except (ManifestError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    view = View()
    results = asyncio.run(run_all(peers, clauses, view, full=full, at_once=at_once))
    view.show(results)
    if file is not None:
        file.write_text(json.dumps(to_json(results), indent=1) + "\n")
    if folder is not None:
        from interop.report import write_report  # noqa: PLC0415 - matplotlib takes its time

        write_report(results, folder)
    context.exit(0 if results.passed(require_peers=os.environ.get(REQUIRE_PEERS) == "1") else 1)


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


async def run_all(
    peers: Sequence[Peer], clauses: Sequence[Clause], view: View, *, full: bool = False, at_once: int = _AT_ONCE
) -> Results:
    """Let every peer perform in the scenarios of these clauses, and judge it."""
    began = datetime.now(UTC).astimezone()
    missing = {peer.name: reason for peer in peers if (reason := await _lacks(peer))}
    there = [peer for peer in peers if peer.name not in missing]
    scenarios = sorted({clause.scenario for clause in clauses}, key=list(Scenario).index)
    found: defaultdict[str, Found] = defaultdict(dict)
    versions: dict[str, Mapping[str, str]] = {}
    together = list(groups(_trials(there, scenarios, found, full=full), at_once))
    with tempfile.TemporaryDirectory() as folder, view.progress(together) as begins:
        trust = Trust.make(Path(folder))
        for group in together:
            begins(group)
            for trial, outcome in zip(group, await _perform(group, trust), strict=True):
                evidence, used = outcome
                found[trial.peer.name][trial.staging.scenario] = evidence
                versions.setdefault(trial.peer.name, used)
    results = [
        PeerResult(
            name=peer.name,
            must_pass=peer.must_pass,
            missing=missing.get(peer.name, ""),
            versions=versions.get(peer.name, {}),
            evidence=found[peer.name],
            paces={scenario: STAGINGS[scenario].pace_for(peer, full=full) for scenario in scenarios},
            verdicts=judge(found[peer.name], clauses),
        )
        for peer in peers
    ]
    return Results(began=began, full=full, clauses=tuple(clauses), peers=tuple(results))


async def _lacks(peer: Peer) -> str:
    """Return what keeps the peer from performing; empty if nothing does."""
    if peer.missing:
        return peer.missing
    try:
        await build(peer)
    except BuildError as error:
        return str(error)
    return ""


def _trials(
    peers: Iterable[Peer], scenarios: Sequence[Scenario], found: Mapping[str, Found], *, full: bool
) -> Iterator[Trial]:
    """Yield what is to be performed; of what cannot be, note why."""
    for peer in peers:
        for scenario in scenarios:
            staging = STAGINGS[scenario]
            if peer.can_be_told(*staging.demands):
                yield Trial(peer=peer, staging=staging, pace=staging.pace_for(peer, full=full))
            else:
                option = ", ".join(setting.value for setting in staging.demands)
                found[peer.name][scenario] = Absent(f"the client has no such option ({option})")


def groups(trials: Iterable[Trial], at_once: int) -> Iterator[list[Trial]]:
    """Yield what is performed together: what takes about as long, so many processes at a time.

    What may become a flood is performed alone, and those that floods hit hardest do not wait beside those in real time,
    some of which flood every server.
    """
    ordered = sorted(trials, key=lambda trial: (trial.pace is Pace.COMPRESSED, -trial.seconds))
    yield from ([trial] for trial in ordered if _is_loud(trial))
    for _, alike in groupby((trial for trial in ordered if not _is_loud(trial)), key=lambda trial: trial.pace):
        group: list[Trial] = []
        for trial in alike:
            if group and sum(each.staging.clients for each in group) + trial.staging.clients > at_once:
                yield group
                group = []
            group.append(trial)
        yield group


def _is_loud(trial: Trial) -> bool:
    return trial.staging.scenario is Scenario.FLAPPING


async def _perform(group: Sequence[Trial], trust: Trust) -> list[tuple[Evidence | Absent, Mapping[str, str]]]:
    start = asyncio.Barrier(len(group))

    async def one(trial: Trial) -> tuple[Evidence | Absent, Mapping[str, str]]:
        limit = trial.seconds + _OVERHEAD
        try:
            async with asyncio.timeout(limit):
                return await trial.perform(trust, start)
        except PeerError as error:
            return Absent(str(error), fault=True), {}
        except TimeoutError:
            return Absent(f"the trial was not over after {limit:g} s", fault=True), {}

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(one(trial)) for trial in group]
    return [task.result() for task in running]
