"""The benchmark of hedged calls runs and counts what it says. No latency is asserted."""

from __future__ import annotations

from benchmarks.hedging import run


async def test_it_runs():
    """HG-1, HG-2: plain calls are sent once, and hedged ones at most three times."""
    found = await run(200)
    assert set(found["microseconds for each call"]) == {"no policy", "retry", "hedge"}
    for name in ("1.5 % slow by 1 s", "one of three servers hangs"):
        assert found[name]["plain"]["requests"] == 1
        assert 1 <= found[name]["hedged"]["requests"] <= 3
