"""What a run has found out: values, whether that is good, and the same as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from interop.clients.findings import Finding
from interop.conformance import Absent, Clause, Evidence, Outcome, Scenario, Verdict
from interop.matrix.scenarios import Pace
from interop.runner.written import machine, plain, summary, whole

__all__ = ["PeerResult", "Results", "to_json", "to_summary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerResult:
    """All that was found out about one peer.

    Attributes:
        name: who.
        must_pass: whether a failure of this peer is a failure of the run.
        missing: why it is not here, in words; then there is nothing else. Empty if it is.
        versions: of what it used.
        evidence: what was seen of it.
        paces: how time passed.
        verdicts: what is said of it, one for each clause of the run.
        findings: what is known of its failures.
        folder: where its program is; None for one that was made up.
    """

    name: str
    must_pass: bool
    missing: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    evidence: Mapping[Scenario, Evidence | Absent] = field(default_factory=dict)
    paces: Mapping[Scenario, Pace] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    findings: tuple[Finding, ...] = ()
    folder: Path | None = None

    @property
    def shown_versions(self) -> str:
        """The versions in a line."""
        return ", ".join(f"{name} {version}" for name, version in self.versions.items())

    @property
    def broken(self) -> bool:
        """Whether its program broke down in one of the scenarios."""
        return any(isinstance(each, Absent) and each.fault for each in self.evidence.values())

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the clauses that it fails, by what was seen of it; a program that breaks down shows nothing."""
        return tuple(
            verdict.clause
            for verdict in self.verdicts
            if verdict.outcome is Outcome.FAIL and verdict.figure is not None
        )

    @property
    def held(self) -> tuple[str, ...]:
        """The names of the clauses that hold."""
        return tuple(verdict.clause for verdict in self.verdicts if verdict.outcome is Outcome.PASS)

    @property
    def unexplained(self) -> tuple[str, ...]:
        """The clauses that it fails, and no finding says what that means."""
        explained = {clause for finding in self.findings for clause in finding.clauses}
        return tuple(clause for clause in self.failed if clause not in explained)

    @property
    def passed(self) -> bool:
        """Whether every clause holds, unless the judge was late. One that does not apply is not shown to hold."""
        return not self.missing and all(
            verdict.outcome in {Outcome.PASS, Outcome.INCONCLUSIVE} for verdict in self.verdicts
        )

    def verdict_on(self, clause: Clause) -> Verdict:
        """Return what is said of it by this clause."""
        return next(verdict for verdict in self.verdicts if verdict.clause == clause.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All that a run has found out.

    Attributes:
        began: when it began.
        took: how long it took, in seconds.
        full: whether it was as long as the official test.
        clauses: what was judged.
        peers: who was.
    """

    began: datetime
    took: float = 0.0
    full: bool
    clauses: tuple[Clause, ...]
    peers: tuple[PeerResult, ...]

    @property
    def judged(self) -> tuple[PeerResult, ...]:
        """The peers that were there."""
        return tuple(peer for peer in self.peers if not peer.missing)

    @property
    def missing(self) -> tuple[PeerResult, ...]:
        """The peers that were not."""
        return tuple(peer for peer in self.peers if peer.missing)

    def clauses_of(self, scenario: Scenario) -> tuple[Clause, ...]:
        """Return what was judged by that scenario."""
        return tuple(clause for clause in self.clauses if clause.scenario is scenario)

    def passed(self, *, require_peers: bool) -> bool:
        """Return whether those that must pass have passed; with `require_peers`, and none is missing or broken.

        The failures of others are results, not errors.
        """
        if require_peers and (self.missing or any(peer.broken for peer in self.peers)):
            return False
        return all(peer.passed for peer in self.peers if peer.must_pass)


def to_json(results: Results) -> dict[str, Any]:
    """Return everything, with None for what has no bound."""
    everything = to_summary(results)
    for peer, said in zip(results.peers, everything["peers"], strict=True):
        said["verdicts"] = [whole(verdict) for verdict in peer.verdicts]
        said["scenarios"] = {
            scenario.label: {"pace": peer.paces[scenario].value} | plain(asdict(evidence))
            for scenario, evidence in peer.evidence.items()
        }
    return everything


def to_summary(results: Results) -> dict[str, Any]:
    """Return the verdicts, each with the figure that decides it, and what they were made with."""
    return {
        "began": results.began.isoformat(timespec="seconds"),
        "took": round(results.took),
        "full": results.full,
        "machine": machine(),
        "clauses": [
            {"name": clause.name, "rule": clause.rule, "scenario": clause.scenario.label, "says": clause.says}
            for clause in results.clauses
        ],
        "peers": [_peer(peer) for peer in results.peers],
    }


def _peer(peer: PeerResult) -> dict[str, Any]:
    return {
        "name": peer.name,
        "must_pass": peer.must_pass,
        "missing": peer.missing,
        "versions": dict(peer.versions),
        "verdicts": [summary(verdict) for verdict in peer.verdicts],
    }
