"""TH-6: KeyboardInterrupt in a main thread that waits for a call."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("interrupted.py")


TRIES = 3  # Python drops an interrupt that arrives during a finalizer


def said(phase):
    try:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), phase], stdout=subprocess.PIPE, text=True, timeout=35, check=False
        )
    except subprocess.TimeoutExpired:
        return "nothing"
    return done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="a system without signals to threads")
@pytest.mark.parametrize("phase", ["waiting", "sleeping", "hedged"])
def test_interrupted(phase):
    """TH-6: KeyboardInterrupt ends a pending, sleeping or hedged call, and the channel works afterwards."""
    assert any(said(phase) == "as it should be\n" for _ in range(TRIES))
