"""The view for terminals: a table that grows as attempts end, with the current activity below it.

Finished rows are printed and scroll away like any other output, so none is lost. Only the current attempt or
connection, the countdown and the note are redrawn.
"""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from grpc_backoff.cli.attempts import LoggedAttempt, Outcome, Summary
from grpc_backoff.cli.view import duration, ending, plural, printable, reason
from grpc_backoff.connection.events import ConnectionStatus, State

_COLUMNS = (("#", 3), ("start", 8), ("gap", 7), ("next in", 7))
_BAR_WIDTH = 30
_STYLES = {
    Outcome.STARTED: "cyan",
    Outcome.FAILED: "red",
    Outcome.CONNECTED: "green",
    Outcome.DISCONNECTED: "yellow",
}


class LiveView:
    """A growing table on a terminal, with a countdown to the next attempt."""

    period = 0.1

    def __init__(self, console: Console | None = None) -> None:
        """Draw on `console`; standard output by default."""
        self.console = console or Console(highlight=False)
        self._live = Live(console=self.console, auto_refresh=False, transient=True)
        self._live.start()
        self._spinner = Spinner("dots")
        self._current: LoggedAttempt | None = None
        self._printed = 0
        self._last_reason = ""
        self._wait = 0.0

    def heading(self, text: str) -> None:
        """Print a heading across the table; the row of an open connection is printed above it."""
        self._commit_standing()
        self._last_reason = ""
        self.console.print()
        self.console.print(Text(printable(text), style="bold"))

    def remark(self, text: str) -> None:
        """Print the remark."""
        self.console.print(Text(printable(text), style="dim"))

    def show(self, attempt: LoggedAttempt) -> None:
        """Print the row of a finished attempt; keep an unfinished one in the redrawn part."""
        self._current = attempt
        self._wait = attempt.next_in or 0.0
        if attempt.outcome in (Outcome.FAILED, Outcome.DISCONNECTED):
            self._commit(attempt)
            self._current = None

    def refresh(self, status: ConnectionStatus | None, note: str = "") -> None:
        """Redraw the current activity."""
        parts: list[RenderableType] = []
        if self._current is not None and self._current.number > self._printed:
            parts.append(_row(self._current))
        if status is not None:
            parts.append(self._moment(status))
        if note:
            parts.append(Text(note, style="dim", no_wrap=True, overflow="ellipsis"))
        self._live.update(Group(*parts), refresh=True)

    def explain(self, meaning: str, advice: str) -> None:
        """Print the meaning and the advice after an empty line."""
        self.console.print()
        self.console.print(Text(printable(meaning), style="bold"))
        self.console.print(Text(f"-> {printable(advice)}"))

    def summary(self, summary: Summary) -> None:
        """Print the totals as the last line."""
        self._commit_standing()
        self.close()
        self.console.print()
        self.console.print(Text(ending(summary), style="bold green" if summary.connections else "bold red"))

    def close(self) -> None:
        """Erase the redrawn part."""
        self._live.update(Text(""))
        self._live.stop()

    def _commit_standing(self) -> None:
        if self._current is not None and self._current.outcome is Outcome.CONNECTED:
            self._commit(self._current)

    def _commit(self, attempt: LoggedAttempt) -> None:
        if not self._printed:
            self.console.print(_header())
        if attempt.outcome is not Outcome.CONNECTED or attempt.number > self._printed:
            self.console.print(_row(attempt, self._last_reason))
            self._last_reason = reason(attempt.failure) if attempt.failure else ""
        self._printed = attempt.number

    def _moment(self, status: ConnectionStatus) -> RenderableType:
        left = status.next_attempt_in
        if left is not None:
            self._wait = max(self._wait, left)
            return _beside(
                ProgressBar(total=self._wait, completed=self._wait - left, width=_BAR_WIDTH),
                Text(f"next attempt in {left:.1f} s", style="yellow"),
            )
        if status.state is State.READY:
            return Text(f"● READY, {plural(status.connections, 'connection')} so far", style="green")
        if status.in_flight:
            return _beside(self._spinner, Text(f"attempt {status.attempt}: waiting for SETTINGS", style="cyan"))
        return Text(f"○ {status.state.name}", style="dim")


def _beside(*parts: RenderableType) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_row(*parts)
    return grid


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
    for _, width in _COLUMNS:
        grid.add_column(width=width, justify="right", no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    return grid


def _header() -> Table:
    grid = _grid()
    grid.add_row(*(Text(name, style="dim") for name, _ in _COLUMNS), Text("outcome", style="dim"))
    return grid


def _row(attempt: LoggedAttempt, last_reason: str = "") -> Table:
    grid = _grid()
    grid.add_row(
        Text(str(attempt.number), style="dim"),
        f"{attempt.start:.3f} s",
        "" if attempt.gap is None else f"{attempt.gap:.2f} s",
        "" if attempt.next_in is None else f"{attempt.next_in:.2f} s",
        Text.assemble((_outcome(attempt), _STYLES[attempt.outcome]), *_why(attempt, last_reason)),
    )
    return grid


def _outcome(attempt: LoggedAttempt) -> str:
    match attempt.outcome:
        case Outcome.STARTED:
            return f"at most {duration(attempt.limit)}"
        case Outcome.FAILED:
            return f"failed after {duration(attempt.took)}"
        case Outcome.CONNECTED:
            return f"READY after {duration(attempt.took)}"
        case Outcome.DISCONNECTED:
            return f"READY after {duration(attempt.took)}, lost after {duration(attempt.lived)}"


def _why(attempt: LoggedAttempt, last_reason: str) -> list[tuple[str, str]]:
    """Return the stage and the reason of a failure; "as before" stands for the same reason as in the row above."""
    if attempt.failure is None or attempt.outcome is Outcome.DISCONNECTED:
        return []
    why = reason(attempt.failure)
    return [("  " + attempt.failure.stage.value, "bold"), ("  as before" if why == last_reason else f"  {why}", "dim")]
