"""Prints a run on the terminal: its progress, a table of all results, and how many goals are met."""

from __future__ import annotations

from itertools import groupby

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.benchmark import Benchmark, Verdict
from benchmarks.cells import HEADINGS, cells
from benchmarks.record import machine, versions
from benchmarks.suite import Run

__all__ = ["View"]

_STYLES = {
    Verdict.MET: "green",
    Verdict.CLOSE_MET: "green",
    Verdict.CLOSE_MISSED: "yellow",
    Verdict.MISSED: "bold red",
}
_UNBOUNDED = 10_000
_FIGURES = {"figure", "spread", "ratio", "95 %"}


class View:
    """Prints to the terminal, or to another console."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)

    def begin(self, benchmark: Benchmark) -> None:
        """Print which benchmark is starting."""
        self._console.print(f"{benchmark.name}: {benchmark.says}, compared with {', '.join(benchmark.beside)}")

    def show(self, run: Run) -> None:
        """Print all results."""
        table, console = _table(run), self._console
        # A table wider than the console would lose digits, and a pipe has no width: rather let the terminal wrap lines.
        unbounded = console.options.update(max_width=_UNBOUNDED)
        console.width = max(console.width, console.measure(table, options=unbounded).maximum)
        console.print()
        console.print(table)
        self._console.print(f"{machine()}; " + ", ".join(f"{name} {version}" for name, version in versions().items()))
        verdicts = [
            cells(row, result.benchmark).verdict
            for result in run.results
            for row in result.rows
            if result.benchmark.goal_of(row) is not None
        ]
        met = sum(verdict.met for verdict in verdicts if verdict is not None)
        self._console.print(f"{met} of {len(verdicts)} rows with a goal meet it")


def _table(run: Run) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading in _FIGURES else "left", no_wrap=True)
    for result in run.results:
        for measure, rows in groupby(result.rows, lambda row: row.measure):
            table.add_section()
            table.add_row(Text(f"{result.benchmark.name}: {measure}", style="bold"))
            case = None
            for row in rows:
                texts, verdict = cells(row, result.benchmark)
                shown = "" if row.case == case else row.case
                table.add_row(shown, *texts[1:-1], Text(texts[-1], style=_STYLES[verdict] if verdict else ""))
                case = row.case
    return table
