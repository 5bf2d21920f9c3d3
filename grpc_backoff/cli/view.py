"""Where a command's report goes: to plain lines, to JSON or to a terminal.

A report states each fact as an event, for programs, and as text, for people. The view for terminals is in `live.py`,
because it needs rich.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from grpc_backoff.cli.texts import json_text, printable

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
    """Where a report goes. A kind of view shows either the events or the text, and does nothing for the other.

    Attributes:
        live: whether it shows the current activity, which is of no use in a log.
        period: the maximum number of seconds between two calls to `now`.
    """

    live = False
    period = 1.0

    def event(self, name: str, **fields: object) -> None:
        """Show an event, whose fields are times and other values that JSON can represent."""

    def line(self, text: str = "", style: str = "") -> None:
        """Show a text, in rich's style of this name."""

    def row(self, row: Cells) -> None:
        """Show cells side by side."""

    def explain(self, meaning: str, advice: str) -> None:
        """Show what a failure means, and what to do about it."""
        self.event("diagnosis", meaning=meaning, advice=advice)
        self.line(meaning, "bold")
        self.line(f"-> {advice}")

    def now(self, *parts: Cells | Activity) -> None:
        """Show the current activity until the next call."""

    def close(self) -> None:
        """Restore the terminal."""


class LineView(View):
    """Plain lines, for logs and pipes."""

    def line(self, text: str = "", style: str = "") -> None:  # noqa: ARG002 - lines have no style
        """Print a text."""
        click.echo(printable(text))

    def row(self, row: Cells) -> None:
        """Print cells side by side."""
        *texts, last = ("".join(text for text, _ in cell) for cell in row.texts)
        aligned = (
            text.rjust(-width) if width < 0 else text.ljust(width)
            for text, width in zip(texts, row.widths, strict=True)
        )
        self.line(f"{''.join(aligned)} {last}".rstrip())


class JsonView(View):
    """One JSON object per line, for programs: the events; the last one is the summary."""

    def event(self, name: str, **fields: object) -> None:
        """Print an object; its own times are rounded to the microsecond."""
        rounded = {key: round(value, 6) if isinstance(value, float) else value for key, value in fields.items()}
        click.echo(json_text({"event": name, **rounded}))


def open_view(*, as_json: bool) -> View:
    """Return the view for standard output: JSON on request, live on a terminal, plain lines elsewhere."""
    if as_json:
        return JsonView()
    if sys.stdout.isatty():
        from grpc_backoff.cli.live import LiveView  # noqa: PLC0415 - rich takes a while to import

        return LiveView()
    return LineView()
