"""PO-8, PO-10: short versions of `python -m benchmarks.pool`, each in a process of its own. Waits in real time."""

from __future__ import annotations

import json
import subprocess
import sys


def rows(what, times):
    """Run one of the counts; return its lines, by subject."""
    command = [sys.executable, "-m", "benchmarks.pool", what, "--times", str(times)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=110)
    return {row["subject"]: row for row in map(json.loads, done.stdout.splitlines())}


def test_rotations():
    """PO-10: while a server comes back with other certificates, no call fails, and no channel of the core is left."""
    told = rows("rotations", 3)
    assert set(told) == {"asyncio-ours", "threads-ours"}
    for row in told.values():
        assert set(row["calls"]) == {"OK"}
        assert row["channels_left"] == 0


def test_bursts():
    """PO-8: 300 calls at once on four connections, to a server that allows 100 calls each, all succeed."""
    told = rows("burst", 1)
    assert {subject: row["calls"] for subject, row in told.items() if subject.endswith("ours")} == {
        "asyncio-ours": {"OK": 300},
        "threads-ours": {"OK": 300},
    }
