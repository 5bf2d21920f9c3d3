"""The results of a run, whether they pass, and their conversion to JSON."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from grpc_judge.clients.findings import Finding
from grpc_judge.conformance import Absent, Clause, Evidence, Level, Outcome, Scenario, Verdict
from grpc_judge.matrix.scenarios import Pace
from grpc_judge.runner.written import machine, plain, summary, whole

_FAILING = (Scenario.HANG_UP, Scenario.STEADY, Scenario.FAILURES, Scenario.HANDSHAKE)
"""The scenarios of one client each, in which every attempt fails."""


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

    def passes(self, clauses: Iterable[Clause]) -> bool:
        """Return whether none of these clauses fails, and any clause could be judged at all."""
        judged = any(verdict.outcome is not Outcome.NOT_APPLICABLE for verdict in self.verdicts)
        return judged and all(self.verdict_on(clause).outcome is not Outcome.FAIL for clause in clauses)

    @property
    def headline(self) -> str:
        """What explains most failures in one sentence; empty if nothing does."""
        tried = [self.evidence[scenario] for scenario in _FAILING if scenario in self.evidence]
        seen = [each for each in tried if isinstance(each, Evidence)]
        if seen and all(len(each.visits) == 1 for each in seen):
            return "It dials once and never again after a failed attempt: most failures below follow from this."
        return ""

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

    def passed(self, *, require_peers: bool, named: bool = False, allowed: Collection[str] = ()) -> bool:
        """Return whether the run is a success.

        Failures of peers that need not pass are results, not errors.

        Args:
            require_peers: whether it is an error if a peer is missing or its program breaks down.
            named: whether the peers were chosen by name; then all of them must pass the clauses of the protocol.
            allowed: names of clauses and rules whose failures are known.
        """
        if require_peers and (self.missing or any(peer.broken for peer in self.peers)):
            return False
        asked = [clause for clause in self.clauses if not {clause.name, clause.rule} & set(allowed)]
        protocol = [clause for clause in asked if clause.level is Level.PROTOCOL]
        return all(peer.passes(asked if peer.must_pass else protocol) for peer in self.peers if named or peer.must_pass)


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
            {
                "name": clause.name,
                "rule": clause.rule,
                "level": clause.level.value,
                "scenario": clause.scenario.label,
                "says": clause.says,
            }
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
