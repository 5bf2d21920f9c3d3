"""How the command line writes texts, failures, counts and times for people, and values for programs.

Tables fit the width of a terminal and have their natural width elsewhere.
"""

from __future__ import annotations

import enum
import json
import math
import re
import sys
import unicodedata
from collections.abc import Sequence
from datetime import datetime

import click

from grpc_backoff.decide.connections.events import Failure

JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document; times are in seconds.")
"""The option of every command that prints a table."""
_WIDE = 200
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_PREAMBLE = re.compile(r"^failed to connect to all addresses; last error: (?:[A-Z_]+: )?")
_MILLISECOND = 0.001
_LONG = 1e6


def printable(text: str) -> str:
    r"""Return the text on one line, with control and formatting characters escaped, such as `\x1b`.

    Text from a server or a resolver ends up in a terminal, where it must not be able to move the cursor, set a title,
    reverse the text or start a new line.
    """
    return "".join(_escape(char) if unicodedata.category(char) in _UNPRINTABLE else char for char in text)


def _escape(char: str) -> str:
    return char.encode("ascii", "backslashreplace").decode() if ord(char) > 127 else f"\\x{ord(char):02x}"  # noqa: PLR2004


def reason(failure: Failure) -> str:
    """Return a failure's reason without the prefix that every failure of grpcio's core has."""
    return _PREAMBLE.sub("", failure.reason)


def failure_fields(failure: Failure | None) -> dict[str, str | None]:
    """Return the fields of an event that say where and why an attempt failed."""
    return {"stage": failure.stage.value if failure else None, "error": failure.reason if failure else None}


def plural(count: int, noun: str) -> str:
    """Return a number with its noun, such as "1 attempt" or "2 attempts"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration(value: float | None) -> str:
    """Format a time that was measured, in seconds: "2 ms", "1.50 s", "<1 ms"."""
    if value is None:
        return "?"
    if 0 < value < _MILLISECOND:
        return "<1 ms"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def seconds(value: float) -> str:
    """Format a time in a table: to the millisecond, without trailing zeros; extreme values to three digits."""
    if math.isinf(value):
        return "never"
    if value and not _MILLISECOND <= value <= _LONG:
        return f"{value:.3g} s"
    return f"{value:.3f}".rstrip("0").rstrip(".") + " s"


def rounded(value: float) -> float:
    """Round a time for JSON: to the microsecond; times below a millisecond to three digits, as in `seconds`."""
    return round(value, 6) if value >= _MILLISECOND else float(f"{value:.3g}")


def span(low: float, high: float) -> str:
    """Format a range of such times; a single one if both are equal."""
    least, most = seconds(low), seconds(high)
    return least if least == most else f"{least} - {most}"


def json_text(value: object, indent: int | None = None) -> str:
    """Return JSON in ASCII, with DEL escaped; no terminal interprets it, and it parses to the same text."""
    return json.dumps(plain(value), indent=indent).replace("\x7f", "\\u007f")


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
            return value.isoformat() if isinstance(value, datetime) else str(value)


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


def write_json(value: object) -> None:
    """Print one JSON document."""
    click.echo(json_text(value, indent=2))
