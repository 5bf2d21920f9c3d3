"""Shared by the JSON results of all commands: verdicts, plain values, and a description of the machine."""

from __future__ import annotations

import json
import math
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Any

from grpc_judge.conformance import Verdict

_IN_A_LIST = re.compile(r"\},\{(?=\"(clause|name|server)\")")


def write(value: Mapping[str, Any], path: Path) -> None:
    """Write a value as JSON with one line per verdict, which is compact and readable as a diff."""
    text = json.dumps(value, separators=(",", ":"))
    path.write_text(_IN_A_LIST.sub("},\n{", text) + "\n")


def machine() -> str:
    """Describe this machine in one line."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def summary(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict and the figure that decides it as JSON values."""
    return {
        "clause": verdict.clause,
        "rule": verdict.rule,
        "outcome": verdict.outcome.value,
        "says": str(verdict),
        "figure": None if verdict.figure is None else plain(asdict(verdict.figure)),
    }


def whole(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict and everything that was measured for it as JSON values."""
    return plain(asdict(verdict)) | summary(verdict)  # type: ignore[no-any-return]


def plain(value: Any) -> Any:
    """Convert a value to types that JSON supports. Infinity becomes None."""
    match value:
        case Enum():
            return value.value
        case float():
            return round(value, 6) if math.isfinite(value) else None
        case Mapping():
            return {name: plain(each) for name, each in value.items()}
        case str():
            return value
        case Sequence():
            return [plain(each) for each in value]
    return value
