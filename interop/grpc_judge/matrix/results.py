"""The results of a run, whether they pass, and their conversion to JSON."""

from __future__ import annotations

import enum
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


class Status(enum.IntEnum):
    """The exit statuses of a run. Click has 2, for wrong options."""

    PASSED = 0
    FAILED = 1
    NOT_JUDGED = 3
    """Nothing failed, but no clause could be judged of a client either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """What counts as a failure: the protocol's clauses, except those that are allowed, and those that are required.

    Attributes:
        allowed: names of clauses and rules whose failures are known.
        required: names of clauses and rules whose failures count, even if they are recommendations.
    """

    allowed: Collection[str] = ()
    required: Collection[str] = ()

    def allow(self, clause: Clause) -> bool:
        """Return whether the clause may fail."""
        return not {clause.name, clause.rule}.isdisjoint(self.allowed)

    def require(self, clause: Clause) -> bool:
        """Return whether the clause counts of any client."""
        return clause.level is Level.PROTOCOL or not {clause.name, clause.rule}.isdisjoint(self.required)


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

    def status(self, clauses: Iterable[Clause]) -> Status:
        """Return whether any of these clauses fails, and whether any clause could be judged at all."""
        if self.verdicts and any(self.verdict_on(clause).outcome is Outcome.FAIL for clause in clauses):
            return Status.FAILED
        judged = any(verdict.outcome in {Outcome.PASS, Outcome.FAIL} for verdict in self.verdicts)
        return Status.PASSED if judged else Status.NOT_JUDGED

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

    def status(self, *, require_peers: bool, named: bool = False, demands: Demands = Demands()) -> Status:
        """Return whether the run is a success.

        Failures of peers that need not pass are results, not errors.

        Args:
            require_peers: whether it is an error if a peer is missing or its program breaks down.
            named: whether the peers were chosen by name; then all of them must pass the clauses that are required.
            demands: what counts as a failure.
        """
        if require_peers and (self.missing or any(peer.broken for peer in self.peers)):
            return Status.FAILED
        asked = [clause for clause in self.clauses if not demands.allow(clause)]
        required = [clause for clause in asked if demands.require(clause)]
        found = {peer.status(asked if peer.must_pass else required) for peer in self.peers if named or peer.must_pass}
        return Status.FAILED if Status.FAILED in found else max(found, default=Status.PASSED)


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
