"""The report: its page and its verdicts as JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace

from grpc_judge.conformance import CLAUSES, Calls, Scenario
from grpc_judge.matrix.comparison import TOLERANCE
from grpc_judge.matrix.report import write_report
from grpc_judge.matrix.scenarios import Pace
from grpc_judge.runner.written import write
from tests.interop_suite.matrix.results import MISSING, flooding_peer, results, right_peer


def test_page(tmp_path):
    """IO-4: the page shows the date, versions, commands and matrix, and for each scenario its verdicts."""
    write_report(results(right_peer(), flooding_peer(), MISSING), tmp_path / "new")
    page = (tmp_path / "new" / "README.md").read_text()
    assert "Measured on 2026-01-02 on " in page
    assert "The run took 3 minutes, with time compressed for configurable clients." in page
    assert "python -m interop verify docs/conformance/results.json" in page
    assert "| right | grpcio 1.2.3 | its settings: INITIAL_BACKOFF 0.2 s, MAX_BACKOFF 1.6 s" in page
    assert "| flooding client | grpcio 1.2.3 | the protocol's own values: INITIAL_BACKOFF 1 s" in page
    assert "| far away | left out, since the program far is missing |" in page
    assert "| client | passes | [" in page
    assert (
        "- pass: right\n- **fail**: flooding client: INITIAL_BACKOFF: 0.001 (0.001 to 0.001) s, expected 0.200" in page
    )
    for scenario in Scenario:
        assert f"## The server {scenario.value}\n" in page
    for clause in CLAUSES:
        assert f"**{clause.rule}, {clause.name}.** {clause.says}" in page


def test_who_could_be_told_only_in_part(tmp_path):
    """IO-4: the page names the scenarios in which a partly configurable client had the protocol's own values."""
    partly = replace(
        right_peer(), paces=dict(right_peer().paces) | {Scenario.SILENT: Pace.REAL, Scenario.SLOW_SETTINGS: Pace.REAL}
    )
    write_report(results(partly, clauses=CLAUSES[:2]), tmp_path)
    page = (tmp_path / "README.md").read_text()
    assert "a tolerance of 50 ms; the protocol's own values in these scenarios: silent, slow settings |" in page


def test_matrix(tmp_path):
    """IO-4: a row for each client, the best first, with its score, the figures of failures, and footnotes for n/a."""
    write_report(results(flooding_peer(), right_peer()), tmp_path)
    page = (tmp_path / "README.md").read_text()
    table = page.partition("## The matrix\n\n")[2].partition("\n\n")[0].splitlines()
    heads, _, *rows = (line.strip("|").split("|") for line in table)
    right, flooding = (
        dict(zip((head.strip() for head in heads), (cell.strip() for cell in row), strict=True)) for row in rows
    )
    link = "the-server-accepts-each-connection-and-closes-it-at-once"
    assert (right["client"], flooding["client"]) == ("right", "flooding client")
    assert right["passes"] == f"{len(CLAUSES)} of {len(CLAUSES)}"
    assert (right[f"[CB-2 first-gap](#{link})"], flooding[f"[CB-2 first-gap](#{link})"]) == ("pass", "**fail** 0.001 s")
    (stable,) = [cell for head, cell in flooding.items() if "[CB-8 stable-after]" in head]
    assert re.fullmatch(r"n/a \(\d\)", stable)
    assert re.search(r"^\d\. the client has no such option$", page, re.MULTILINE)
    assert "**fail** 71 connections in 4.0 s that came too soon" in flooding.values()


def test_what_callers_are_told(tmp_path):
    """IO-4: a table has the statuses of failed calls, the most frequent first, and who could not say."""
    told = right_peer().evidence[Scenario.OUTAGE]
    failing = replace(
        right_peer(),
        name="failing",
        evidence=dict(right_peer().evidence)
        | {
            Scenario.OUTAGE: replace(told, calls=Calls(made=1000, ok=1, failed={"UNKNOWN": 3, "UNAVAILABLE": 996})),
            Scenario.RESTART: replace(told, calls=Calls(made=5, ok=5)),
            Scenario.DRAINED: replace(told, calls=Calls()),
            Scenario.FLAPPING: replace(told, calls=Calls(made=4, unfinished=4)),
        },
    )
    write_report(results(failing), tmp_path)
    table = (tmp_path / "README.md").read_text().partition("## What callers are told\n")[2]
    (row,) = [line for line in table.splitlines() if line.startswith("| failing |")]
    assert row == "| failing | no call ended | not reported | 996 UNAVAILABLE, 3 UNKNOWN | none failed |"


def test_what_failures_mean(tmp_path):
    """IO-4: the page explains known failures and links to their issues; clients that passed are not mentioned."""
    write_report(results(right_peer(), flooding_peer()), tmp_path)
    page = (tmp_path / "README.md").read_text()
    section = page.partition("## What the failures mean")[2].partition("\n## ")[0]
    assert "**right**" not in section
    assert (
        "- `first-gap`, `growth`: It dials again at once. ([some/where#12](https://github.com/some/where/issues/12))"
        in section
    )
    assert re.search(r"- .*`no-flood`.*: no explanation is known; the figures are below\.", section)


def test_results_beside_it(tmp_path):
    """IO-4: the verdicts are written as JSON next to the page, with the tolerance for comparing them."""
    write_report(results(right_peer(), flooding_peer()), tmp_path)
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["tolerance"] == TOLERANCE
    assert [peer["name"] for peer in found["peers"]] == ["right", "flooding client"]


def test_the_same_results_make_the_same_page(tmp_path):
    """IO-4: the same results produce the same page, byte for byte."""
    for folder in ("one", "two"):
        write_report(results(right_peer(), clauses=CLAUSES[:3]), tmp_path / folder)
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / each).iterdir()} for each in ("one", "two"))
    assert one == two


def test_results_have_a_line_for_each_verdict(tmp_path):
    """IO-4: the results file is short and has a line for each peer's verdicts, so that a diff shows what changed."""
    verdicts = [{"clause": name, "says": "so"} for name in ("growth", "cap")]
    write({"peers": [{"name": "a", "verdicts": verdicts}, {"name": "b", "verdicts": []}]}, tmp_path / "all.json")
    text = (tmp_path / "all.json").read_text()

    assert len(text.splitlines()) == 3
    assert json.loads(text)["peers"][0]["verdicts"] == verdicts


def test_only_what_was_judged(tmp_path):
    """IO-4: a report on some rules covers only their scenarios, and describes peers without evidence in words."""
    clauses = [clause for clause in CLAUSES if clause.scenario is Scenario.HANDSHAKE]
    write_report(results(flooding_peer(), clauses=clauses), tmp_path)
    assert "- **fail**: flooding client: it ended with status 1" in (tmp_path / "README.md").read_text()
