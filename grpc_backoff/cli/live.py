"""The view for terminals: text that scrolls away like any other output, and the current activity below it."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from grpc_backoff.cli.texts import printable
from grpc_backoff.cli.view import Activity, Cells, View

_BAR_WIDTH = 30


class LiveView(View):
    """Coloured text, wrapped to the terminal, above a part that is redrawn and at the end erased."""

    live = True
    period = 0.1

    def __init__(self, console: Console | None = None) -> None:
        """Draw on `console`, by default that of standard output."""
        self._console = console or Console(highlight=False)
        self._spinner = Spinner("dots")
        self._live = Live(console=self._console, refresh_per_second=1 / self.period, transient=True)
        self._live.start()

    def line(self, text: str = "", style: str = "") -> None:
        """Print a text."""
        self._console.print(Text(printable(text), style=style))

    def row(self, row: Cells) -> None:
        """Print cells side by side; the last one gets the rest of the width and is wrapped."""
        self._console.print(_grid(row))

    def now(self, *parts: Cells | Activity) -> None:
        """Redraw the current activity."""
        drawn = (_grid(part) if isinstance(part, Cells) else self._moment(part) for part in parts)
        self._live.update(Group(*drawn), refresh=True)

    def close(self) -> None:
        """Erase the current activity."""
        self._live.update("")
        self._live.stop()

    def _moment(self, activity: Activity) -> RenderableType:
        text = Text(printable(activity.text), style=activity.style, no_wrap=True, overflow="ellipsis")
        if not activity.spins and activity.share is None:
            return text
        grid = Table.grid(padding=(0, 1))
        grid.add_row(self._spinner if activity.spins else ProgressBar(1, activity.share or 0.0, _BAR_WIDTH), text)
        return grid


def _grid(row: Cells) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
    for width in row.widths:
        grid.add_column(width=abs(width), justify="right" if width < 0 else "left", no_wrap=True)
    grid.add_column(ratio=1, overflow="fold")
    grid.add_row(*(Text.assemble(*((printable(text), style) for text, style in cell)) for cell in row.texts))
    return grid
