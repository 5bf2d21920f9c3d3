"""`python -m interop servers`: which servers run or are missing, what is written, and a run with real servers."""

from __future__ import annotations

import io
import json
import os
import sys
from dataclasses import replace

import pytest
from click.testing import CliRunner
from rich.console import Console

from grpc_judge.checkout import cli
from grpc_judge.runner.program import ROOT
from grpc_judge.servers import command as module
from grpc_judge.servers.case_view import CaseView
from grpc_judge.servers.command import cases, run_all, servers
from grpc_judge.servers.happenings import Happening
from grpc_judge.servers.server import Server, find_servers

FOUND = {server.folder.name: server for server in find_servers()}
PYTHON = FOUND["grpc_python"]
KILLED = replace(PYTHON, happenings=(Happening.KILLED,))
MADE_UP = Server(name="made up", folder=ROOT, command=(sys.executable,), happenings=(Happening.KILLED,))
FAR_AWAY = replace(MADE_UP, name="far away", programs=("no-such-program",))
UNBUILT = replace(MADE_UP, name="unbuilt", build=((sys.executable, "-c", "raise SystemExit('no compiler')"),))
BROKEN = replace(MADE_UP, name="broken", command=(sys.executable, "-c", "raise SystemExit('no')"))


def run(monkeypatch, *arguments, found=(PYTHON,)):
    upstream = [] if any(server.folder == PYTHON.folder for server in found) else [PYTHON]
    monkeypatch.setattr(module, "find_servers", lambda: [*found, *upstream])
    names = [] if "--servers" in arguments else [part for server in found for part in ("--servers", server.name)]
    return CliRunner().invoke(servers, [*names, *map(str, arguments)])


def test_the_command_is_there():
    """IO-4: `servers` is a command of `python -m interop`."""
    assert cli.commands["servers"] is servers


def test_a_wrong_choice_is_one_line(monkeypatch):
    """IO-4: an unknown server produces a one-line error that lists the known ones."""
    result = run(monkeypatch, "--servers", "nobody")
    assert (result.exit_code, result.output) == (1, "Error: --servers=nobody: expected one of grpcio server\n")


def test_what_is_planned():
    """IO-4: a full run has a case for each thing that can happen to each server; a short run has two per server."""
    chosen = list(FOUND.values())
    whole = cases(chosen, PYTHON, short=False)
    assert len(whole) == sum(len(server.happenings) for server in chosen)
    assert all((case.upstream is None) != case.server.proxy for case in whole)
    short = cases(chosen, PYTHON, short=True)
    assert all(sum(case.server is server for case in short) == 2 for server in chosen)


@pytest.mark.parametrize(("required", "status"), [("", 0), ("0", 0), ("1", 1)])
def test_missing_servers(monkeypatch, required, status):
    """IO-4: a missing server is named and left out; it is an error if all servers are required."""
    monkeypatch.setenv("GRPC_BACKOFF_REQUIRE_PEERS", required)
    result = run(monkeypatch, found=[FAR_AWAY, UNBUILT])
    assert result.exit_code == status
    assert "far away: left out, since the program no-such-program is missing" in result.output
    assert "unbuilt: left out, since" in result.output
    assert "no compiler" in result.output


def test_a_server_that_fails(monkeypatch, tmp_path):
    """IO-4: a server that does not run fails its case, and one line says why."""
    result = run(monkeypatch, "--json", tmp_path / "all.json", "--report", tmp_path / "all.md", found=[BROKEN])
    assert result.exit_code == 1
    assert "FAIL broken, killed: broken ended with status 1: no\n" in result.output
    (case,) = json.loads((tmp_path / "all.json").read_text())["cases"]
    assert (case["passed"], case["fault"]) == (False, "broken ended with status 1: no")
    assert "**killed**, **fail**. broken ended with status 1: no" in (tmp_path / "all.md").read_text()


def test_grpcio_killed(monkeypatch, tmp_path):
    """CH-2: the command prints verdicts, writes JSON and a page, and exits with 0 if all demands hold. Takes 5 s."""
    result = run(monkeypatch, "--json", tmp_path / "all.json", "--report", tmp_path / "all.md", found=[KILLED])
    assert result.exit_code == 0, result.output
    assert "1 of 1: grpcio server killed: pass\n" in result.output
    (case,) = json.loads((tmp_path / "all.json").read_text())["cases"]
    assert {verdict["clause"] for verdict in case["verdicts"]} >= {"waiting", "recovery", "attempts"}
    assert case["connections"] == 2
    assert case["recovered_in"] is not None
    assert "| grpcio server | killed |" in (tmp_path / "all.md").read_text()


@pytest.mark.slow
async def test_all_that_happens_to_servers_and_proxies():
    """CH-2, CB-7: the channel meets all demands with every server on this machine. Takes half a minute."""
    names = ["grpc_python", "etcd", "nginx", "haproxy"]
    there = [FOUND[name] for name in names if os.environ.get("GRPC_BACKOFF_REQUIRE_PEERS") or not FOUND[name].missing]
    view = CaseView(Console(file=io.StringIO(), width=200))
    for chosen, short in ((there, True), ([replace(PYTHON, happenings=(Happening.AGED, Happening.PINGED))], False)):
        results = await run_all(chosen, PYTHON, view, short=short)
        assert results.missing == {}
        assert [(case.server.name, case.happening, str(case.failed)) for case in results.cases if case.failed] == []
        assert results.passed(require_all=True)
