"""Converts a run to JSON: the machine, the versions and every sample."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from importlib import metadata
from typing import Any

import psutil

import grpc_backoff
from benchmarks.benchmark import Benchmark, Row
from benchmarks.suite import Run

__all__ = ["machine", "to_json", "versions"]

_PACKAGES = (
    "grpcio",
    "grpclib",
    "tenacity",
    "stamina",
    "backoff",
    "google-api-core",
    "uvloop",
    "protobuf",
    "h2",
    "numpy",
)
_GIB = 1 << 30


def machine() -> str:
    """Describe this machine in one line."""
    memory = psutil.virtual_memory().total / _GIB
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB"


def versions() -> Mapping[str, str]:
    """Return the versions of every library that is measured."""
    return {
        "grpc-backoff": grpc_backoff.__version__,
        "Python": platform.python_version(),
        **{package: metadata.version(package) for package in _PACKAGES},
    }


def to_json(run: Run) -> dict[str, Any]:
    """Return the whole run as JSON values, with None for infinite bounds."""
    return {
        "began": run.began.isoformat(timespec="seconds"),
        "effort": run.effort.value,
        "machine": machine(),
        "versions": dict(versions()),
        "benchmarks": [
            {
                "name": result.benchmark.name,
                "says": result.benchmark.says,
                "beside": list(result.benchmark.beside),
                "seconds": round(result.seconds, 1),
                "rows": [_row(row, result.benchmark) for row in result.rows],
            }
            for result in run.results
        ],
    }


def _row(row: Row, benchmark: Benchmark) -> dict[str, Any]:
    goal = benchmark.goal_of(row)
    return {
        "case": row.case,
        "subject": row.subject,
        "measure": asdict(row.measure),
        "value": row.value,
        "spread": row.spread,
        "ratio": None if row.ratio is None else asdict(row.ratio),
        "goal": None
        if goal is None
        else {
            "of": goal.of.value,
            "least": _bound(goal.least),
            "most": _bound(goal.most),
            "verdict": goal.judge(row).value,
        },
        "samples": row.samples,
    }


def _bound(number: float) -> float | None:
    return number if math.isfinite(number) else None
