"""Writes the verdicts of a run for others: as JUnit's XML for CI systems, and as an HTML page that stands alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

from grpc_judge.matrix.results import Demands, PeerResult, Results
from grpc_judge.matrix.rows import HEADINGS, Row, rows
from grpc_judge.runner.written import machine

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid #8886; padding: .3rem .6rem; text-align: left; vertical-align: top; }
.FAIL { background: #c93c3730; font-weight: 600; } .pass { color: #2a7d3f; } .known, .advice, .late { color: #9a6700; }
.headline { border-left: 4px solid #c93c37; padding-left: .8rem; }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd; } a { color: #8ab4f8; } }
"""


def export(results: Results, demands: Demands, *, junit: Path | None, html: Path | None) -> None:
    """Write the requested files; `demands` tells which failures count."""
    if junit is not None:
        _write_junit(results, demands, junit)
    if html is not None:
        _write_html(results, demands, html)


def _write_junit(results: Results, demands: Demands, path: Path) -> None:
    """Write one test suite for each client and one test case for each clause; only a "FAIL" is a failure."""
    root = ET.Element("testsuites", name="grpc-judge")
    for peer in results.judged:
        cases = list(rows(peer, results, demands))
        failures = [row for row in cases if row.verdict == "FAIL"]
        passes = [row for row in cases if row.verdict == "pass"]
        counts = {"tests": len(cases), "failures": len(failures), "skipped": len(cases) - len(failures) - len(passes)}
        suite = ET.SubElement(root, "testsuite", {name: str(count) for name, count in counts.items()}, name=peer.name)
        for row in cases:
            _case(suite, peer.name, row)
    for peer in results.missing:
        suite = ET.SubElement(root, "testsuite", name=peer.name, tests="1", errors="1")
        case = ET.SubElement(suite, "testcase", classname=peer.name, name="available")
        ET.SubElement(case, "error", message=peer.missing)
    ET.ElementTree(root).write(path, "utf-8", xml_declaration=True)


def _case(suite: ET.Element, peer: str, row: Row) -> None:
    case = ET.SubElement(suite, "testcase", classname=f"{peer}.{row.rule}", name=row.clause)
    if row.verdict == "pass":
        return
    kind = "failure" if row.verdict == "FAIL" else "skipped"
    ET.SubElement(case, kind, message=f"{row.verdict}: {_said(row)}").text = f"read {row.read}"


def _said(row: Row) -> str:
    said = f"{row.seen}, allowed {row.allowed}" if row.allowed else row.seen
    return f"{said}, missed by {row.missed_by}" if row.missed_by else said


def _write_html(results: Results, demands: Demands, path: Path) -> None:
    """Write a page with a table for each client; it needs no other file."""
    root = ET.Element("html", lang="en")
    head, body = ET.SubElement(root, "head"), ET.SubElement(root, "body")
    ET.SubElement(head, "meta", charset="utf-8")
    ET.SubElement(head, "title").text = title = "How these gRPC clients connect"
    ET.SubElement(head, "style").text = _STYLE
    ET.SubElement(body, "h1").text = title
    ET.SubElement(body, "p").text = (
        f"Judged by grpc-judge on {results.began:%Y-%m-%d} on {machine()}, in {results.took:.0f} s. "
        "`grpc-judge explain CLAUSE` says how a clause is seen."
    )
    for peer in results.judged:
        _section(body, peer, rows(peer, results, demands))
    for peer in results.missing:
        ET.SubElement(body, "h2").text = peer.name
        ET.SubElement(body, "p").text = f"left out, since {peer.missing}"
    path.write_text("<!doctype html>\n" + ET.tostring(root, "unicode", method="html") + "\n", "utf-8")


def _section(body: ET.Element, peer: PeerResult, found: Iterable[Row]) -> None:
    ET.SubElement(body, "h2").text = peer.name
    ET.SubElement(body, "p").text = peer.shown_versions
    if peer.headline:
        ET.SubElement(body, "p", {"class": "headline"}).text = peer.headline
    table = ET.SubElement(body, "table")
    line = ET.SubElement(table, "tr")
    for heading in HEADINGS:
        ET.SubElement(line, "th").text = heading
    for row in found:
        line = ET.SubElement(table, "tr", {"class": row.verdict})
        ET.SubElement(ET.SubElement(line, "td"), "a", href=row.read).text = row.rule
        for text in row[1:-1]:
            ET.SubElement(line, "td").text = text
