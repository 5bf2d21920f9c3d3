"""FK-1: generations of channels, when a channel is rejected, and forks that run no callbacks.

Each API's `test_forks.py` tests forks of Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from grpc_backoff import ForkError
from grpc_backoff.grpcio import forks
from tests.clients.forking import METHOD
from tests.clients.server import Server
from tests.sync.test_forks import needs_forks

ROOT = str(Path(__file__).parents[2])
FORKING_IN_C = """
import ctypes, os, signal
from tests.clients import forking

pid = ctypes.PyDLL(None).fork()
if pid == 0:
    signal.alarm(60)
    print(forking.answer(), flush=True)
    os._exit(0)
print(os.waitpid(pid, 0)[1], forking.ask_inherited())
"""
KEPT = """
import asyncio, builtins, sys
import grpc_backoff
from grpc_backoff import aio

asyncio.set_event_loop(asyncio.new_event_loop())
builtins.kept = (aio if sys.argv[1] == "asyncio" else grpc_backoff).insecure_channel("127.0.0.1:1")
"""


@pytest.fixture
def server():
    """A running server that returns what it is asked."""
    server = Server()
    server.methods[METHOD] = lambda request: request
    server.start()
    yield server
    server.kill()


def test_a_generation():
    """FK-1: all channels of a process have the same generation; a channel of another generation is rejected."""
    assert forks.generation() is forks.generation()
    forks.refuse_inherited("target", forks.generation())
    with pytest.raises(ForkError, match="the channel to target was created before a fork"):
        forks.refuse_inherited("target", forks.Generation(over=True))


@pytest.mark.parametrize(
    ("after", "supported", "threaded", "asynchronous"),
    [
        ({}, False, True, True),
        ({"after_use": True}, False, False, False),
        ({"after_use": True}, True, True, True),
        ({"after_asyncio": True}, False, False, False),
        ({"after_asyncio": True}, True, True, False),
    ],
)
def test_what_is_refused(monkeypatch, after, supported, threaded, asynchronous):
    """FK-1: after a fork with open channels, new channels need fork support.

    If one of the open channels was an asyncio channel, new asyncio channels are rejected even with fork support.
    """
    monkeypatch.setattr(forks, "_now", forks.Generation(**after))
    monkeypatch.setattr(forks, "survives_forks", lambda: supported)
    for asyncio, may in ((False, threaded), (True, asynchronous)):
        if may:
            forks.check_core("target", asyncio=asyncio)
        else:
            with pytest.raises(ForkError, match="to target cannot be created in this process"):
                forks.check_core("target", asyncio=asyncio)


def test_one_warning(monkeypatch, caplog):
    """FK-2: if the core may have been dialling at the fork, the first channel in the child logs one warning."""
    monkeypatch.setattr(forks, "_now", forks.Generation(doubtful=True))
    for _ in range(2):
        forks.check_core("target")
    assert caplog.text.count("may have been dialling") == 1


def test_fork_support_is_asked_for():
    """FK-1: `survives_forks()` returns whether grpcio's fork support is on."""
    assert forks.survives_forks() in (True, False)


@needs_forks
@pytest.mark.parametrize(
    ("api", "before", "support", "child", "parent"),
    [
        # Columns: the API, what the parent did before the fork, fork support, the child's outcomes of the parent's
        # channel and of two new ones, and the parent's outcome.
        ("threads", "open", "1", "ForkError asked asked", "asked"),
        ("threads", "open", "0", "ForkError ForkError ForkError", "asked"),
        ("threads", "closed", "0", "None asked asked", None),
        ("asyncio", "open", "0", "ForkError ForkError ForkError", "asked"),
        ("asyncio", "nothing", "0", "None asked asked", None),
    ],
)
def test_forks_without_callbacks(server, api, before, support, child, parent):
    """FK-1: a server in C that forks without running Python's callbacks, as uWSGI does, has children like any other."""
    more = {"FORKING_TARGET": server.target, "FORKING_API": api, "FORKING_BEFORE": before}
    done = subprocess.run(
        [sys.executable, "-c", FORKING_IN_C],
        env={**os.environ, **more, "PYTHONPATH": ROOT, "GRPC_ENABLE_FORK_SUPPORT": support},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()) == (0, [child, f"0 {parent}"]), done.stderr


@pytest.mark.parametrize("api", ["asyncio", "threads"])
def test_a_channel_that_outlives_its_modules(api):
    """FK-1: a channel that is freed once the interpreter has cleared the modules, as in uWSGI, raises nothing."""
    done = subprocess.run([sys.executable, "-c", KEPT, api], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
