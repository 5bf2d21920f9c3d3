"""The benchmarks run. What they measure is nobody's business here: no test asserts a speed."""

from __future__ import annotations

import json

from click.testing import CliRunner

from benchmarks import flapping, overhead


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
