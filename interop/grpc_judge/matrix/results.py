"""The results of a run, whether they pass, and their conversion to JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from grpc_judge.clients.findings import Finding
from grpc_judge.conformance import Absent, Clause, Evidence, Outcome, Scenario, Verdict
from grpc_judge.matrix.scenarios import Pace
from grpc_judge.runner.written import machine, plain, summary, whole

__all__ = ["PeerResult", "Results", "to_json", "to_summary"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerResult:
    """The results of one peer.

    Attributes:
        name: its name.
        must_pass: whether a failure of this peer is a failure of the run.
        missing: why the peer could not be run; empty if it ran.
        versions: the versions of the software it used.
        evidence: what was observed of it in each scenario.
        paces: the pace at which it ran in each scenario.
        verdicts: one verdict for each clause of the run.
        findings: what is known about its failures.
        folder: the folder of its program; None for a peer without one, as in tests.
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
        """The names and versions of the software that the peer used, in one line."""
        return ", ".join(f"{name} {version}" for name, version in self.versions.items())

    @property
    def broken(self) -> bool:
        """Whether the peer's program failed to run to the end in any scenario."""
        return any(isinstance(each, Absent) and each.fault for each in self.evidence.values())

    @property
    def failed(self) -> tuple[str, ...]:
        """The names of the clauses that the peer fails for what was observed, not because its program crashed."""
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
        """The clauses that the peer fails and that no finding explains."""
        explained = {clause for finding in self.findings for clause in finding.clauses}
        return tuple(clause for clause in self.failed if clause not in explained)

    @property
    def passed(self) -> bool:
        """Whether every clause holds or is inconclusive. A clause that does not apply does not count as holding."""
        return not self.missing and all(
            verdict.outcome in {Outcome.PASS, Outcome.INCONCLUSIVE} for verdict in self.verdicts
        )

    def verdict_on(self, clause: Clause) -> Verdict:
        """Return the verdict of this clause on the peer."""
        return next(verdict for verdict in self.verdicts if verdict.clause == clause.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The results of a run.

    Attributes:
        began: when the run started.
        took: how long it took, in seconds.
        full: whether it was as long as the official test.
        clauses: the clauses that were judged.
        peers: the results of each peer.
    """

    began: datetime
    took: float = 0.0
    full: bool
    clauses: tuple[Clause, ...]
    peers: tuple[PeerResult, ...]

    @property
    def judged(self) -> tuple[PeerResult, ...]:
        """The peers that were run."""
        return tuple(peer for peer in self.peers if not peer.missing)

    @property
    def missing(self) -> tuple[PeerResult, ...]:
        """The peers that could not be run."""
        return tuple(peer for peer in self.peers if peer.missing)

    def clauses_of(self, scenario: Scenario) -> tuple[Clause, ...]:
        """Return the clauses that were judged in this scenario."""
        return tuple(clause for clause in self.clauses if clause.scenario is scenario)

    def passed(self, *, require_peers: bool) -> bool:
        """Return whether all peers that must pass do so and, with `require_peers`, whether none is missing or broken.

        Failures of other peers are results, not errors.
        """
        if require_peers and (self.missing or any(peer.broken for peer in self.peers)):
            return False
        return all(peer.passed for peer in self.peers if peer.must_pass)


def to_json(results: Results) -> dict[str, Any]:
    """Return all results as JSON. Infinite bounds become None."""
    everything = to_summary(results)
    for peer, said in zip(results.peers, everything["peers"], strict=True):
        said["verdicts"] = [whole(verdict) for verdict in peer.verdicts]
        said["scenarios"] = {
            scenario.label: {"pace": peer.paces[scenario].value} | plain(asdict(evidence))
            for scenario, evidence in peer.evidence.items()
        }
    return everything


def to_summary(results: Results) -> dict[str, Any]:
    """Return a summary as JSON: the versions, and each verdict with the figure that decides it."""
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
