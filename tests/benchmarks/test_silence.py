"""LV-1: the short version of `python -m benchmarks.silence`, with all faults at once. Waits in real time."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.programs import records


def lacks():
    """Return why this machine makes no network namespaces; empty if it does."""
    missing = [each for each in ("unshare", "nsenter", "ip", "ss") if shutil.which(each) is None]
    if missing:
        return f"there is no {missing[0]}"
    return "" if subprocess.run(["unshare", "--net", "true"], check=False).returncode == 0 else "it needs root"


def test_silence():
    """LV-1: with `quiet_after` 0.2 s and `answer_within` 0.5 s, no silent peer holds up streams and calls for 15 s."""
    if reason := lacks():
        pytest.skip(reason)
    quick = ["--ours", "--quiet-after", 0.2, "--answer-within", 0.5, "--within", 15]
    rows = records("benchmarks.silence", *quick)
    assert sorted((row["silence"], row["subject"]) for row in rows) == sorted(
        (what, subject)
        for what in ("all", "up", "down", "address", "frozen")
        for subject in ("asyncio-ours", "threads-ours")
    )
    for row in rows:
        assert row["stream_failed"] is not None, row
        assert row["answered"] is not None, row
