"""The ledger example, in which a process is killed while it delivers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from examples.ledger import Outcome

GOOD = Outcome(submitted=60, arrived=60, twice=3, lost_attempts=5, unfinished=0)


@pytest.mark.slow
def test_nothing_is_lost():
    """LG-6, LG-9: the example runs on SQLite, and no order is lost."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.ledger"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "60 of 60 orders arrived, 0 are stuck" in done.stdout
    assert done.stdout.splitlines()[-1] == "ok  no order was lost"


@pytest.mark.parametrize("wrong", [{"arrived": 59}, {"unfinished": 1}, {"twice": 6}])
def test_the_judge(wrong):
    """LG-6: the judge rejects runs that lose an order, leave one stuck, or deliver one twice without a reason."""
    from dataclasses import replace

    assert GOOD.good
    assert not replace(GOOD, **wrong).good
