"""TH-6: KeyboardInterrupt in the main thread of a program that waits for a call."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("interrupted.py")


TRIES = 3  # Python drops an interrupt that arrives while it runs a finalizer, and then nothing happens at all


def said(phase):
    try:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), phase], stdout=subprocess.PIPE, text=True, timeout=35, check=False
        )
    except subprocess.TimeoutExpired:
        return "nothing"
    return done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="a system without signals to threads")
@pytest.mark.parametrize("phase", ["waiting", "sleeping"])
def test_interrupted(phase):
    """TH-6: a call that waits, or sleeps between attempts, ends by it, and the channel goes on as before."""
    assert any(said(phase) == "as it should be\n" for _ in range(TRIES))
