"""Prints a run on the terminal: its progress, the table of servers and happenings, and the failures."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grpc_judge.conformance import Outcome
from grpc_judge.runner.terminal import WORDS, plain_table, wide_console
from grpc_judge.servers.case_results import CaseResult, CaseResults
from grpc_judge.servers.notes import figures

__all__ = ["CaseView"]


class CaseView:
    """Prints the progress and results of a run."""

    def __init__(self, console: Console | None = None) -> None:
        """Write to `console`; None means standard output."""
        self.console = console or wide_console()

    def ended(self, case: CaseResult, number: int, of: int) -> None:
        """Print a case's number and outcome."""
        said = f"{number} of {of}: {case.server.name} {case.happening.value}: "
        self.console.print(Text.assemble(said, WORDS[case.outcome]))

    def show(self, results: CaseResults) -> None:
        """Print the table and then the failures."""
        self.console.print()
        self.console.print(_table(results))
        for name, reason in results.missing.items():
            self.console.print(f"{name}: left out, since {reason} is missing")
        for case in results.cases:
            self._show_failures(case)

    def _show_failures(self, case: CaseResult) -> None:
        what = f" {case.server.name}, {case.happening.value}"
        if case.fault:
            self.console.print(Text.assemble(WORDS[Outcome.FAIL], f"{what}: {case.fault}"))
        for verdict in case.failed:
            self.console.print(
                Text.assemble(WORDS[Outcome.FAIL], f"{what}: {verdict.rule} {verdict.clause}: {verdict}")
            )


def _table(results: CaseResults) -> Table:
    table = plain_table("server", "happening")
    for name in ("calls", "failed", "recovered", "connections", "attempts", "demands"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for case in results.cases:
        verdict = WORDS[case.outcome]
        table.add_row(case.server.name, case.happening.value, *figures(case.observation), case.held, verdict)
    return table
