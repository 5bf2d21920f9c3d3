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

HERE = Path(__file__).parent
REFUSED = ["ForkError"] * 5
CLOSED = ["ValueError"] * 4 + [None]


def run(support, *program):
    """Run a Python program, with or without grpcio's own fork support; it must end without a traceback."""
    done = subprocess.run(
        [sys.executable, *program],
        env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": support},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    return done


def needs_forks(test):
    """Skip a test where no process can be forked, or where a forked one can hang."""
    hangs = "with grpcio 1.63 a forked child can hang, whatever is set; not found out why"
    for condition, reason in ((needs_pump(), hangs), (not hasattr(os, "fork"), "a system without forks")):
        test = pytest.mark.skipif(condition, reason=reason)(test)
    return test


def test_nothing_is_refused_without_a_fork(server):
    """FK-1: a process that was not forked can create any number of channels."""
    with grpc_backoff.insecure_channel(server.target) as one, grpc_backoff.insecure_channel(server.target) as other:
        for channel in (one, other):
            assert EchoStub(channel).Unary(Message(text="a")).text == "a"


@needs_forks
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
    done = run(support, HERE / "forking.py", phase, server.target)
    inherited, made, child, dropped, mine = ast.literal_eval(done.stdout)
    assert inherited == (CLOSED if phase in ("closed", "closing") else REFUSED)
    assert made == (["new", "new"] if support == "1" or phase == "closed" else ["ForkError"] * 2)
    assert (child, dropped, mine) == (0, 0, "mine")
    assert done.stderr.count("may have been dialling") == ((phase, support) == ("ready", "1"))


SERIES = """
import os, sys
import grpc_backoff
from grpc_backoff.decide.connections import dial_times
from grpc_backoff.engine.spares import SPARES
from tests.echo import EchoStub, Message

dial_times.SPARE_UNTIL = dial_times.SPARE_FOR = 60.0
for _ in range(3):
    with grpc_backoff.insecure_channel(sys.argv[1]) as channel:
        EchoStub(channel).Unary(Message(text="a"), timeout=20)
kept = len(SPARES._kept)
pid = os.fork()
if not pid:
    os._exit(len(SPARES._kept) + len(SPARES._inherited))
print(kept, len(SPARES._kept), os.waitpid(pid, 0)[1])
"""


@needs_forks
def test_spare_connections(server):
    """SH-8: a connection that waits for the next channel is closed before a fork."""
    assert run("0", "-c", SERIES, server.target).stdout.split() == ["1", "0", "0"]


@pytest.mark.parametrize(("method", "support"), [("forkserver", "1"), ("spawn", "0")])
def test_processes_that_start_afresh(server, method, support):
    """FK-1: a process started by `spawn` or `forkserver` can create channels even if its parent has one open."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip("a system without it")
    assert ast.literal_eval(run(support, HERE / "forking.py", method, server.target).stdout) == ("new", 0)


@needs_forks
@pytest.mark.parametrize(("kind", "support"), [("plain", "1"), ("ours", "1"), ("ours", "0")])
def test_calls_that_wait(kind, support):
    """FK-1: calls that wait at a fork end in the child with CANCELLED, and go on in the parent."""
    done = run(support, HERE / "forking_calls.py", kind)
    ended, parent = (ast.literal_eval(line) for line in done.stdout.splitlines())
    cancelled = (True, "CANCELLED")
    for each in ended:
        assert each == [
            (True, False, False),
            ("CANCELLED", "Call cancelled in fork child"),
            ((), ()),
            cancelled,
            each[4] and cancelled,
            1,
        ]
    assert len(ended) == (2 if kind == "plain" else 3)
    assert ended[1][4] == cancelled  # the stream
    assert parent == (0, [False] * len(ended))


@needs_forks
@pytest.mark.parametrize(
    ("phase", "support", "child", "parent"),
    [
        # Without fork support, the core's open stream says nothing in a child.
        ("open", "1", ((True, "FAILED_PRECONDITION"), "StopIteration"), "a"),
        ("sleeping", "1", ((True, "CANCELLED"),) * 2, "SLEEPING"),
        ("sleeping", "0", ((True, "CANCELLED"),) * 2, "SLEEPING"),
    ],
)
def test_subscriptions(server, phase, support, child, parent):
    """FK-1, SB-6: in the child, a subscription ends with an error, even if a thread of the parent reads it.

    It goes on in the parent.
    """
    target = server.target if phase == "open" else "127.0.0.1:1"
    done = run(support, HERE / "forking_subscription.py", phase, target)
    assert [ast.literal_eval(line) for line in done.stdout.splitlines()] == [child, (0, parent)]


INHERITED = """
import os, signal, sys, time
import grpc, grpc_backoff

make = grpc.insecure_channel if sys.argv[1] == "plain" else grpc_backoff.insecure_channel
channel = make(sys.argv[2])
ask = channel.unary_unary("/echo.v1.Echo/Unary")
ask(b"", timeout=20)
pid = os.fork()
signal.alarm(20)
said = "UNAVAILABLE"
# plain grpc's first call in the child sometimes meets the connection that it gives up, or is given up with it
while said in ("UNAVAILABLE", "CANCELLED"):
    try:
        said = ask(b"", timeout=10)
    except grpc.RpcError as error:
        said = error.code().name
        time.sleep(0.1)
if pid == 0:
    print(type(said).__name__ if isinstance(said, bytes) else said, flush=True)
    os._exit(0)
print(os.waitpid(pid, 0)[1], said)
"""


@needs_forks
@pytest.mark.parametrize(("kind", "said"), [("plain", "bytes"), ("ours", "FAILED_PRECONDITION")])
def test_the_parents_channel(server, kind, said):
    """FK-1: with fork support, plain grpc's channel works in the child; on ours, a call raises a `grpc.RpcError`."""
    done = run("1", "-c", INHERITED, kind, server.target)
    assert done.stdout.splitlines() == [said, "0 b''"], done.stderr
