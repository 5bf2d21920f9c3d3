"""Displays attempts: the interface of a view, its two plain forms, and the escaping of text from outside.

The live view for terminals is in `live.py`, because it needs rich.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from typing import Protocol

import click

from grpc_backoff.cli.attempts import LoggedAttempt, Outcome, Summary
from grpc_backoff.connection.events import ConnectionStatus, Failure

_UNPRINTABLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
_PREAMBLE = re.compile(r"^failed to connect to all addresses; last error: (?:[A-Z_]+: )?")
_MILLISECOND = 0.001


class View(Protocol):
    """A display of attempts.

    Attributes:
        period: the maximum number of seconds between two calls to `refresh`.
    """

    period: float

    def heading(self, text: str) -> None:
        """Start a section with this heading."""
        ...

    def remark(self, text: str) -> None:
        """Show a remark about a section."""
        ...

    def show(self, attempt: LoggedAttempt) -> None:
        """Show an attempt that has just started, or whose outcome has just changed."""
        ...

    def refresh(self, status: ConnectionStatus | None, note: str = "") -> None:
        """Show the current activity: the countdown, and a note beside it."""
        ...

    def explain(self, meaning: str, advice: str) -> None:
        """Show what the last failure means, and what to do about it."""
        ...

    def summary(self, summary: Summary) -> None:
        """Show the totals; nothing follows them."""
        ...

    def close(self) -> None:
        """Restore the terminal."""
        ...


def open_view(*, as_json: bool) -> View:
    """Return the view for standard output: JSON on request, live on a terminal, plain lines elsewhere."""
    if as_json:
        return JsonView()
    if sys.stdout.isatty():
        from grpc_backoff.cli.live import LiveView  # noqa: PLC0415 - rich takes a while to import

        return LiveView()
    return LineView()


def printable(text: str) -> str:
    r"""Return the text on one line, with control and formatting characters escaped, such as `\x1b`.

    Text from a server or a resolver ends up in a terminal, where it must not be able to move the cursor, set a title,
    reverse the text or start a new line.
    """
    return "".join(_escape(char) if unicodedata.category(char) in _UNPRINTABLE else char for char in text)


def _escape(char: str) -> str:
    return char.encode("ascii", "backslashreplace").decode() if ord(char) > 127 else f"\\x{ord(char):02x}"  # noqa: PLR2004


def reason(failure: Failure) -> str:
    """Return a failure's reason for display: printable, and without the prefix that every failure has."""
    return printable(_PREAMBLE.sub("", failure.reason))


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


def ending(summary: Summary) -> str:
    """Return the totals on one line."""
    counts = f"{plural(summary.attempts, 'attempt')}, {plural(summary.connections, 'connection')}"
    error = summary.last_error
    last = f"; last error: {error.stage.value}: {reason(error)}" if error else ""
    return f"{summary.ended} after {summary.seconds:.1f} s: {counts}{last}"


class LineView:
    """One line per attempt, for logs and pipes, and another when its connection ends."""

    period = 1.0

    def heading(self, text: str) -> None:
        """Print the heading after an empty line."""
        click.echo(f"\n== {printable(text)}")

    def remark(self, text: str) -> None:
        """Print the remark."""
        click.echo(printable(text))

    def show(self, attempt: LoggedAttempt) -> None:
        """Print the attempt's line once it has an outcome."""
        if attempt.outcome is not Outcome.STARTED:
            gap = "" if attempt.gap is None else f"gap {attempt.gap:.3f} s"
            click.echo(f"#{attempt.number:<4} {attempt.start:8.3f} s  {gap:<14} {_outcome(attempt)}")

    def refresh(self, status: ConnectionStatus | None, note: str = "") -> None:
        """Do nothing, because a countdown is of no use in a log."""

    def explain(self, meaning: str, advice: str) -> None:
        """Print the meaning and the advice, on one line each."""
        click.echo(f"{printable(meaning)}\n-> {printable(advice)}")

    def summary(self, summary: Summary) -> None:
        """Print the totals as the last line."""
        click.echo(ending(summary))

    def close(self) -> None:
        """Do nothing; there is nothing to close."""


def _outcome(attempt: LoggedAttempt) -> str:
    upcoming = "" if attempt.next_in is None else f"; next in {attempt.next_in:.3f} s"
    why = reason(attempt.failure) if attempt.failure else ""
    match attempt.outcome:
        case Outcome.FAILED:
            stage = attempt.failure.stage.value if attempt.failure else "?"
            return f"failed after {duration(attempt.took)}, {stage}: {why}{upcoming}"
        case Outcome.DISCONNECTED:
            return f"disconnected: {why}{upcoming}"
        case _:
            return f"READY after {duration(attempt.took)}"


class JsonView:
    """One line of JSON for each event, for programs; the last line is the summary."""

    period = 1.0

    def heading(self, text: str) -> None:
        """Do nothing, because only events are printed."""

    def remark(self, text: str) -> None:
        """Do nothing, because only events are printed."""

    def show(self, attempt: LoggedAttempt) -> None:
        """Print the attempt in its current state; the key `event` says what has just happened."""
        write_json_line(
            event=attempt.outcome.value,
            number=attempt.number,
            attempt=attempt.attempt,
            start=_rounded(attempt.start),
            gap=_rounded(attempt.gap),
            limit=_rounded(attempt.limit),
            took=_rounded(attempt.took),
            lived=_rounded(attempt.lived),
            next_in=_rounded(attempt.next_in),
            **_failure(attempt.failure),
        )

    def refresh(self, status: ConnectionStatus | None, note: str = "") -> None:
        """Do nothing, because only events are printed."""

    def explain(self, meaning: str, advice: str) -> None:
        """Print the meaning and the advice."""
        write_json_line(event="diagnosis", meaning=meaning, advice=advice)

    def summary(self, summary: Summary) -> None:
        """Print the summary."""
        write_json_line(
            event="summary",
            ended=summary.ended,
            seconds=_rounded(summary.seconds),
            attempts=summary.attempts,
            connections=summary.connections,
            **_failure(summary.last_error),
        )

    def close(self) -> None:
        """Do nothing; there is nothing to close."""


def write_json_line(**fields: object) -> None:
    """Print one JSON object in ASCII, with DEL escaped; no terminal interprets it, and it parses to the same text."""
    click.echo(json.dumps(fields).replace("\x7f", "\\u007f"))


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def _failure(failure: Failure | None) -> dict[str, str | None]:
    return {"stage": failure.stage.value if failure else None, "error": failure.reason if failure else None}
