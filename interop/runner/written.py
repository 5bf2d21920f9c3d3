"""What the results of all runs have in common as JSON: verdicts, plain values, and the machine."""

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

from interop.conformance import Verdict

__all__ = ["machine", "plain", "summary", "whole", "write"]


_IN_A_LIST = re.compile(r"\},\{(?=\"(clause|name|server)\")")


def write(value: Mapping[str, Any], path: Path) -> None:
    """Write what JSON can say to a file, with a line for each verdict: short, and a change shows where it is."""
    text = json.dumps(value, separators=(",", ":"))
    path.write_text(_IN_A_LIST.sub("},\n{", text) + "\n")


def machine() -> str:
    """Return what a run is made on, in a line."""
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


def summary(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict with the figure that decides it."""
    return {
        "clause": verdict.clause,
        "rule": verdict.rule,
        "outcome": verdict.outcome.value,
        "says": str(verdict),
        "figure": None if verdict.figure is None else plain(asdict(verdict.figure)),
    }


def whole(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict with all that was measured for it."""
    return plain(asdict(verdict)) | summary(verdict)  # type: ignore[no-any-return]


def plain(value: Any) -> Any:
    """Return what JSON can say, with None for what has no bound."""
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
