"""What is shown of a run: sentences, the table, the page and the JSON, from results made by hand."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

from rich.console import Console

from grpc_judge.servers.case_results import CaseResult, CaseResults, to_json
from grpc_judge.servers.case_view import CaseView
from grpc_judge.servers.demands import judge
from grpc_judge.servers.happenings import Happening
from grpc_judge.servers.notes import notes
from grpc_judge.servers.page import page
from tests.interop_suite.servers import made

RIGHT = made.right()


def case(observation):
    return CaseResult(
        server=observation.server, happening=observation.happening, verdicts=judge(observation), observation=observation
    )


LATE = made.replace(RIGHT[Happening.KILLED], calls=(*RIGHT[Happening.KILLED].calls, made.call(100.5, None)))
BROKEN = CaseResult(server=made.PROXY, happening=Happening.KILLED, fault="it ended with [red]status 1[/red]")


def results(*cases, missing=None):
    began = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    return CaseResults(began=began, short=False, upstream="made up", cases=cases, missing=missing or {})


ALL = results(*map(case, RIGHT.values()))
BAD = results(case(LATE), BROKEN, missing={"far away": "the program far"})


def test_sentences():
    """IO-4: sentences describe what each server did, with the figures of the case."""
    said = {happening: " ".join(notes(observation)) for happening, observation in RIGHT.items()}
    assert said[Happening.KILLED].startswith(
        "When the server was killed, 1 running call failed (UNAVAILABLE, 'in words'). 1 fail-fast call failed at once "
    )
    assert said[Happening.DRAINED].startswith(
        "The server ended 0.10 s after SIGTERM. 2 running calls were answered after SIGTERM, and 0 calls were lost."
    )
    assert said[Happening.AGED] == "1 connection ended at an age of 1.00 to 1.00 s, and 0 calls were lost."
    assert said[Happening.RELOADED] == "Of 2 reloads, 1 ended the connection, and 0 calls were lost."
    assert said[Happening.FROZEN].startswith(
        "The connection survived the 1.5 s for which the server was frozen: keepalive did not end it. 2 calls "
    )
    assert said[Happening.PINGED].startswith("The connection was abandoned 0.00 s after the server was frozen. 2 calls")
    assert (
        "that server was gone, the proxy rejected 2 calls (UNAVAILABLE, 'in words'); the median rejection took 0.010 s."
        in (said[Happening.UPSTREAM_DOWN])
    )
    assert said[Happening.UPSTREAM_DOWN].endswith("The channel made 1 connection and lost 0 connections.")


def test_where_a_port_or_an_attempt_is_named_it_is_left_out():
    """IO-4: ports and attempt numbers are left out, so calls that failed for the same reason are counted together."""
    details = [
        f"no connection to 127.0.0.1:{port}; last error: refused; attempt {port} starts in 0.2 s" for port in (1, 2)
    ]
    calls = [made.call(101.2, 101.3, made.UNAVAILABLE) for _ in details]
    for each, words in zip(calls, details, strict=True):
        each.ended = made.replace(each.ended, details=words)
    said = " ".join(notes(made.replace(RIGHT[Happening.UPSTREAM_DOWN], calls=calls)))
    assert "rejected 2 calls (UNAVAILABLE, 'no connection to the target; last error: refused')" in said


def shown(found):
    out = io.StringIO()
    CaseView(Console(file=out, width=200, color_system=None, highlight=False)).show(found)
    return out.getvalue()


def test_table():
    """IO-4: the table has a line with figures for each server and each thing that happened to it."""
    lines = [line.split() for line in shown(ALL).splitlines() if line.startswith((" made up", " proxy"))]
    assert len(lines) == len(Happening)
    assert lines[0] == ["made", "up", "killed", "8", "2", "0.32", "s", "2", "6", "8", "of", "8", "pass"]


def test_what_was_missed_is_said():
    """IO-4: below the table are the missed demands, the servers that broke down, and the servers left out."""
    text = shown(BAD)
    assert "far away: left out, since the program far is missing\n" in text
    assert "FAIL made up, killed: CH-3 on-time: calls that hung: 1 call, allowed at most 0, missed by 1 call\n" in text
    assert "FAIL proxy, killed: it ended with [red]status 1[/red]\n" in text


def test_page():
    """IO-4: the page has the table, what can happen, the demands that were missed, and what each server did."""
    text = page(ALL)
    assert text.startswith("# Behaviour with other servers\n\nMeasured on 2026-01-02, on ")
    assert "grpc_backoff " in text
    assert "| made up | killed | 8 | 2 | 0.32 s | 2 | 6 | pass |\n" in text
    assert all(f"- **{happening.value}**: " in text for happening in Happening)
    assert "- **made up**: made up 1.2.3\n" in text
    assert "\n## proxy\n" in text
    assert max(map(len, text.splitlines())) <= 120
    assert "- CH-3, on-time: calls that hung: 1 call," in page(BAD)
    assert "- **far away**: left out, since the program far is missing" in page(BAD)


def test_json():
    """IO-4: the JSON has the verdicts, moments, events and calls of every case."""
    told = json.loads(json.dumps(to_json(ALL)))
    assert [case["passed"] for case in told["cases"]] == [True] * len(Happening)
    killed = told["cases"][0]
    assert killed["moments"] == {"struck": 1.0, "gone": 1.1, "back": 2.6, "over": 4.0}
    assert killed["events"][0] == {"event": "AttemptStarted", "at": 0.0, "attempt": 1}
    assert killed["calls"]["made"] == sum(each["calls"] for each in killed["calls"]["ended"]) == 8
    (bad, broken) = to_json(BAD)["cases"]
    assert (bad["passed"], bad["calls"]["hung"]) == (False, 1)
    assert (broken["passed"], broken["fault"]) == (False, "it ended with [red]status 1[/red]")


def test_verdict_of_a_run():
    """IO-4: a run passes if every demand is met and, if all servers are required, none is missing."""
    assert ALL.passed(require_all=True)
    assert not BAD.passed(require_all=False)
    some = results(*ALL.cases, missing={"far away": "the program far"})
    assert (some.passed(require_all=False), some.passed(require_all=True)) == (True, False)
