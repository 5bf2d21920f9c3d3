"""The benchmarks run. What they measure is nobody's business here: no test asserts a speed."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from benchmarks import flapping, overhead, policy


def test_overhead(tmp_path):
    """CH-5: the comparison of calls runs to its end and writes down each kind of call on each channel."""
    file = tmp_path / "overhead.json"
    done = CliRunner().invoke(overhead.main, ["--calls", "40", "--json", str(file)])

    assert done.exit_code == 0, done.output
    results = json.loads(file.read_text())
    assert len(results) == 6
    assert all(result["median_us"] > 0 and result["calls"] == 40 for result in results)


def test_flapping(tmp_path):
    """CB-7: the count of connections runs to its end and writes down both channels."""
    file = tmp_path / "flapping.json"
    done = CliRunner().invoke(flapping.main, ["--seconds", "0.2", "--workers", "2", "--json", str(file)])

    assert done.exit_code == 0, done.output
    assert [result["channel"] for result in json.loads(file.read_text())] == ["grpc.aio", "grpc_backoff.aio"]


def test_policy(tmp_path):
    """BP: the comparison of delays runs to its end and writes down every library for each length of series."""
    file = tmp_path / "policy.json"
    done = CliRunner().invoke(policy.main, ["--rounds", "2", "--json", str(file)])

    assert done.exit_code == 0, done.output
    results = json.loads(file.read_text())
    assert len(results) == 2 * 6
    assert all(result["median_ns"] > 0 for result in results)


@pytest.mark.parametrize("name", policy.LIBRARIES)
def test_same_schedule(name, monkeypatch):
    """BP: what is compared is the same schedule: every library draws from the same interval, but for stamina's own."""
    asked = []
    monkeypatch.setattr("random.uniform", lambda low, high: asked.append((low, high)) or high)
    monkeypatch.setattr("random.Random.random", lambda _: asked.append((0.0, 1.0)) or 0.5)

    policy.LIBRARIES[name](8)

    assert len(asked) == 8
    if name in ("tenacity", "backoff", "google-api-core"):
        assert asked == [(0, min(2.0**n, 60.0)) for n in range(8)]
