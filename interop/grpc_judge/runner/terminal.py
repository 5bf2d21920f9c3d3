"""Shared by the terminal output of all commands: the console, the words for outcomes, and the style of tables."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from grpc_judge.conformance import Outcome

WORDS = {
    Outcome.PASS: Text("pass", style="green"),
    Outcome.FAIL: Text("FAIL", style="bold red"),
    Outcome.NOT_APPLICABLE: Text("n/a", style="dim"),
    Outcome.INCONCLUSIVE: Text("late", style="yellow"),
}
"""How each outcome is shown."""

_WIDE = 200


def wide_console() -> Console:
    """Return a console for standard output, wide enough for a table if standard output is not a terminal."""
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _WIDE
    return console


def plain_table(*columns: str) -> Table:
    """Return a table whose first columns have these headings and do not wrap."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table
