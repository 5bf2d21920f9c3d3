"""The report of a run: a page in Markdown, and a picture for each scenario beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from interop.conformance import PROTOCOL, Outcome, Scenario, Terms
from interop.pictures import draw
from interop.results import PeerResult, Results
from interop.scenarios import COMPRESSED, Pace

__all__ = ["write_report"]

_WORDS = {Outcome.PASS: "pass", Outcome.FAIL: "**fail**", Outcome.NOT_APPLICABLE: "n/a"}

_HOW_TO_READ = """\
Every clause stands for a rule of gRPC's connection-backoff protocol, and is judged by what a failing server saw. A gap
between two attempts may be what the official reconnect test allows: its backoff E, jittered by a fifth of itself, and a
tolerance for the way to the server. `n/a` says that a clause could not be judged for a client, and why.
"""


def write_report(results: Results, folder: Path) -> None:
    """Write `report.md` and its pictures into this folder, and make it if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.md").write_text("\n".join(_page(results, folder)) + "\n")


def _page(results: Results, folder: Path) -> Iterator[str]:
    yield "# How gRPC clients connect"
    yield ""
    length = (
        "for as long as the official test takes" if results.full else "in compressed time where a client can be told"
    )
    yield f"Measured on {results.began:%Y-%m-%d}, {length}, on {results.machine}, with `python -m interop run`."
    yield ""
    yield _HOW_TO_READ
    yield from _peers(results)
    yield ""
    yield from _table(results)
    for scenario in Scenario:
        if results.clauses_of(scenario):
            yield from _scenario(results, scenario, folder)


def _peers(results: Results) -> Iterator[str]:
    for peer in results.judged:
        versions = ", ".join(f"{name} {version}" for name, version in peer.versions.items())
        yield f"- **{peer.name}**: {versions}; {_time(peer)}"
    for peer in results.missing:
        yield f"- **{peer.name}**: left out, since {peer.missing} is missing"


def _time(peer: PeerResult) -> str:
    if Pace.COMPRESSED in peer.paces.values():
        return f"told {_terms(COMPRESSED)}"
    return f"by the protocol's own values, {_terms(PROTOCOL)}"


def _terms(terms: Terms) -> str:
    return (
        f"INITIAL_BACKOFF {terms.initial:g} s, MAX_BACKOFF {terms.cap:g} s, MIN_CONNECT_TIMEOUT "
        f"{terms.min_connect_timeout:g} s, and held to them within {1000 * terms.tolerance:g} ms"
    )


def _table(results: Results) -> Iterator[str]:
    yield "| rule | clause | " + " | ".join(peer.name for peer in results.judged) + " |"
    yield "| --- | --- |" + " --- |" * len(results.judged)
    for clause in results.clauses:
        cells = " | ".join(_WORDS[peer.verdict_on(clause).outcome] for peer in results.judged)
        yield f"| {clause.rule} | {clause.name} | {cells} |"


def _scenario(results: Results, scenario: Scenario, folder: Path) -> Iterator[str]:
    picture = f"{scenario.label}.svg"
    yield ""
    yield f"## The server {scenario.value}"
    yield ""
    if draw(results, scenario, folder / picture):
        yield f"![What the server saw of each client]({picture})"
        yield ""
    for clause in results.clauses_of(scenario):
        yield f"**{clause.rule}, {clause.name}.** {clause.says}"
        yield ""
        for peer in results.judged:
            verdict = peer.verdict_on(clause)
            yield f"- {peer.name}: {_WORDS[verdict.outcome]}: {verdict}"
        yield ""
