"""`python -m interop build`: what it builds, what is missing, and when a missing program is an error."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from dataclasses import replace

import pytest
from click.testing import CliRunner

from grpc_judge import checkout
from grpc_judge.clients.peer import Peer
from grpc_judge.runner.build import build_all
from grpc_judge.runner.program import ROOT
from grpc_judge.servers import ServerProgram

READY = Peer(name="ready", folder=ROOT, command=("true",), configurable=frozenset())
BUILT = replace(READY, name="built", build=((sys.executable, "-c", ""),))
BROKEN = replace(READY, name="broken", build=((sys.executable, "-c", "raise SystemExit('no compiler')"),))
FAR_AWAY = replace(BUILT, name="far away", programs=("no-such-program",))
SERVER = ServerProgram(name="server", folder=ROOT, command=("true",))
LARGE = replace(SERVER, name="large server", full=True)
SLOW = replace(READY, build=((sys.executable, "-c", "import time; time.sleep(0.5)"),))


def command(monkeypatch, peers, *arguments, required=""):
    monkeypatch.setenv("GRPC_BACKOFF_REQUIRE_PEERS", required)
    monkeypatch.setattr(checkout, "find_peers", lambda: list(peers))
    monkeypatch.setattr(checkout, "find_servers", lambda: [LARGE, SERVER])
    return CliRunner().invoke(checkout.cli, ["build", *arguments])


@pytest.mark.parametrize(("required", "status"), [("", 0), ("1", 1)])
def test_each_peer_is_accounted_for(monkeypatch, required, status):
    """IO-4: the output has a line for each peer: how long its build took, or why it is missing or broken."""
    result = command(monkeypatch, [READY, BUILT, BROKEN, FAR_AWAY], required=required)
    lines = sorted(result.output.splitlines())
    assert result.exit_code == status
    assert len(lines) == 5
    assert lines[0].startswith("broken: not available, since ")
    assert lines[0].endswith(" failed: no compiler")
    assert re.fullmatch(r"built: built in \d+\.\d s", lines[1])
    assert lines[2] == "far away: not available, since the program no-such-program is missing"
    assert lines[3:] == ["ready: nothing to build", "server: nothing to build"]


def test_all_there(monkeypatch):
    """IO-4: if every peer is available, the command succeeds even if all are required."""
    assert command(monkeypatch, [READY, BUILT], required="1").exit_code == 0


@pytest.mark.parametrize(("arguments", "servers"), [([], ["server"]), (["--full"], ["large server", "server"])])
def test_servers_of_the_full_run(monkeypatch, arguments, servers):
    """IO-4: the servers that only the full run tests are built with `--full`."""
    lines = command(monkeypatch, [], *arguments, required="1").output.splitlines()
    assert sorted(lines) == [f"{server}: nothing to build" for server in servers]


def test_one_of_them(monkeypatch):
    """IO-4: `--peers` builds only the peers that it names; an unknown name produces a one-line error."""
    assert command(monkeypatch, [BUILT, BROKEN], "--peers", "built", required="1").exit_code == 0
    assert command(monkeypatch, [BUILT], "--peers", "nobody").output == "Error: --peers=nobody: expected one of built\n"


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (
            "Package grpc++ was not found in the path|make: *** [peer] Error 1|make[1]: Leaving directory",
            "Package grpc",
        ),
        (
            "make: Entering directory|peer.cc:1:10: fatal error: x.h|1 error generated.|make: Leaving",
            "peer.cc:1:10: fatal",
        ),
        ("all is well|and then it was not|", "and then it was not"),
        ("", "it printed nothing"),
    ],
)
async def test_a_build_that_fails_shows_its_cause(lines, cause):
    """IO-4: of a failed build, the line is shown that tells why, and not what the tools around it print last."""
    program = f"print({lines!r}.replace('|', chr(10))); raise SystemExit(1)"
    (built,) = await build_all([replace(READY, build=((sys.executable, "-c", program),))])
    assert built.missing.startswith(f"{sys.executable} failed: {cause}")


async def test_two_at_a_time():
    """IO-4: at most two builds run at once. Takes two seconds."""
    began = time.monotonic()
    built = await build_all([replace(SLOW, name=f"slow {number}") for number in range(4)])
    assert [each.program.name for each in built] == [f"slow {number}" for number in range(4)]
    assert time.monotonic() - began >= 1.0
    assert all(each.seconds >= 0.5 for each in built)


async def test_told_as_they_are_done():
    """IO-4: each build is reported as soon as it is done, while others are still running."""
    told = []
    building = asyncio.create_task(build_all([SLOW, READY], told.append))
    async with asyncio.timeout(30):
        while not told:
            await asyncio.sleep(0.01)
    assert [each.program for each in told] == [READY]
    assert not building.done()
    assert [each.program for each in await building] == [SLOW, READY]
