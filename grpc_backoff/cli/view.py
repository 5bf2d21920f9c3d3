"""Where a command's report goes: to plain lines, to JSON or to a terminal; and how it writes text, times and counts.

A report states each fact as an event, for programs, and as text, for people. Each view shows one of the two. The view
for terminals is in `live.py`, because it needs rich.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import click

from grpc_backoff.decide.connections.events import Failure

_UNPRINTABLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_PREAMBLE = re.compile(r"^failed to connect to all addresses; last error: (?:[A-Z_]+: )?")
_MILLISECOND = 0.001


Styled = tuple[str, str]
"""A text with rich's name of its style."""


class Cells(NamedTuple):
    """Texts side by side, each in any number of styles; all but the last have a width, negative to align it right."""

    widths: Sequence[int]
    texts: Sequence[Sequence[Styled]]


class Activity(NamedTuple):
    """The current activity: a text, with a spinner or, if `share` of a wait has passed, with a progress bar."""

    text: str
    style: str = ""
    share: float | None = None
    spins: bool = False


class View:
    """Plain lines, for logs and pipes.

    Attributes:
        live: whether it shows the current activity, which is of no use in a log.
        period: the maximum number of seconds between two calls to `now`.
    """

    live = False
    period = 1.0

    def event(self, name: str, **fields: object) -> None:
        """Show an event, whose fields are times and other values that JSON can represent."""

    def line(self, text: str = "", style: str = "") -> None:  # noqa: ARG002 - lines have no style
        """Show a text, in rich's style of this name."""
        click.echo(printable(text))

    def row(self, row: Cells) -> None:
        """Show cells side by side."""
        *texts, last = ("".join(text for text, _ in cell) for cell in row.texts)
        aligned = (
            text.rjust(-width) if width < 0 else text.ljust(width)
            for text, width in zip(texts, row.widths, strict=True)
        )
        self.line(f"{''.join(aligned)} {last}".rstrip())

    def explain(self, meaning: str, advice: str) -> None:
        """Show what a failure means, and what to do about it."""
        self.event("diagnosis", meaning=meaning, advice=advice)
        self.line(meaning, "bold")
        self.line(f"-> {advice}")

    def now(self, *parts: Cells | Activity) -> None:
        """Show the current activity until the next call."""

    def close(self) -> None:
        """Restore the terminal."""


class JsonView(View):
    """One JSON object per line, for programs: the events; the last one is the summary."""

    def event(self, name: str, **fields: object) -> None:
        """Print an object in ASCII, with DEL escaped; no terminal interprets it, and it parses to the same text."""
        rounded = {key: round(value, 6) if isinstance(value, float) else value for key, value in fields.items()}
        click.echo(json.dumps({"event": name, **rounded}, default=datetime.isoformat).replace("\x7f", "\\u007f"))

    def line(self, text: str = "", style: str = "") -> None:
        """Do nothing, because only events are printed."""


def open_view(*, as_json: bool) -> View:
    """Return the view for standard output: JSON on request, live on a terminal, plain lines elsewhere."""
    if as_json:
        return JsonView()
    if sys.stdout.isatty():
        from grpc_backoff.cli.live import LiveView  # noqa: PLC0415 - rich takes a while to import

        return LiveView()
    return View()


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


def duration(seconds: float | None) -> str:
    """Format a short duration: "2 ms", "1.50 s", "<1 ms"."""
    if seconds is None:
        return "?"
    if 0 < seconds < _MILLISECOND:
        return "<1 ms"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def plural(count: int, noun: str) -> str:
    """Return a number with its noun, such as "1 attempt" or "2 attempts"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
