"""Reads a peer's `findings.toml`, which explains what the peer's failures mean for its users."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpc_judge.conformance import CLAUSES
from grpc_judge.runner.manifest import ManifestError

_KEYS = {"clauses", "means", "issues"}
_ISSUE = re.compile(r"[\w.-]+/[\w.-]+#\d+")
_CLAUSES = {clause.name for clause in CLAUSES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What it means for users that a client fails certain clauses.

    Attributes:
        clauses: the names of the clauses.
        means: what users of the client would see, and whether the authors intend it.
        issues: the issues that discuss the failures, as owner/repository#number.
    """

    clauses: tuple[str, ...]
    means: str
    issues: tuple[str, ...] = ()


def read_findings(folder: Path) -> tuple[Finding, ...]:
    """Return the findings in a peer's directory; empty if the peer has none.

    Raises:
        ManifestError: the file cannot be read.
    """
    path = folder / "findings.toml"
    if not path.exists():
        return ()
    try:
        found = tomllib.loads(path.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ManifestError(f"{path}: {error}") from error
    _check(path, "key", found, {"finding"})
    return tuple(_read(path, each) for each in found.get("finding", []))


def _read(path: Path, found: Mapping[str, Any]) -> Finding:
    _check(path, "key", found, _KEYS)
    clauses, means, issues = found.get("clauses"), found.get("means"), found.get("issues", [])
    if not isinstance(clauses, list) or not clauses:
        raise ManifestError(f"{path}: clauses={clauses!r}: expected a list of names of clauses")
    _check(path, "clause", clauses, _CLAUSES)
    if not isinstance(means, str) or not means:
        raise ManifestError(f"{path}: means={means!r}: expected a non-empty string")
    if not isinstance(issues, list) or not all(isinstance(each, str) and _ISSUE.fullmatch(each) for each in issues):
        raise ManifestError(f"{path}: issues={issues!r}: expected a list of owner/repository#number")
    return Finding(clauses=tuple(clauses), means=means, issues=tuple(issues))


def _check(path: Path, kind: str, names: Iterable[str], known: set[str]) -> None:
    for name in names:
        if name not in known:
            raise ManifestError(f"{path}: {kind}={name!r}: expected one of {', '.join(sorted(known))}")
