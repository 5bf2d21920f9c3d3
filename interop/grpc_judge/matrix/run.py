"""Runs every peer in every scenario and judges it: `python -m interop run`.

`schedule.py` decides which clients run concurrently.
"""

from __future__ import annotations

import asyncio
import shlex
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import click

from grpc_judge.clients.findings import read_findings
from grpc_judge.clients.peer import Peer, find_peers, read_peer
from grpc_judge.clients.plain import plain_peer
from grpc_judge.conformance import CLAUSES, Absent, Clause, Evidence, Outcome, Scenario, Verdict, judge
from grpc_judge.matrix.export import export
from grpc_judge.matrix.lag import LagWatch
from grpc_judge.matrix.results import Demands, PeerResult, Results, Status, to_json
from grpc_judge.matrix.scenarios import STAGINGS
from grpc_judge.matrix.schedule import AT_ONCE, Wave, waves
from grpc_judge.matrix.trial import Start, Trial, Trust
from grpc_judge.matrix.view import MatrixView
from grpc_judge.runner.build import build_all, peers_required
from grpc_judge.runner.process import ProgramError
from grpc_judge.runner.program import choose, split
from grpc_judge.runner.until_told import one_line_for, run_to_the_end
from grpc_judge.runner.written import write

SHORT = [clause for clause in CLAUSES if clause.scenario in {Scenario.HANG_UP, Scenario.OUTAGE}]
"""The clauses of `--short`: those about a server that hangs up at once, and about an outage."""

_FILE = click.Path(dir_okay=False, path_type=Path)

_OVERHEAD = 300.0
"""How many seconds a trial may take beyond the time for calls: its wave must get ready, and it may end slowly."""

_AGAIN = 2
"""How many times a trial is repeated if a clause is inconclusive, because the judge was late or the miss is small."""

Found = dict[Scenario, Evidence | Absent]
_Record = Callable[[Trial, Evidence | Absent, Mapping[str, str]], None]


def _in_a_checkout(_context: click.Context, _option: click.Parameter, folder: Path | None) -> Path | None:
    if folder is not None and find_spec("grpc_judge.matrix.report") is None:
        raise click.UsageError("--report needs a checkout of the repository; --html does not")
    return folder


@click.command(short_help="Run clients against failing servers and judge them.")
@click.option("--peers", "names", multiple=True, metavar="NAME", help="Run only this peer; may be repeated.")
@click.option(
    "--manifest",
    "manifests",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run the peer that this peer.toml describes; may be repeated.",
)
@click.option("--name", metavar="NAME", help="The name of COMMAND in the results; default: the program's.")
@click.option("--tls-args", default="", metavar="ARGS", help='How COMMAND uses TLS, such as "--ca {ca}".')
@click.option(
    "--backoff-args",
    default="",
    metavar="ARGS",
    help="How COMMAND's backoff is set: arguments with {initial_ms} and {max_ms}, optionally {min_connect_timeout_ms}.",
)
@click.option(
    "--rules", multiple=True, metavar="RULE", help="Judge only this rule (CB-5) or clause (growth); may be repeated."
)
@click.option("--allow", "allowed", multiple=True, metavar="CLAUSE", help="A known failure; may be repeated.")
@click.option(
    "--require",
    "required",
    multiple=True,
    metavar="CLAUSE",
    help="A recommended clause or rule (CB-7) whose failure counts as well; may be repeated.",
)
@click.option("--short", is_flag=True, help="Judge only two behaviours: a server that hangs up, and an outage.")
@click.option(
    "--full",
    is_flag=True,
    help="Run as long as the official test: 540 s, or a fifth of all its values for configurable clients.",
)
@click.option("--json", "file", type=_FILE, help="Write all results to this file.")
@click.option("--junit", type=_FILE, help="Write the verdicts to this file, as JUnit does.")
@click.option("--html", type=_FILE, help="Write the verdicts to this file, as a page that stands alone.")
@click.option(
    "--report",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    callback=_in_a_checkout,
    help="Write a report here; needs a checkout.",
)
@click.option(
    "--at-once", type=click.IntRange(min=2), default=AT_ONCE, help="How many processes run at once in compressed time."
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.pass_context
def run(
    context: click.Context,
    names: tuple[str, ...],
    manifests: tuple[Path, ...],
    name: str | None,
    tls_args: str,
    backoff_args: str,
    rules: tuple[str, ...],
    allowed: tuple[str, ...],
    required: tuple[str, ...],
    short: bool,
    full: bool,
    file: Path | None,
    junit: Path | None,
    html: Path | None,
    folder: Path | None,
    at_once: int,
    program: tuple[str, ...],
) -> None:
    """Run clients against servers that fail in every way and judge rule by rule how they connect.

    COMMAND is any program that calls {target} for {seconds} seconds. Without it, --peers and --manifest, all clients
    of this suite are run.

    Time is compressed for clients whose backoff can be configured. The exit status is 1 if a client that was chosen, or
    one of this project's own, fails a clause of the protocol, or of --require, that is not allowed to fail. It is 3 if
    nothing failed, but none of the clauses could be judged of such a client. Clients that are missing on
    this machine are left out; with GRPC_BACKOFF_REQUIRE_PEERS=1 in the environment, these and clients that crash are
    errors.
    """
    if short and (rules or full):
        raise click.UsageError("--short goes with neither --rules nor --full")
    if (name or tls_args or backoff_args) and not program:
        raise click.UsageError("--name, --tls-args and --backoff-args are for a COMMAND")
    with one_line_for(ValueError):
        peers: list[Peer] = [read_peer(path.resolve()) for path in manifests]
        if program:
            called = name or Path(program[0]).name
            peers.append(plain_peer(called, program, told=shlex.split(backoff_args), secured=shlex.split(tls_args)))
        named = bool(names or peers)
        if names or not named:
            peers += choose(find_peers(), "--peers", names)
        demands = Demands(allowed=split(allowed), required=split(required))
        choose_clauses(demands.allowed, "--allow")
        clauses = SHORT if short else choose_clauses(split(rules))
        choose_clauses(demands.required, "--require", among=clauses)
        view = MatrixView()
        results = run_to_the_end(run_all(peers, clauses, view, full=full, at_once=at_once))
    if named:
        view.show_each(results, demands)
    else:
        view.show(results)
    if file is not None:
        write(to_json(results), file)
    if folder is not None:
        from grpc_judge.matrix.report import write_report  # noqa: PLC0415 - the distribution does not have it

        write_report(results, folder)
    export(results, demands, junit=junit, html=html)
    status = results.status(require_peers=peers_required(), named=named, demands=demands)
    if status is Status.NOT_JUDGED:
        click.echo("Nothing failed, but no clause could be judged of one client or more.")
    context.exit(status)


def choose_clauses(wanted: Collection[str], flag: str = "--rules", among: Sequence[Clause] = CLAUSES) -> list[Clause]:
    """Return the clauses with these rules or names; all clauses if none are given. `flag` is for the error message.

    Raises:
        ValueError: a rule or clause does not exist.
    """
    for rule in wanted:
        if not any(rule in (clause.name, clause.rule) for clause in among):
            known = sorted({clause.rule for clause in among}) + [clause.name for clause in among]
            raise ValueError(f"{flag}={rule}: expected one of {', '.join(known)}")
    return [clause for clause in among if not wanted or {clause.name, clause.rule} & set(wanted)]


async def run_all(
    peers: Sequence[Peer],
    clauses: Sequence[Clause],
    view: MatrixView,
    *,
    full: bool = False,
    at_once: int = AT_ONCE,
    loud: bool = True,
    wanted: Mapping[str, Collection[Scenario]] | None = None,
) -> Results:
    """Build the peers, run each in the scenarios that these clauses need, and judge them.

    If clients are not `loud`, the scenarios with flapping servers also run concurrently. `wanted` limits the scenarios
    of each peer, by name; None means no limit.

    Raises:
        ManifestError: the findings of a peer cannot be read.
    """
    began, clock = datetime.now(UTC).astimezone(), time.monotonic()
    findings = {peer.name: read_findings(peer.folder) for peer in peers}
    built = list(zip(peers, await build_all(peers, view.built), strict=True))
    there = [peer for peer, each in built if not each.missing]
    scenarios = sorted(set().union(*(clause.scenarios for clause in clauses)), key=list(Scenario).index)
    found: defaultdict[str, Found] = defaultdict(dict)
    doubted: defaultdict[str, set[str]] = defaultdict(set)
    versions: dict[str, Mapping[str, str]] = {}
    needed = {scenario for clause in clauses for scenario in clause.needs}
    watched = [clause for clause in CLAUSES if clause in clauses or clause.scenario in needed]
    scenario_of = {clause.name: clause.scenario for clause in watched}

    def record(trial: Trial, evidence: Evidence | Absent, used: Mapping[str, str]) -> None:
        if isinstance(evidence, Evidence):
            evidence = replace(evidence, doubted=tuple(sorted(doubted[trial.peer.name])))
        found[trial.peer.name][trial.staging.scenario] = evidence
        if used:
            versions[trial.peer.name] = used

    every = _trials(there, scenarios, found, full=full)
    trials = [trial for trial in every if wanted is None or trial.staging.scenario in wanted[trial.peer.name]]
    await _perform_all(list(waves(trials, at_once, loud=loud)), view, record)
    for _ in range(_AGAIN):
        open_ones = {name: _inconclusive(evidence, watched) for name, evidence in found.items()}
        for name, verdicts in open_ones.items():
            doubted[name] |= {verdict.clause for verdict in verdicts if verdict.close}
        again = {(name, scenario_of[verdict.clause]) for name, each in open_ones.items() for verdict in each}
        repeated = [trial for trial in trials if (trial.peer.name, trial.staging.scenario) in again]
        if not repeated:
            break
        await _perform_all(list(waves(repeated, at_once, loud=loud)), view, record)
    results = [
        PeerResult(
            name=peer.name,
            must_pass=peer.must_pass,
            missing=each.missing,
            versions=versions.get(peer.name, {}),
            evidence=found[peer.name],
            paces={scenario: STAGINGS[scenario].pace_for(peer, full=full) for scenario in scenarios},
            verdicts=judge(found[peer.name], clauses),
            findings=findings[peer.name],
            folder=peer.folder,
        )
        for peer, each in built
    ]
    return Results(began=began, took=time.monotonic() - clock, full=full, clauses=tuple(clauses), peers=tuple(results))


def _trials(
    peers: Iterable[Peer], scenarios: Sequence[Scenario], found: Mapping[str, Found], *, full: bool
) -> Iterator[Trial]:
    """Yield the trials to run. For impossible trials, record the reason in `found`."""
    for peer in peers:
        for scenario in scenarios:
            staging = STAGINGS[scenario]
            if staging.tls and not peer.tls:
                found[peer.name][scenario] = Absent("the command was not told how to use TLS (--tls-args)")
            elif peer.can_be_told(*staging.demands):
                yield Trial(peer=peer, staging=staging, pace=staging.pace_for(peer, full=full))
            else:
                option = ", ".join(setting.value for setting in staging.demands)
                found[peer.name][scenario] = Absent(f"the client does not have this option ({option})")


def _inconclusive(found: Found, clauses: Iterable[Clause]) -> list[Verdict]:
    """Return the verdicts on this client that are inconclusive."""
    return [verdict for verdict in judge(found, clauses) if verdict.outcome is Outcome.INCONCLUSIVE]


async def _perform_all(schedule: Sequence[Wave], view: MatrixView, record: _Record) -> None:
    """Run the waves one after another. Very long trials continue during the following waves."""
    with tempfile.TemporaryDirectory() as folder, view.progress(schedule) as begins:
        trust = Trust.make(Path(folder))
        async with LagWatch() as lags, asyncio.TaskGroup() as tasks:
            for wave in schedule:
                begins(wave)
                start = Start(len(wave.trials), wave.apart, lags)
                running = [tasks.create_task(_perform(trial, trust, start, record)) for trial in wave.trials]
                await asyncio.wait([running[place] for place in wave.holding], timeout=wave.limit)


async def _perform(trial: Trial, trust: Trust, start: Start, record: _Record) -> None:
    limit = trial.seconds + _OVERHEAD
    try:
        async with asyncio.timeout(limit):
            evidence, versions = await trial.perform(trust, start)
    except TimeoutError:
        record(trial, Absent(f"the trial was not over after {limit:g} s", fault=True), {})
    except ProgramError as error:
        record(trial, Absent(str(error), fault=True), {})
    else:
        record(trial, evidence, versions)
