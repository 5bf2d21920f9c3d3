"""Prints tables and JSON. Tables fit the width of a terminal and have their natural width elsewhere."""

from __future__ import annotations

import enum
import json
import math
import sys
from collections.abc import Sequence

import click

from grpc_backoff.cli.view import printable

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document; times are in seconds.")
"""The option of every command that prints a table."""

_WIDE = 200
_SHORT, _LONG = 0.001, 1e6


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = True) -> None:
    """Print a table; with `numbers`, all columns but the first are aligned as numbers."""
    from rich import box  # noqa: PLC0415 - rich takes a while to import
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title=Text(printable(title)), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if numbers and index else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False).print(table)


def seconds(value: float) -> str:
    """Format a time for a cell: exact to the millisecond, without trailing zeros; extreme values to three digits."""
    if math.isinf(value):
        return "never"
    if value and not _SHORT <= value <= _LONG:
        return f"{value:.3g} s"
    return f"{value:.3f}".rstrip("0").rstrip(".") + " s"


def rounded(value: float) -> float:
    """Round a time for JSON: to the microsecond; times below a millisecond to three digits, as in a cell."""
    return round(value, 6) if value >= _SHORT else float(f"{value:.3g}")


def span(low: float, high: float) -> str:
    """Format a range of times for a cell; a single time if both are equal."""
    least, most = seconds(low), seconds(high)
    return least if least == most else f"{least} - {most}"


def write_json(value: object) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(plain(value), indent=2))


def plain(value: object) -> object:
    """Return a value as JSON and the file represent it; infinity and NaN, which JSON cannot, become strings."""
    match value:
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case frozenset() | list() | tuple():
            return [plain(item) for item in (sorted(value) if isinstance(value, frozenset) else value)]
        case enum.Enum():
            return value.value
        case bool() | int() | str() | None:
            return value
        case float() if math.isfinite(value):
            return value
        case _:
            return str(value)
