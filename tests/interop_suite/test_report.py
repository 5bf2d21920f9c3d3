"""The report: the page, and the pictures beside it."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from interop.conformance import CLAUSES, Scenario
from interop.report import write_report
from tests.interop_suite.results import FLOODING, MISSING, RIGHT, results


def test_page(tmp_path):
    """IO-4: date, versions, the table, and for each scenario its picture and what was found."""
    write_report(results(RIGHT, FLOODING, MISSING), tmp_path / "new")
    page = (tmp_path / "new" / "report.md").read_text()
    assert "Measured on 2026-01-02, in compressed time" in page
    assert "- **right**: grpcio 1.2.3; told INITIAL_BACKOFF 0.2 s, MAX_BACKOFF 1.6 s" in page
    assert "- **flooding client**: grpcio 1.2.3; by the protocol's own values, INITIAL_BACKOFF 1 s" in page
    assert "- **far away**: left out, since the program far is missing" in page
    assert "| rule | clause | right | flooding client |" in page
    assert "| CB-2 | first-gap | pass | **fail** |" in page
    assert "- flooding client: **fail**: gap 1: 0.001 s, allowed 0.110 to 0.290, missed by 0.109 s" in page
    for scenario in Scenario:
        assert f"## The server {scenario.value}" in page
    for clause in CLAUSES:
        assert f"**{clause.rule}, {clause.name}.** {clause.says}" in page


def test_pictures(tmp_path):
    """IO-4: each picture that the page shows is there, has its axes labelled, and names every client it shows."""
    write_report(results(RIGHT, FLOODING), tmp_path)
    shown = re.findall(r"!\[.+\]\((.+)\)", (tmp_path / "report.md").read_text())
    assert set(shown) == {path.name for path in tmp_path.glob("*.svg")} == {f"{each.label}.svg" for each in Scenario}
    for name in shown:
        text = "".join(ET.parse(tmp_path / name).getroot().itertext())
        assert "time since the first connection, in units of INITIAL_BACKOFF" in text
        assert "connection accepted" in text
        assert "right" in text
    text = "".join(ET.parse(tmp_path / "hang_up.svg").getroot().itertext())
    assert "gap, in units of INITIAL_BACKOFF" in text
    assert "outside what is allowed" in text


def test_the_same_results_make_the_same_pictures(tmp_path):
    """IO-4: a report that is made again differs only where its results do."""
    for folder in ("one", "two"):
        write_report(results(RIGHT, clauses=CLAUSES[:3]), tmp_path / folder)
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / each).iterdir()} for each in ("one", "two"))
    assert one == two


def test_only_what_was_judged(tmp_path):
    """IO-4: a run of some rules reports on their scenarios alone, and on peers without evidence in words."""
    clauses = [clause for clause in CLAUSES if clause.scenario is Scenario.HANDSHAKE]
    write_report(results(FLOODING, clauses=clauses), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["report.md"]
    assert "- flooding client: **fail**: it ended with status 1" in (tmp_path / "report.md").read_text()
