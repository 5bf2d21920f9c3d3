"""Writes the tables of servers in `docs/conformance/servers.md`, from what a run of the tests here has recorded."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from xml.etree import ElementTree as ET

import grpc

import grpc_backoff
from grpc_judge.runner.written import machine

PAGE = Path(__file__).parents[3] / "docs" / "conformance" / "servers.md"
BEGIN, END = "<!-- written by make interop-servers -->", "<!-- up to here -->"
SERVERS = "server, software: "
HAPPENINGS = "server, happening, verdict: calls, failed, lost, lost by plain grpcio, recovered, connections, attempts"
HEDGED = "server, calls, API: answered, failed, copies, connections, 99th percentile"
KINDS = ["killed", "drained", "aged", "aged-with-grace", "frozen", "frozen-pinged"]
LOADS = {"test_hedged": "20 at a time", "test_hedged_for_two_minutes": "ten a second, for two minutes"}


@dataclass(frozen=True, slots=True)
class Case:
    """A test that ran: its name, its server's, whether it passed, and its figures as text."""

    test: str
    server: str
    passed: bool
    figures: dict[str, str]


def read(report):
    """Return the cases of a report that `--junitxml` has written."""
    cases = []
    for each in ET.parse(report).iter("testcase"):
        found = re.fullmatch(r"(\w+)\[(?:(?:asyncio|threads)-)?(.*)\]", each.get("name"))
        if found and each.find("skipped") is None:
            figures = {one.get("name"): one.get("value") for one in each.iter("property")}
            passed = each.find("failure") is None and each.find("error") is None
            cases.append(Case(found[1], found[2].removesuffix(" server"), passed, figures))
    return sorted(cases, key=lambda case: case.server.lower())


def tables(cases, skipped):
    """Return the tables of these cases as Markdown, and what was skipped and why."""
    parts = [
        _table(SERVERS, _servers(cases)),
        _table(HAPPENINGS, _happenings(cases)),
        "† Plain grpcio lost calls there too.\n",
        _table(HEDGED, _hedged(cases)),
        "".join(_cancelled(cases)),
        "".join(f"- Skipped: {each}.\n" for each in skipped),
    ]
    return "\n".join(filter(None, parts))


def _table(headings, rows):
    """Return a table whose headings after a colon are those of numbers, which are aligned to the right."""
    names, numbers = (part.split(", ") if part else [] for part in headings.split(": "))
    rules = [*["---"] * len(names), *["---:"] * len(numbers)]
    return "".join(f"| {' | '.join(line)} |\n" for line in ([*names, *numbers], rules, *rows))


def _servers(cases):
    versions = {case.server: case.figures["versions"] for case in cases if "versions" in case.figures}
    return [[server, ", ".join(map(_software, ast.literal_eval(said)))] for server, said in versions.items()]


def _software(said):
    if not said.startswith("{"):
        return said
    return ", ".join(f"{name} {version}" for name, version in json.loads(said)["versions"].items())


def _happenings(cases):
    found = {(case.server, case.test.removeprefix("test_").replace("_", "-")): case for case in cases}
    for server in dict.fromkeys(case.server for case in cases):
        for happening in KINDS:
            case = found.get((server, happening))
            if case and "calls" in case.figures:
                yield [server, happening, "pass" if case.passed else "fail", *_figures(case.figures)]


def _figures(figures):
    ours, plain = re.findall(r"\d+", figures["lost"])
    mark = " †" if "0" not in (ours, plain) else ""
    late = "" if figures["recovered"] == "None" else f"{float(figures['recovered']):.2f} s"
    return [figures["calls"], figures["failed"], ours + mark, plain, late, figures["connections"], figures["attempts"]]


def _hedged(cases):
    for case in cases:
        for api in ("asyncio", "threads"):
            if case.test in LOADS and api in case.figures:
                *counts, p99 = case.figures[api].split()
                yield [case.server, LOADS[case.test], api, *counts, f"{p99} ms"]


def _cancelled(cases):
    for case in cases:
        if "cancelled" in case.figures:
            yield (
                f"- {case.server} ended a connection of plain grpcio, and the call that ran on it, after"
                f" {case.figures['cancelled']} other calls had been cancelled.\n"
            )


def write(report, skipped, page=PAGE):
    """Put the tables of this report into the page, and when and with what it was made."""
    made = (
        f"Measured on {date.today()} ({machine()}, grpc_backoff {grpc_backoff.__version__}, grpcio {grpc.__version__})."  # noqa: DTZ011
    )
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{made}\n\n{tables(read(report), skipped)}\n{END}{after}", "utf-8")
