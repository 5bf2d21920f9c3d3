"""FK-1: what the child of a fork can do with channels, tested with real processes."""

from __future__ import annotations

import ast
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

import grpc_backoff
from grpc_backoff.sync.pump import needs_pump
from tests.echo import EchoStub, Message

PROGRAM = Path(__file__).parent / "forking.py"
REFUSED = ["ForkError"] * 4
CLOSED = ["ValueError", "ValueError", "ValueError", None]


def run(how, target, support):
    done = subprocess.run(
        [sys.executable, PROGRAM, how, target],
        env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": support},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    return done


def test_nothing_is_refused_without_a_fork(server):
    """FK-1: a process that was not forked can create any number of channels."""
    with grpc_backoff.insecure_channel(server.target) as one, grpc_backoff.insecure_channel(server.target) as other:
        for channel in (one, other):
            assert EchoStub(channel).Unary(Message(text="a")).text == "a"


@pytest.mark.skipif(needs_pump(), reason="with grpcio 1.63 a forked child can hang, whatever is set; not found out why")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without forks")
@pytest.mark.parametrize(
    ("phase", "support"),
    [
        *((phase, "0") for phase in ("ready", "attempt", "backoff", "waiting", "closing", "closed")),
        # Phases in which the core may be dialling are left out: with fork support, even plain grpcio's children can
        # hang or crash then.
        *((phase, "1") for phase in ("ready", "closed")),
    ],
)
def test_children(server, phase, support):
    """FK-1, FK-2: in a child, inherited channels raise ForkError, close and can be dropped; none hangs.

    Channels that the child creates work with grpcio's fork support, or if no channel of the core was open for a second
    before the fork; otherwise creating one raises ForkError. If grpcio may fail in the child, one warning is logged.
    The parent is not affected.
    """
    done = run(phase, server.target, support)
    inherited, made, child, dropped, mine = ast.literal_eval(done.stdout)
    assert inherited == (CLOSED if phase in ("closed", "closing") else REFUSED)
    assert made == (["new", "new"] if support == "1" or phase == "closed" else ["ForkError"] * 2)
    assert (child, dropped, mine) == (0, 0, "mine")
    assert done.stderr.count("may have been dialling") == ((phase, support) == ("ready", "1"))


@pytest.mark.parametrize(("method", "support"), [("forkserver", "1"), ("spawn", "0")])
def test_processes_that_start_afresh(server, method, support):
    """FK-1: a process started by `spawn` or `forkserver` can create channels even if its parent has one open."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("a system without it")
    assert ast.literal_eval(run(method, server.target, support).stdout) == ("new", 0)
