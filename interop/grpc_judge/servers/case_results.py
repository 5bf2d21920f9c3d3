"""The results of a run, whether they pass, and their conversion to JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from grpc_judge.conformance import Outcome, Verdict
from grpc_judge.runner.written import machine, whole
from grpc_judge.servers.demands import recovery
from grpc_judge.servers.happenings import Happening
from grpc_judge.servers.notes import notes
from grpc_judge.servers.observation import Observation
from grpc_judge.servers.server import Server

__all__ = ["CaseResult", "CaseResults", "to_json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The results of one case.

    Attributes:
        server: the server.
        happening: what happened to it.
        verdicts: the verdicts on our channel; empty if the case could not be completed.
        observation: what was observed; None if the case could not be completed.
        fault: why the case could not be completed; empty if it was.
    """

    server: Server
    happening: Happening
    verdicts: tuple[Verdict, ...] = ()
    observation: Observation | None = None
    fault: str = ""

    @property
    def passed(self) -> bool:
        """Whether the case was completed and no demand failed."""
        return not self.fault and not self.failed

    @property
    def outcome(self) -> Outcome:
        """The result as a single outcome."""
        return Outcome.PASS if self.passed else Outcome.FAIL

    @property
    def failed(self) -> tuple[Verdict, ...]:
        """The verdicts that failed."""
        return tuple(verdict for verdict in self.verdicts if verdict.outcome is Outcome.FAIL)

    @property
    def held(self) -> str:
        """How many of the demands hold, as text."""
        return f"{sum(verdict.outcome is Outcome.PASS for verdict in self.verdicts)} of {len(self.verdicts)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResults:
    """The results of a run.

    Attributes:
        began: when the run started.
        short: whether it was a short run.
        upstream: the name of the server behind the proxies.
        cases: the results of each case, in order.
        missing: for each server that was left out, by name, the requirements that it lacks.
    """

    began: datetime
    short: bool
    upstream: str
    cases: tuple[CaseResult, ...]
    missing: Mapping[str, str]

    @property
    def servers(self) -> tuple[Server, ...]:
        """The servers that were run."""
        return tuple({case.server.name: case.server for case in self.cases}.values())

    def cases_of(self, server: Server) -> Sequence[CaseResult]:
        """Return the results of this server's cases."""
        return [case for case in self.cases if case.server == server]

    def versions_of(self, server: Server) -> Mapping[str, str]:
        """Return the versions that a server uses; empty if none of its cases was completed."""
        found = (case.observation.versions for case in self.cases_of(server) if case.observation is not None)
        return next(found, {})

    def passed(self, *, require_all: bool) -> bool:
        """Return whether all cases pass. With `require_all`, a missing server also counts as failure."""
        return all(case.passed for case in self.cases) and not (require_all and self.missing)


def to_json(results: CaseResults) -> dict[str, Any]:
    """Return all results as JSON. Infinite bounds become None; times are in seconds since the calls began."""
    return {
        "began": results.began.isoformat(timespec="seconds"),
        "short": results.short,
        "machine": machine(),
        "upstream": results.upstream,
        "missing": dict(results.missing),
        "cases": [_case(case) for case in results.cases],
    }


def _case(case: CaseResult) -> dict[str, Any]:
    return {
        "server": case.server.name,
        "happening": case.happening.value,
        "passed": case.passed,
        "fault": case.fault,
        "verdicts": [whole(verdict) for verdict in case.verdicts],
    } | ({} if case.observation is None else _observation(case.observation))


def _observation(observation: Observation) -> dict[str, Any]:
    took = recovery(observation)
    failed = Counter((call.ended.code.name, call.ended.unsent) for call in observation.calls if call.ended)
    moments = {name: getattr(observation, name) - observation.began for name in ("struck", "gone", "back", "over")}
    return {
        "versions": dict(observation.versions),
        "calls": {
            "made": len(observation.calls),
            "ended": [
                {"code": code, "unsent": unsent, "calls": number} for (code, unsent), number in sorted(failed.items())
            ],
            "hung": sum(call.ended is None for call in observation.calls),
        },
        "moments": {name: round(seconds, 3) for name, seconds in moments.items()},
        "events": [
            {"event": type(event).__name__, "at": round(event.at - observation.began, 3), "attempt": event.attempt}
            for event in observation.events
        ],
        "connections": observation.connections,
        "attempts": len(observation.starts),
        "recovered_in": None if took is None else round(took, 3),
        "notes": notes(observation),
    }
