"""FK-1: forks in practice: gunicorn with a preloaded application, Celery's prefork pool, and a forkserver."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.clients.forking import FOLDERS, METHOD

ROOT = str(Path(__file__).parents[2])
CASES = [
    # Columns: the API, what the parent did before the fork, fork support, and the outcomes of an inherited channel and
    # two new ones.
    ("threads", "nothing", "0", "None asked asked"),
    ("threads", "closed", "0", "None asked asked"),
    ("threads", "open", "0", "ForkError ForkError ForkError"),
    ("threads", "open", "1", "ForkError asked asked"),
    ("asyncio", "nothing", "0", "None asked asked"),
    ("asyncio", "closed", "1", "None asked asked"),
    ("asyncio", "open", "0", "ForkError ForkError ForkError"),
]


@contextlib.contextmanager
def running(server, api, before, support, *command, **more):
    """Run a forking program for the duration of the block, then kill it and its children."""
    server.methods[METHOD] = lambda request: request
    environ = {
        **os.environ,
        **more,
        "PYTHONPATH": ROOT,
        "FORKING_TARGET": server.target,
        "FORKING_API": api,
        "FORKING_BEFORE": before,
        "GRPC_ENABLE_FORK_SUPPORT": support,
    }
    program = subprocess.Popen(
        [sys.executable, "-m", *command], env=environ, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield program
    finally:
        program.terminate()
        try:
            program.communicate(timeout=20)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(program.pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("worker", "api", "before", "support", "expected"),
    [*(("sync", *case) for case in CASES), *(("gthread", *case) for case in CASES if case[:2] == ("threads", "open"))],
)
def test_gunicorn(server, worker, api, before, support, expected):
    """FK-1: in workers of `gunicorn --preload`, forked once the app has loaded, channels work or raise ForkError."""
    command = ["gunicorn", "--preload", "-w", "2", "-k", worker, "-b", "127.0.0.1:0", "tests.clients.forking:wsgi"]
    with running(server, api, before, support, *command) as gunicorn:
        where = next(filter(None, (re.search(r"Listening at: (\S+)", line) for line in gunicorn.stderr)))[1]
        for _ in range(4):
            with urllib.request.urlopen(where, timeout=20) as said:
                assert said.read().decode() == expected


@pytest.mark.parametrize(("api", "before", "support", "expected"), [case for case in CASES if "open" in case])
def test_celery(server, tmp_path, monkeypatch, api, before, support, expected):
    """FK-1: in workers of Celery's prefork pool, forked after importing the tasks, channels work or raise ForkError."""
    from celery import Celery

    command = ["celery", "-A", "tests.clients.forking", "worker", "-P", "prefork", "-c", "2", "-l", "error"]
    folder = str(tmp_path)
    client = Celery(broker="filesystem://", backend=f"file://{folder}")
    client.conf.broker_transport_options = dict.fromkeys(FOLDERS, folder)
    with running(server, api, before, support, *command, FORKING_BROKER=folder):
        answers = [client.send_task("answer") for _ in range(4)]
        assert [answer.get(timeout=30) for answer in answers] == [expected] * 4


@pytest.mark.parametrize(("api", "before", "support", "expected"), CASES)
def test_forkserver(server, api, before, support, expected):
    """FK-1: in children of `multiprocessing`'s forkserver, which has imported the app, channels work or are refused."""
    with running(server, api, before, support, "tests.clients.preloaded") as program:
        said = program.stderr.read()  # until all its processes have ended: a signal would leave the child behind
    assert re.search("answer: (.*)", said)[1] == expected
