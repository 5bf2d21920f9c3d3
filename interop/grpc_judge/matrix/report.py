"""Writes the report of a run: a Markdown page with the matrix, and a JSON summary."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from grpc_judge.clients.findings import Finding
from grpc_judge.conformance import PROTOCOL, Absent, Clause, Evidence, Measure, Outcome, Scenario, Terms, Unit, Verdict
from grpc_judge.matrix.comparison import TOLERANCE
from grpc_judge.matrix.results import PeerResult, Results, to_summary
from grpc_judge.matrix.scenarios import COMPRESSED, SCALED, STAGINGS, Pace
from grpc_judge.runner.program import ROOT
from grpc_judge.runner.written import machine, write

_WORDS = {
    Outcome.PASS: "pass",
    Outcome.FAIL: "**fail**",
    Outcome.NOT_APPLICABLE: "n/a",
    Outcome.INCONCLUSIVE: "inconclusive",
}
_ANSWERED = (Scenario.FLAPPING, Scenario.DRAINED, Scenario.OUTAGE, Scenario.RESTART)
_TOLD = {Pace.COMPRESSED: COMPRESSED, Pace.SCALED: SCALED}

_HOW_TO_READ = """\
Each client makes calls continuously to a failing server, which records what it sees of the client. Every clause checks
this record against a rule, whose number is that of [this project's page of rules](../behaviour.md). The rules on
backoff are those of [gRPC's connection-backoff
protocol](https://github.com/grpc/grpc/blob/master/doc/connection-backoff.md), and the rules on calls (CH-3 to CH-7) are
those of gRPC. The gap between two attempts may differ from the backoff by as much as the official reconnect test
allows: a jitter of a fifth, plus a tolerance for network delay. CB-7 and CB-8 are rules of this
project for cases that the protocol does not cover, and no other client claims to follow them.

Each client runs with its default configuration, except that the backoff of clients that can be configured is shortened:
the algorithm is the same but takes less time. If a client floods its server, its trial ends after 300 connections,
because further connections would not change any verdict.

A failed clause is shown with the figure that missed its range, for example how long an attempt lasted. "n/a" means that
a clause does not apply, for the reason with this number below the table. "passes" counts the clauses that apply.

A client that fails a clause is not necessarily wrong: some clients deviate on purpose, and some never promised any
backoff. If a client's authors have documented this, [What the failures mean](#what-the-failures-mean) says so.
"""


def write_report(results: Results, folder: Path) -> None:
    """Write `README.md` and `results.json` to this folder, which is created if necessary."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text("\n".join(_page(results, folder)).rstrip() + "\n")
    write({"tolerance": TOLERANCE} | to_summary(results), folder / "results.json")


def _page(results: Results, folder: Path) -> Iterator[str]:
    yield "# How gRPC clients connect"
    yield ""
    yield from _origin(results)
    yield ""
    yield _HOW_TO_READ
    yield "## The matrix"
    yield ""
    yield from _matrix(results)
    yield "## The clients"
    yield ""
    yield from _peers(results, folder)
    yield ""
    yield from _callers(results)
    yield from _findings(results)
    for scenario in Scenario:
        if results.clauses_of(scenario):
            yield from _scenario(results, scenario)


def _origin(results: Results) -> Iterator[str]:
    length = (
        ": the official test's whole schedule, with all times divided by five for configurable clients."
        if results.full
        else ", with time compressed for configurable clients."
    )
    yield f"Measured on {results.began:%Y-%m-%d} on {machine()}. The run took {results.took / 60:.0f} minutes{length}"
    yield ""
    yield "    make interop-peers    # builds the clients"
    yield f"    python -m interop run {'--full ' if results.full else ''}--report docs/conformance"
    yield "    python -m interop verify docs/conformance/results.json    # runs again and compares"


def _matrix(results: Results) -> Iterator[str]:
    """Yield a row for each client, the best one first, and the reasons why clauses do not apply or are inconclusive.

    A row begins with how many of the clauses that apply to the client it passes.
    """
    reasons: list[str] = []
    heads = [f"[{clause.rule} {clause.name}](#{_anchor(clause.scenario)})" for clause in results.clauses]
    yield f"| client | passes | {' | '.join(heads)} |"
    yield "| --- | --- |" + " --- |" * len(heads)
    outcomes = {
        peer.name: Counter(peer.verdict_on(clause).outcome for clause in results.clauses) for peer in results.judged
    }
    for peer in sorted(results.judged, key=lambda each: outcomes[each.name][Outcome.FAIL]):
        passed, failed = outcomes[peer.name][Outcome.PASS], outcomes[peer.name][Outcome.FAIL]
        cells = " | ".join(_cell(peer.verdict_on(clause), reasons) for clause in results.clauses)
        yield f"| {peer.name} | {passed} of {passed + failed} | {cells} |"
    yield ""
    for number, reason in enumerate(reasons, 1):
        yield f"{number}. {reason}"
    if reasons:
        yield ""


def _cell(verdict: Verdict, reasons: list[str]) -> str:
    word = _WORDS[verdict.outcome]
    if verdict.figure is not None and verdict.outcome is Outcome.FAIL:
        return f"{word} {_brief(verdict.figure)}"
    if not verdict.reason:
        return word
    if verdict.reason not in reasons:
        reasons.append(verdict.reason)
    return f"{word} ({reasons.index(verdict.reason) + 1})"


def _brief(figure: Measure) -> str:
    """Return a figure without its description, but keep the time span if the figure counts connections."""
    _, counted, seconds = figure.what.partition(" in ")
    unit = figure.unit
    return unit.count(figure.seen) + (f" in {seconds}" if counted and unit is Unit.CONNECTIONS else "")


def _peers(results: Results, folder: Path) -> Iterator[str]:
    yield "| client | versions | judged by |"
    yield "| --- | --- | --- |"
    for peer in results.judged:
        yield f"| {_link(peer, folder)} | {peer.shown_versions or 'not reported'} | {_time(peer)} |"
    for peer in results.missing:
        yield f"| {_link(peer, folder)} | left out, since {peer.missing} | |"


def _link(peer: PeerResult, folder: Path) -> str:
    """Return the peer's name, as a link to its program's folder if possible."""
    if peer.folder is None or not folder.resolve().is_relative_to(ROOT.parent):
        return peer.name
    return f"[{peer.name}]({os.path.relpath(peer.folder, folder.resolve())})"


def _time(peer: PeerResult) -> str:
    for pace, terms in _TOLD.items():
        if pace in peer.paces.values():
            return f"its settings: {_terms(terms)}{_untold(peer)}"
    return f"the protocol's own values: {_terms(PROTOCOL)}"


def _untold(peer: PeerResult) -> str:
    """Return the scenarios that can run in compressed time but for which the peer could not be configured."""
    untold = [each for each, pace in peer.paces.items() if STAGINGS[each].compressible and not pace.told]
    names = ", ".join(each.label.replace("_", " ") for each in untold if isinstance(peer.evidence[each], Evidence))
    return f"; the protocol's own values in these scenarios: {names}" if names else ""


def _terms(terms: Terms) -> str:
    return (
        f"INITIAL_BACKOFF {terms.initial:g} s, MAX_BACKOFF {terms.cap:g} s, MIN_CONNECT_TIMEOUT "
        f"{terms.min_connect_timeout:g} s, with a tolerance of {1000 * terms.tolerance:g} ms"
    )


def _callers(results: Results) -> Iterator[str]:
    """Yield a table of the statuses with which failed calls ended, the most frequent one first."""
    shown = [scenario for scenario in _ANSWERED if results.clauses_of(scenario)]
    if not shown:
        return
    yield "## What callers are told"
    yield ""
    yield "How many calls failed with which status. A retry policy for UNAVAILABLE alone misses all others. The number"
    yield "of calls differs between clients, because the trial of a client that floods the server ends early."
    yield "Clients that raise errors without a status are shown with the names of these errors."
    yield ""
    yield f"| client | {' | '.join(f'the server {scenario.value}' for scenario in shown)} |"
    yield "| --- |" + " --- |" * len(shown)
    for peer in results.judged:
        yield f"| {peer.name} | {' | '.join(_statuses(peer.evidence.get(scenario)) for scenario in shown)} |"
    yield ""


def _statuses(evidence: Evidence | Absent | None) -> str:
    if not isinstance(evidence, Evidence) or evidence.calls is None or not evidence.calls.made:
        return "not reported"
    most_first = sorted(evidence.calls.failed.items(), key=lambda item: -item[1])
    said = ", ".join(f"{count} {name}" for name, count in most_first)
    return said or ("none failed" if evidence.calls.ok else "no call ended")


def _findings(results: Results) -> Iterator[str]:
    yield "## What the failures mean"
    yield ""
    for peer in results.judged:
        said = [line for finding in peer.findings for line in _finding(finding, peer)]
        if not said and not peer.unexplained:
            continue
        yield f"**{peer.name}**"
        yield ""
        yield from said
        if peer.unexplained:
            yield f"- {_names(peer.unexplained)}: no explanation is known; the figures are below."
        yield ""


def _finding(finding: Finding, peer: PeerResult) -> Iterator[str]:
    failed = [clause for clause in peer.failed if clause in finding.clauses]
    held = [clause for clause in peer.held if clause in finding.clauses]
    if not failed and not held:
        return
    concerned = _names(failed) or f"{_names(held)} (passed in this run)"
    issues = ", ".join(f"[{each}](https://github.com/{each.replace('#', '/issues/')})" for each in finding.issues)
    yield f"- {concerned}: {finding.means}" + (f" ({issues})" if issues else "")


def _names(clauses: Iterable[str]) -> str:
    return ", ".join(f"`{clause}`" for clause in clauses)


def _heading(scenario: Scenario) -> str:
    return f"The server {scenario.value}"


def _anchor(scenario: Scenario) -> str:
    """Return the Markdown anchor of a scenario's heading."""
    kept = "".join(letter for letter in _heading(scenario).lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _scenario(results: Results, scenario: Scenario) -> Iterator[str]:
    yield f"## {_heading(scenario)}"
    yield ""
    for clause in results.clauses_of(scenario):
        yield f"**{clause.rule}, {clause.name}.** {clause.says}"
        yield ""
        yield from _verdicts(results, clause)
        yield ""


def _verdicts(results: Results, clause: Clause) -> Iterator[str]:
    """Yield one line for all peers that pass, and one line for each other peer."""

    def passes(peer: PeerResult) -> bool:
        return peer.verdict_on(clause).outcome is Outcome.PASS

    for passing, peers in groupby(sorted(results.judged, key=passes, reverse=True), key=passes):
        if passing:
            yield f"- pass: {', '.join(peer.name for peer in peers)}"
            continue
        for peer in peers:
            verdict = peer.verdict_on(clause)
            yield f"- {_WORDS[verdict.outcome]}: {peer.name}: {verdict}"
