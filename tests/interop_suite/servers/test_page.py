"""The tables of servers in the documentation, and the command that writes them."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from xml.sax.saxutils import quoteattr

from click.testing import CliRunner

from grpc_judge.servers import find_servers
from tests.interop_suite.servers import __main__ as command
from tests.interop_suite.servers import page
from tests.interop_suite.servers.processes import GRPCIO

RECORDED = {
    "test_killed[grpc-go server]": {
        "versions": """['{"versions": {"grpc-go": "1.85.0", "go": "1.26.8"}}']""",
        "calls": "552",
        "failed": "246",
        "lost": "3, 2 with plain grpcio",
        "recovered": "0.2512",
        "connections": "2",
        "attempts": "6",
    },
    "test_hedged[asyncio-uvicorn server]": {"asyncio": "1000 0 998 1 116"},
    "test_hedged_for_two_minutes[Vert.x server]": {"asyncio": "1200 0 1190 1 131", "threads": "1200 0 1191 1 132"},
    "test_cancelled[uvicorn server]": {"cancelled": "280"},
    "test_frozen[etcd]": None,
}
WRITTEN = """\
| server | software |
| --- | --- |
| grpc-go | grpc-go 1.85.0, go 1.26.8 |

| server | happening | verdict | calls | failed | lost | lost by plain grpcio | recovered | connections | attempts |
| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
| grpc-go | killed | fail | 552 | 246 | 3 † | 2 | 0.25 s | 2 | 6 |

† Plain grpcio lost calls there too.

| server | calls | API | answered | failed | copies | connections | 99th percentile |
| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |
| uvicorn | 20 at a time | asyncio | 1000 | 0 | 998 | 1 | 116 ms |
| Vert.x | ten a second, for two minutes | asyncio | 1200 | 0 | 1190 | 1 | 131 ms |
| Vert.x | ten a second, for two minutes | threads | 1200 | 0 | 1191 | 1 | 132 ms |

- uvicorn ended a connection of plain grpcio, and the call that ran on it, after 280 other calls had been cancelled.

- Skipped: Armeria server: not available, since the program mvn is missing.
"""
MISSING = replace(GRPCIO, name="missing server", programs=("no-such-program",))


def report(folder):
    """Write a report as pytest does: what has no figures was skipped, and `test_killed` has failed."""
    cases = []
    for name, figures in RECORDED.items():
        properties = "".join(
            f"<property name={quoteattr(key)} value={quoteattr(value)}/>" for key, value in (figures or {}).items()
        )
        how = "<failure/>" if "killed" in name else "" if figures else "<skipped/>"
        cases.append(f"<testcase name='{name}'><properties>{properties}</properties>{how}</testcase>")
    path = folder / "figures.xml"
    path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    return path


def test_tables(tmp_path):
    """IO-4: the tables have each server's figures beside those of plain grpcio, and what was skipped and why."""
    about = tmp_path / "servers.md"
    about.write_text(f"before\n{page.BEGIN}\nold\n{page.END}\nafter\n")
    skipped = ["Armeria server: not available, since the program mvn is missing"]
    page.write(report(tmp_path), skipped, about)
    before, made, after = about.read_text().partition(f"\n\n{WRITTEN}\n")
    assert made
    assert before.startswith(f"before\n{page.BEGIN}\n\nMeasured on 2")
    assert after == f"{page.END}\nafter\n"


def test_every_server_is_in_the_page():
    """IO-4: the page has every server that has a manifest."""
    text = page.PAGE.read_text("utf-8")
    names = {server.name.removesuffix(" server") for server in find_servers()}
    assert {name for name in names if f"| {name} | " not in text.partition(page.BEGIN)[2]} == set()


def run(monkeypatch, *arguments, required=""):
    """Run the command with two servers, of which one is missing; return its result, and the tests that it ran."""
    ran = []
    monkeypatch.setenv("GRPC_BACKOFF_REQUIRE_PEERS", required)
    monkeypatch.setattr(command, "SERVERS", [MISSING, GRPCIO])
    monkeypatch.setattr(page, "write", lambda _, skipped: ran.append(skipped))
    monkeypatch.setattr(subprocess, "run", lambda what, **how: ran.append(what) or subprocess.CompletedProcess(what, 0))
    return CliRunner().invoke(command.main, arguments), ran


def test_what_is_missing_is_skipped(monkeypatch):
    """IO-4: the command says which servers it skips and why, and writes that into the page."""
    result, (tests, skipped) = run(monkeypatch)
    reason = "missing server: not available, since the program no-such-program is missing"
    assert (result.exit_code, skipped) == (0, [reason])
    assert sorted(result.output.splitlines()) == ["grpcio server: nothing to build", reason]
    assert tests[tests.index("-k") + 1] == "grpcio"


def test_what_is_missing_is_an_error_if_all_are_required(monkeypatch):
    """IO-4: with GRPC_BACKOFF_REQUIRE_PEERS=1, a server that is missing is an error."""
    result, ran = run(monkeypatch, required="1")
    assert (result.exit_code, ran) == (1, [])
    assert "1 servers are missing, and GRPC_BACKOFF_REQUIRE_PEERS=1 requires all" in result.output


def test_some_servers(monkeypatch):
    """IO-4: with names, only these servers are tested, and the page stays as it is; an unknown one is an error."""
    assert len(run(monkeypatch, "grpcio")[1]) == 1
    assert "no server can be tested" in run(monkeypatch, "missing")[0].output
    assert "NAMES=nobody: expected one of missing server, grpcio server" in run(monkeypatch, "nobody")[0].output
