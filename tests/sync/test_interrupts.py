"""TH-6: KeyboardInterrupt in the main thread of a program that waits for a call."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("interrupted.py")


@pytest.mark.skipif(sys.platform == "win32", reason="a system without signals to threads")
@pytest.mark.parametrize("phase", ["waiting", "running", "sleeping"])
def test_interrupted(phase):
    """TH-6: a call that waits, runs, or sleeps between attempts ends by it, and the channel goes on as before."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(PROGRAM), phase],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.stdout, done.returncode, "Traceback" in done.stderr) == ("as it should be\n", 0, False), done.stderr
