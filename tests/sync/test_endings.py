"""TH-5, TH-6: how programs end, and what channels do in functions and threads that run at the end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "ending.py"


def output(what, server):
    """Return what the program prints; it must end by itself, with status 0 and without a traceback."""
    done = subprocess.run(
        [sys.executable, PROGRAM, what, server.target], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("what", ["finalizing", "finalizing_asyncio"])
def test_a_channel_that_is_closed_while_the_interpreter_is_finalizing(server, what):
    """TH-5: the program ends, although nothing can be started or waited for."""
    assert output(what, server) == []


@pytest.mark.parametrize("what", ["at_exit", "at_first_exit", "outliving"])
def test_a_fresh_channel_at_the_end(server, what):
    """TH-5: blocking calls work where Python can start no thread, and listeners hear what happened."""
    assert output(what, server) == ["a", "RetriesExhaustedError UNAVAILABLE", "DEADLINE_EXCEEDED True", "True"]
