"""What a run has found out: values, whether that is good, and the same as JSON."""

from __future__ import annotations

import math
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from interop.conformance import Measure, Outcome, Verdict
from interop.servers.demands import recovery
from interop.servers.evidence import Evidence
from interop.servers.happenings import Happening
from interop.servers.manifest import Server
from interop.servers.notes import notes

__all__ = ["Results", "TrialResult", "to_json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialResult:
    """What was found out by one trial.

    Attributes:
        server: in front of which server.
        happening: what happened to it.
        verdicts: what is said of our channel.
        evidence: what was seen; None if the trial did not come to its end.
        fault: why it did not; otherwise empty.
    """

    server: Server
    happening: Happening
    verdicts: tuple[Verdict, ...] = ()
    evidence: Evidence | None = None
    fault: str = ""

    @property
    def passed(self) -> bool:
        """Whether it came to its end, and nothing fails that has to hold there."""
        return not self.fault and not self.failed

    @property
    def failed(self) -> tuple[Verdict, ...]:
        """The verdicts that are failures."""
        return tuple(verdict for verdict in self.verdicts if verdict.outcome is Outcome.FAIL)

    @property
    def held(self) -> str:
        """How many of the demands hold, in words."""
        return f"{sum(verdict.outcome is Outcome.PASS for verdict in self.verdicts)} of {len(self.verdicts)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All that a run has found out.

    Attributes:
        began: when it began.
        short: whether it was a short run.
        upstream: the name of the server behind the proxies.
        trials: each server and each happening, in order.
        missing: by server, what it needs and is not here.
    """

    began: datetime
    short: bool
    upstream: str
    trials: tuple[TrialResult, ...]
    missing: Mapping[str, str]

    @property
    def machine(self) -> str:
        """What it ran on, in a line."""
        return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"

    @property
    def servers(self) -> tuple[Server, ...]:
        """The servers that were there."""
        return tuple({trial.server.name: trial.server for trial in self.trials}.values())

    def trials_of(self, server: Server) -> Sequence[TrialResult]:
        """Return what was found out in front of this server."""
        return [trial for trial in self.trials if trial.server == server]

    def versions_of(self, server: Server) -> Mapping[str, str]:
        """Return what a server uses; nothing if it never came to its end."""
        found = (trial.evidence.versions for trial in self.trials_of(server) if trial.evidence is not None)
        return next(found, {})

    def passed(self, *, require_all: bool) -> bool:
        """Return whether everything holds; with `require_all`, and no server is missing."""
        return all(trial.passed for trial in self.trials) and not (require_all and self.missing)


def to_json(results: Results) -> dict[str, Any]:
    """Return everything, with None for what has no bound; times are seconds since the calls began."""
    return {
        "began": results.began.isoformat(timespec="seconds"),
        "short": results.short,
        "machine": results.machine,
        "upstream": results.upstream,
        "missing": dict(results.missing),
        "trials": [_trial(trial) for trial in results.trials],
    }


def _trial(trial: TrialResult) -> dict[str, Any]:
    return {
        "server": trial.server.name,
        "happening": trial.happening.value,
        "passed": trial.passed,
        "fault": trial.fault,
        "verdicts": [_verdict(verdict) for verdict in trial.verdicts],
    } | ({} if trial.evidence is None else _evidence(trial.evidence))


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "demand": verdict.clause,
        "rule": verdict.rule,
        "outcome": verdict.outcome.value,
        "measures": [_measure(measure) for measure in verdict.measures],
        "says": str(verdict),
    }


def _measure(measure: Measure) -> dict[str, Any]:
    high = measure.allowed.high
    return {
        "what": measure.what,
        "unit": measure.unit.value,
        "seen": round(measure.seen, 6),
        "allowed": [round(measure.allowed.low, 6), round(high, 6) if math.isfinite(high) else None],
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    took = recovery(evidence)
    failed = Counter((call.ended.code.name, call.ended.unsent) for call in evidence.calls if call.ended)
    moments = {name: getattr(evidence, name) - evidence.began for name in ("struck", "gone", "back", "over")}
    return {
        "versions": dict(evidence.versions),
        "calls": {
            "made": len(evidence.calls),
            "ended": [
                {"code": code, "unsent": unsent, "calls": number} for (code, unsent), number in sorted(failed.items())
            ],
            "hung": sum(call.ended is None for call in evidence.calls),
        },
        "moments": {name: round(seconds, 3) for name, seconds in moments.items()},
        "events": [
            {"event": type(event).__name__, "at": round(event.at - evidence.began, 3), "attempt": event.attempt}
            for event in evidence.events
        ],
        "connections": evidence.connections,
        "attempts": len(evidence.starts),
        "recovered_in": None if took is None else round(took, 3),
        "notes": notes(evidence),
    }
