"""PO-8, PO-10, RO-1: short versions of `python -m benchmarks.pool`, each in its own process. Waits in real time."""

from __future__ import annotations

from tests.programs import records


def rows(what, times):
    """Run one of the counts; return its lines, by subject."""
    return {row["subject"]: row for row in records("benchmarks.pool", what, "--times", times)}


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


def test_drains():
    """RO-1, RO-2: servers that are drained and restarted cost clients that watch the health no call."""
    told = records("benchmarks.pool", "drains", "--times", 2)
    ours = [row for row in told if row["subject"].endswith("ours")]
    watched = [row for row in ours if row["policy"] in ("round_robin", "pick_first")]
    assert len(watched) == 4
    assert [set(row["calls"]) for row in watched] == [{"OK"}] * 4
