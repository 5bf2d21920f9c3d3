"""Formats a reconnect-test verdict for a terminal or a log."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from grpc_judge.official.verdict import OfficialVerdict


def show(verdict: OfficialVerdict, console: Console) -> None:
    """Print every gap with its allowed range, then any faults, and then the verdict."""
    if verdict.gaps:
        console.print(_table(verdict))
    for fault in verdict.faults:
        console.print(str(fault), highlight=False)
    console.print(summary(verdict), highlight=False)


def summary(verdict: OfficialVerdict) -> str:
    """Return the verdict in one line."""
    word = "passed" if verdict.passed else "failed"
    return f"{word}: {verdict.attempts.seen:.0f} attempts in {verdict.seconds:.1f} s"


def _table(verdict: OfficialVerdict) -> Table:
    table = Table("gap", "seconds", "allowed", "")
    for number, gap in enumerate(verdict.gaps, 1):
        allowed = f"{gap.allowed.low:.3f} to {gap.allowed.high:.3f}"
        table.add_row(str(number), f"{gap.seen:.3f}", allowed, "missed" if gap.missed_by else "ok")
    return table
