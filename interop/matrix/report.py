"""The report of a run: a Markdown page with the matrix, a picture for each scenario, and the verdicts as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from interop.clients.findings import Finding
from interop.conformance import PROTOCOL, Clause, Evidence, Measure, Outcome, Scenario, Terms, Unit, Verdict
from interop.matrix.comparison import TOLERANCE
from interop.matrix.pictures import draw
from interop.matrix.results import PeerResult, Results, to_summary
from interop.matrix.scenarios import COMPRESSED, SCALED, STAGINGS, Pace
from interop.runner.program import ROOT
from interop.runner.written import machine, write

__all__ = ["write_report"]

_WORDS = {
    Outcome.PASS: "pass",
    Outcome.FAIL: "**fail**",
    Outcome.NOT_APPLICABLE: "n/a",
    Outcome.INCONCLUSIVE: "inconclusive",
}
_TOLD = {Pace.COMPRESSED: COMPRESSED, Pace.SCALED: SCALED}

_HOW_TO_READ = """\
Every clause stands for a rule of [gRPC's connection-backoff
protocol](https://github.com/grpc/grpc/blob/master/doc/connection-backoff.md), and is judged by what a failing server
saw of a client that makes calls all the time. A gap between two attempts may be what the official reconnect test
allows: its backoff E, jittered by a fifth of itself, and a tolerance for the way to the server. CB-7, `no-flood`, and
CB-8 are rules of this project, for what the protocol is silent about; no other client claims to follow them.

Each client is configured as it is by default, but for shorter backoffs where it can be told those: the same algorithm
in less time. To fail a clause is not to be wrong: some clients do on purpose what a clause does not allow, and some
never promised any backoff. Where that is documented, it is said [below](#what-the-failures-mean). Three hundred
connections settle the verdicts on a client that floods its server; the trial ends there.
"""


def write_report(results: Results, folder: Path) -> None:
    """Write `README.md`, its pictures and `results.json` to this folder, which is created if needed."""
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
    yield "## Who was judged"
    yield ""
    yield from _peers(results, folder)
    yield ""
    yield from _findings(results)
    for scenario in Scenario:
        if results.clauses_of(scenario):
            yield from _scenario(results, scenario, folder)


def _origin(results: Results) -> Iterator[str]:
    length = (
        "as long as the official test, in a fifth of all its values for clients that can be told so"
        if results.full
        else "in compressed time for clients that can be told shorter backoffs"
    )
    yield f"Measured on {results.began:%Y-%m-%d} in {results.took / 60:.0f} minutes, {length}, on {machine()}."
    yield ""
    yield "    make interop-peers    # builds the clients"
    yield f"    python -m interop run {'--full ' if results.full else ''}--report docs/conformance"
    yield "    python -m interop verify docs/conformance/results.json    # runs afresh, and compares"


def _matrix(results: Results) -> Iterator[str]:
    """Yield the table, and below it why clauses do not apply or are inconclusive."""
    reasons: list[str] = []
    yield "| rule | clause | " + " | ".join(peer.name for peer in results.judged) + " |"
    yield "| --- | --- |" + " --- |" * len(results.judged)
    for clause in results.clauses:
        cells = " | ".join(_cell(peer.verdict_on(clause), reasons) for peer in results.judged)
        yield f"| {clause.rule} | [{clause.name}](#{_anchor(clause.scenario)}) | {cells} |"
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
    """Return a figure without its description, except for the time span of a count of connections."""
    _, counted, seconds = figure.what.partition(" in ")
    unit = figure.unit
    return f"{unit.show(figure.seen)} {unit.value}" + (f" in {seconds}" if counted and unit is Unit.CONNECTIONS else "")


def _peers(results: Results, folder: Path) -> Iterator[str]:
    yield "| client | versions | judged by |"
    yield "| --- | --- | --- |"
    for peer in results.judged:
        yield f"| {_link(peer, folder)} | {peer.shown_versions or 'not told'} | {_time(peer)} |"
    for peer in results.missing:
        yield f"| {_link(peer, folder)} | left out, since {peer.missing} | |"


def _link(peer: PeerResult, folder: Path) -> str:
    """Return the name, as a link to the program's folder if possible."""
    if peer.folder is None or not folder.resolve().is_relative_to(ROOT):
        return peer.name
    return f"[{peer.name}]({os.path.relpath(peer.folder, folder.resolve())})"


def _time(peer: PeerResult) -> str:
    for pace, terms in _TOLD.items():
        if pace in peer.paces.values():
            return f"what it was told: {_terms(terms)}{_untold(peer)}"
    return f"the protocol's own values: {_terms(PROTOCOL)}"


def _untold(peer: PeerResult) -> str:
    """Return the scenarios in which the peer could not be configured, though time can be compressed in them."""
    untold = [each for each, pace in peer.paces.items() if STAGINGS[each].compressible and not pace.told]
    names = " and ".join(each.label.replace("_", " ") for each in untold if isinstance(peer.evidence[each], Evidence))
    return f"; the protocol's own values in {names}" if names else ""


def _terms(terms: Terms) -> str:
    return (
        f"INITIAL_BACKOFF {terms.initial:g} s, MAX_BACKOFF {terms.cap:g} s, MIN_CONNECT_TIMEOUT "
        f"{terms.min_connect_timeout:g} s, within {1000 * terms.tolerance:g} ms"
    )


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
            yield f"- {_names(peer.unexplained)}: see the figures; nothing more is known here."
        yield ""


def _finding(finding: Finding, peer: PeerResult) -> Iterator[str]:
    failed = [clause for clause in peer.failed if clause in finding.clauses]
    held = [clause for clause in peer.held if clause in finding.clauses]
    if not failed and not held:
        return
    concerned = _names(failed) or f"{_names(held)}, though it held this time"
    issues = ", ".join(f"[{each}](https://github.com/{each.replace('#', '/issues/')})" for each in finding.issues)
    yield f"- {concerned}: {finding.means}" + (f" ({issues})" if issues else "")


def _names(clauses: Iterable[str]) -> str:
    return ", ".join(f"`{clause}`" for clause in clauses)


def _heading(scenario: Scenario) -> str:
    return f"The server {scenario.value}"


def _anchor(scenario: Scenario) -> str:
    """Return the anchor of a scenario's heading."""
    kept = "".join(letter for letter in _heading(scenario).lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _scenario(results: Results, scenario: Scenario, folder: Path) -> Iterator[str]:
    picture = f"{scenario.label}.svg"
    yield f"## {_heading(scenario)}"
    yield ""
    if draw(results, scenario, folder / picture):
        yield f"![What the server saw of each client]({picture})"
        yield ""
    for clause in results.clauses_of(scenario):
        yield f"**{clause.rule}, {clause.name}.** {clause.says}"
        yield ""
        yield from _verdicts(results, clause)
        yield ""


def _verdicts(results: Results, clause: Clause) -> Iterator[str]:
    """Yield one line for all peers that pass, and one for each of the others."""

    def passes(peer: PeerResult) -> bool:
        return peer.verdict_on(clause).outcome is Outcome.PASS

    for passing, peers in groupby(sorted(results.judged, key=passes, reverse=True), key=passes):
        if passing:
            yield f"- pass: {', '.join(peer.name for peer in peers)}"
            continue
        for peer in peers:
            verdict = peer.verdict_on(clause)
            yield f"- {_WORDS[verdict.outcome]}: {peer.name}: {verdict}"
