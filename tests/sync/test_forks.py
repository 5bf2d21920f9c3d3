"""FK-1: what a child of a fork can do with channels, in real children of real programs."""

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
    """FK-1: a process that was not forked makes channels as it likes."""
    with grpc_backoff.insecure_channel(server.target) as one, grpc_backoff.insecure_channel(server.target) as other:
        for channel in (one, other):
            assert EchoStub(channel).Unary(Message(text="a")).text == "a"


@pytest.mark.skipif(needs_pump(), reason="with grpcio 1.63 a forked child can hang, whatever is set; not found out why")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without forks")
@pytest.mark.parametrize(
    ("phase", "support"),
    [
        *((phase, "0") for phase in ("ready", "attempt", "backoff", "waiting", "closing", "closed")),
        # Not while the core may be dialling: with its fork support on, grpcio's own children hang or crash then.
        *((phase, "1") for phase in ("ready", "closed")),
    ],
)
def test_children(server, phase, support):
    """FK-1, FK-2: the child's inherited channels say that they were made before a fork, close and are dropped.

    None hangs. Channels that the child makes work with grpcio's fork support, or where no core channel was open for a
    second; otherwise making one says so at once. Where grpcio may fail there is one warning. The parent is as before.
    """
    done = run(phase, server.target, support)
    inherited, made, child, dropped, mine = ast.literal_eval(done.stdout)
    assert inherited == (CLOSED if phase in ("closed", "closing") else REFUSED)
    assert made == (["new", "new"] if support == "1" or phase == "closed" else ["ForkError"] * 2)
    assert (child, dropped, mine) == (0, 0, "mine")
    assert done.stderr.count("may have been dialling") == ((phase, support) == ("ready", "1"))


@pytest.mark.parametrize(("method", "support"), [("forkserver", "1"), ("spawn", "0")])
def test_processes_that_start_afresh(server, method, support):
    """FK-1: where the parent has a channel open, processes that start afresh make channels as they like."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("a system without it")
    assert ast.literal_eval(run(method, server.target, support).stdout) == ("new", 0)
