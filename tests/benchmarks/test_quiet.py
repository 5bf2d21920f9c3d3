"""LV-1, LV-2, LV-4: short versions of `python -m benchmarks.quiet`, each in its own process. Waits in real time."""

from __future__ import annotations

from tests.programs import records

OURS = {"asyncio-ours", "threads-ours"}


def run(what, seconds):
    """Run one of the counts; return its lines."""
    return records("benchmarks.quiet", what, "--minutes", seconds / 60)


def test_pings():
    """LV-1: a liveness call is no PING: a client whose core sends none sends none with `quiet_after`."""
    rows = [row for row in run("pings", 5) if row["pings_of_the_core"] == "none"]
    assert {row["subject"] for row in rows} > OURS
    for row in rows:
        assert row["frames"] > 10
        assert "pings" not in row
        assert row["stream_open"]
        assert row["connections"] == 1


def test_a_slow_server():
    """LV-2: a server that misses deadlines loses no call that it answers plain grpc, and no connection."""
    rows = run("slow", 5)
    assert {row["subject"] for row in rows} > OURS
    for row in rows:
        assert row["with_200_ms"]["DEADLINE_EXCEEDED"] > 4
        assert set(row["with_200_ms"]) <= {"DEADLINE_EXCEEDED", "OK"}, (
            "a busy client sees the answer before the deadline"
        )
        assert set(row["with_20_s"]) == {"OK"}
        assert row["connections"] == 1


def test_false_news():
    """LV-4: false news ten times a second costs at most one attempt for each gap, and resets no schedule."""
    rows = run("news", 8)
    assert {row["subject"] for row in rows} == OURS
    for row in rows:
        assert row["news"] > 20
        assert row["planned_attempts"] >= 2
        assert row["most_for_a_gap"] == 1
        assert row["schedule_resets"] == 0
