"""Prints a run on the terminal: its progress, the table of peers and rules, and the failures.

Progress is a bar on a terminal and plain lines elsewhere.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from grpc_judge.conformance import Outcome, Verdict
from grpc_judge.matrix.results import Demands, PeerResult, Results
from grpc_judge.matrix.rows import Row, rows
from grpc_judge.matrix.schedule import Wave
from grpc_judge.runner.build import Built

_WORDS = {
    Outcome.PASS: Text("pass", style="green"),
    Outcome.FAIL: Text("FAIL", style="bold red"),
    Outcome.NOT_APPLICABLE: Text("n/a", style="dim"),
    Outcome.INCONCLUSIVE: Text("late", style="yellow"),
}
"""How each outcome is shown."""
_STYLES = {"FAIL": "bold red", "known": "yellow", "advice": "yellow", "late": "yellow"}
"""The styles of rows that do not hold."""
_WIDE = 200
"""The columns of standard output if it is not a terminal, so that a table fits."""
_NARROW = 100
"""The most columns that the verdicts on one client take."""
_SHORT = 11
"""The width of a column of figures, which leaves room for what was seen."""
_COUNTED = {
    "pass": "held",
    "FAIL": "failed",
    "known": "allowed to fail",
    "advice": "against advice",
    "not asked": "not asked",
    "late": "inconclusive",
}
"""What a client's headline says of the verdicts of its rows."""


class MatrixView:
    """Prints the progress and results of a run."""

    def __init__(self, console: Console | None = None) -> None:
        """Write to `console`; None means standard output."""
        self.console = console or Console(highlight=False, soft_wrap=True)
        if console is None and not self.console.is_terminal:
            self.console.width = _WIDE

    def built(self, built: Built) -> None:
        """Print how long a peer's build took, or why it failed."""
        if built.program.build and not built.missing:
            self.console.print(str(built))

    @contextlib.contextmanager
    def progress(self, waves: Sequence[Wave]) -> Iterator[Callable[[Wave], None]]:
        """Show the progress of the waves; yield a function to call with each wave as it starts."""
        told = itertools.count(1)

        def line(wave: Wave) -> str:
            return f"wave {next(told)} of {len(waves)}, {wave.seconds:.0f} s"

        def print_line(wave: Wave) -> None:
            names = ", ".join(f"{trial.peer.name} {trial.staging.scenario.label}" for trial in wave.trials)
            self.console.print(f"{line(wave)}: {names}")

        if not self.console.is_terminal:
            yield print_line
            return
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task("", total=len(waves))
            yield lambda wave: bar.update(task, description=line(wave), advance=1)

    def show_each(self, results: Results, demands: Demands) -> None:
        """Print every verdict on each client, with what to read about those that do not hold."""
        for peer in results.judged:
            found = list(rows(peer, results, demands))
            self._head(peer, found)
            table = _plain_table("rule", "clause", "verdict")
            table.padding = (0, 1, 0, 0)
            table.add_column("seen")
            table.add_column("allowed")
            table.add_column("missed by", max_width=_SHORT)
            for row in found:
                cells = (row.rule, row.clause, row.verdict, row.seen, row.allowed, row.missed_by)
                table.add_row(*map(Text, cells), style=_STYLES.get(row.verdict))
            self._print_narrow(table)
            for read in dict.fromkeys(row.read for row in found if row.verdict in _STYLES):
                names = ", ".join(row.clause for row in found if row.read == read and row.verdict in _STYLES)
                self._print_narrow(f"{names}:")
                self.console.print(f"  read {read}")
            if any(row.verdict in _STYLES for row in found):
                self.console.print("`grpc-judge explain CLAUSE` says what a clause requires and how it is seen.")
        for peer in results.missing:
            self.console.print(f"{peer.name}: left out, since {peer.missing}")

    def _print_narrow(self, what: Table | str) -> None:
        self.console.print(what, width=min(_NARROW, self.console.width), soft_wrap=False)

    def show(self, results: Results) -> None:
        """Print the table and then every verdict that is not a pass."""
        self.console.print()
        self.console.print(_table(results))
        for peer in results.missing:
            self.console.print(f"{peer.name}: left out, since {peer.missing}")
        for peer in results.judged:
            self._show_peer(peer, results)

    def _show_peer(self, peer: PeerResult, results: Results) -> None:
        notable = [verdict for verdict in peer.verdicts if verdict.outcome is not Outcome.PASS]
        self._head(peer, list(rows(peer, results, Demands())))
        for verdict in notable:
            self.console.print(_line(verdict))

    def _head(self, peer: PeerResult, found: Sequence[Row]) -> None:
        counts = Counter(row.verdict for row in found)
        said = ", ".join(f"{counts[word]} {told}" for word, told in _COUNTED.items() if counts[word])
        versions = f" ({peer.shown_versions})" if peer.versions else ""
        self.console.print()
        self.console.print(Text.assemble((peer.name, "bold"), f"{versions}: {len(found)} clauses, {said}"))
        if peer.headline:
            self.console.print(Text(peer.headline, style="bold"))


def _table(results: Results) -> Table:
    table = _plain_table("rule", "clause")
    for peer in results.judged:
        table.add_column(peer.name.replace(" ", "\n"), justify="center")
    for clause in results.clauses:
        cells = [_WORDS[peer.verdict_on(clause).outcome] for peer in results.judged]
        table.add_row(clause.rule, clause.name, *cells)
    return table


def _plain_table(*columns: str) -> Table:
    """Return a table whose first columns have these headings and do not wrap."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def _line(verdict: Verdict) -> Text:
    return Text.assemble("  ", _WORDS[verdict.outcome], f" {verdict.rule} {verdict.clause}: {verdict}")
