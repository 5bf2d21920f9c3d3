"""The verdicts as JUnit's XML and as a page, and what `grpc-judge explain` says about a clause."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from click.testing import CliRunner

from grpc_judge.checkout import cli
from grpc_judge.conformance import CLAUSES, Level
from grpc_judge.matrix.export import export
from grpc_judge.matrix.results import Demands
from grpc_judge.matrix.rows import rows
from tests.interop_suite.matrix.results import MISSING, flooding_peer, results, right_peer


def test_junit(tmp_path):
    """IO-4: one suite for each client and one case for each clause; only a failure of the protocol is a failure."""
    path = tmp_path / "junit.xml"
    export(results(right_peer(), flooding_peer(), MISSING), Demands(allowed={"cap"}), junit=path, html=None)
    right, flooding, missing = ET.parse(path).getroot()
    assert (right.get("tests"), right.get("failures")) == (str(len(CLAUSES)), "0")
    assert (missing.get("errors"), missing[0][0].get("message")) == ("1", "the program far is missing")
    cases = {case.get("name"): case for case in flooding}
    failed = {name for name, case in cases.items() if case.find("failure") is not None}
    assert flooding.get("failures") == str(len(failed))
    assert {"first-gap", "accept-does-not-reset"} < failed
    said = cases["first-gap"].find("failure")
    assert said.get("message").startswith("FAIL: INITIAL_BACKOFF: 0.001 (0.001 to 0.001) s, allowed 0.200, missed by ")
    assert said.text == "read https://github.com/grpc/grpc/blob/master/doc/connection-backoff.md"
    assert cases["no-flood"].find("skipped").get("message").startswith("advice: ")


def shown(word, **demands):
    found = rows(flooding_peer(), results(flooding_peer()), Demands(**demands))
    return {row.clause for row in found if row.verdict == word}


def test_known_failures_are_known():
    """IO-4: a failure that is allowed, by its clause or its rule, is shown as known."""
    assert shown("known", allowed={"first-gap", "CB-6"}) == {"first-gap", "accept-does-not-reset"}


def test_required_recommendations_are_failures():
    """IO-4: a recommendation that is required, by its clause or its rule, is shown as a failure, not as advice."""
    assert shown("advice") == {"no-flood", "goaway-backs-off"}
    assert shown("advice", required={"CB-7"}) == set()
    assert shown("FAIL", required={"no-flood"}) - shown("FAIL") == {"no-flood"}


def test_the_page_stands_alone(tmp_path):
    """IO-4: the page needs no other file and has a line for each clause and client."""
    path = tmp_path / "page.html"
    export(results(right_peer(), flooding_peer(), MISSING), Demands(), junit=None, html=path)
    page = path.read_text("utf-8")
    assert page.startswith("<!doctype html>\n<html")
    assert page.count("<tr") == 2 * (len(CLAUSES) + 1)
    assert "far away</h2><p>left out, since the program far is missing" in page
    for loads in ("<script", "<link", "<img", "src=", "@import"):
        assert loads not in page


def test_explain():
    """IO-4: a clause is explained by its sentence, its source and the server that shows it; a rule by its clauses."""
    result = CliRunner().invoke(cli, ["explain", "CB-6", "no-flood"])
    assert result.exit_code == 0
    assert "CB-6 settings-reset (protocol)\n  SETTINGS reset the backoff, " in result.output
    assert "CB-7 no-flood (recommended)" in result.output
    assert (
        '  script   [{"behaviour": "settings_then_close", "times": 4, "after": 0.02}, {"behaviour": "enh'
        in result.output
    )
    assert CliRunner().invoke(cli, ["explain"]).output.count("  seen by  a server that ") == len(CLAUSES)
    assert CliRunner().invoke(cli, ["explain", "CB-99"]).output.startswith("Error: CLAUSE=CB-99: expected one of ")


def test_recommendations():
    """IO-4: only this project's own rules are recommendations."""
    recommended = {clause.name for clause in CLAUSES if clause.level is Level.RECOMMENDED}
    assert recommended == {
        *("no-flood", "goaway-backs-off", "drained-backs-off", "lost-is-replaced", "stable-after"),
        *("served-is-replaced", "unserved-is-held-back"),
    }
