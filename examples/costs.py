"""Draws the chart in docs/performance.md from the tables in docs/benchmarks.md: `python -m examples.costs`."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import NamedTuple

__all__ = ["COSTS", "PICTURE", "TABLES", "draw", "ratio"]

DOCS = Path(__file__).parents[1] / "docs"
PICTURE, TABLES = DOCS / "images" / "costs.svg", DOCS / "benchmarks.md"


class Cost(NamedTuple):
    """A bar of the chart: its label, and the table, case and subject in which its figure is found."""

    label: str
    table: str
    case: str
    subject: str = "grpc_backoff.aio"


COSTS = (
    Cost("connections to a peer that hangs up", "hang-up: connections", "16 workers, 10 s"),
    Cost("time of a fail-fast call in an outage", "fail-fast: time of a call, µs", "fail-fast call in backoff"),
    Cost("time of a unary call, one at a time", "calls: time of a call, µs", "unary, 1 at a time, asyncio"),
    Cost("time of a unary call, 50 at a time", "calls: time of a call, µs", "unary, 50 at a time, asyncio"),
    Cost("time of a unary call, 16 threads", "calls: time of a call, µs", "unary, 16 threads", "grpc_backoff"),
    Cost(
        "time of a unary call, with a retry policy",
        "retry: time of a call, µs",
        "the first attempt succeeds",
        "grpc_backoff.aio, retry",
    ),
    Cost("CPU of a call that waits", "waiting: CPU of a call that waits, µs", "1000 calls while CONNECTING"),
    Cost("CPU of a failed attempt to connect", "attempt: CPU of an attempt, µs", "50 channels, peer hangs up"),
    Cost("memory of 10,000 channels that dial at once", "fleet: memory of a channel, KiB", "10000 channels, 60 s"),
    Cost("CPU of 10,000 channels in backoff, 60 s", "fleet: CPU of a channel, ms", "10000 channels, 60 s"),
)

_LEFT, _ROW, _WIDTH, _TOP = 330, 26, 800, 40
_SPAN = (0.0005, 8.0)
_STYLE = """\
<style>
.ink { fill: #202124 } .line { stroke: #5f6368; fill: none; stroke-width: 1.5 }
.up { fill: #d3ecd9; stroke: #1b7f3b; stroke-width: 1.5 } .down { fill: #fbe0dc; stroke: #b3261e; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
.ink { fill: #e6e6e6 } .line { stroke: #9aa0a6 }
.up { fill: #1d3a28; stroke: #6cc788 } .down { fill: #452624; stroke: #f2887d }
}
</style>"""


def ratio(cost: Cost, tables: str) -> float:
    """Return the figure of this library divided by that of plain grpcio, from the tables' text.

    Raises:
        KeyError: there is no such table or row.
    """
    for table in re.findall(rf"^### {re.escape(cost.table)}\n\n((?:\|.*\n)+)", tables, re.MULTILINE):
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
        figures = {row[1]: row for row in rows if row[0] == cost.case}
        if ours := figures.get(cost.subject):
            return float(ours[4]) if ours[4] else _number(ours[2]) / _number(figures["grpc.aio"][2])
    raise KeyError(cost.label)


def draw(tables: str) -> str:
    """Return the chart: a bar for each cost, from 1 to its ratio, on a logarithmic scale."""
    height = _TOP + _ROW * len(COSTS) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" '
        'font-size="13">\n' + _STYLE,
        _text(_x(1) - 8, 18, "less than plain grpcio", anchor="end"),
        _text(_x(1) + 8, 18, "more"),
    ]
    for number, cost in enumerate(COSTS):
        found, y = ratio(cost, tables), _TOP + _ROW * number
        begin, end = sorted((_x(1), _x(found)))
        shape, colour = f'x="{begin:.1f}" y="{y}" width="{max(end - begin, 1):.1f}"', "down" if found > 1 else "up"
        parts += [
            _text(_LEFT - 20, y + 13, cost.label, anchor="end"),
            f'<rect class="{colour}" {shape} height="16"/>',
            _text(_x(max(found, 1)) + 8, y + 13, f"{found:.3g}"),
        ]
    parts += [f'<path class="line" d="M{_x(1):.1f} 8V{height - 8}"/>', "</svg>"]
    return "\n".join(parts) + "\n"


def _text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text class="ink" x="{x:.1f}" y="{y}" text-anchor="{anchor}">{words}</text>'


def _number(figure: str) -> float:
    return float(figure.replace(",", ""))


def _x(value: float) -> float:
    low, high = (math.log(bound) for bound in _SPAN)
    return _LEFT + (math.log(value) - low) / (high - low) * (_WIDTH - _LEFT - 50)


if __name__ == "__main__":
    PICTURE.write_text(draw(TABLES.read_text("utf-8")), "utf-8")
