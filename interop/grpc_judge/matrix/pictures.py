"""Draws a picture for each scenario: what the server saw of every peer, and what the protocol allows.

Time starts at each client's first connection and is measured in units of its INITIAL_BACKOFF, so that compressed and
real time can be compared. Everything important has a different shape, so the pictures are also readable in greyscale.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from grpc_judge.conformance import Evidence, Measure, Scenario, Terms
from grpc_judge.conformance.gaps import gaps
from grpc_judge.matrix.compact import compact
from grpc_judge.matrix.results import PeerResult, Results
from grpc_judge.timeline import Visit

__all__ = ["draw"]

_BY_NUMBER = {Scenario.HANG_UP, Scenario.STEADY, Scenario.SLOW_FAILURE, Scenario.HANDSHAKE, Scenario.UNSTABLE}
"""Scenarios whose connections form one series of attempts, so that gaps can also be shown by number."""
_LEFT_OUT = {"one-at-a-time", "no-pause-after-the-limit"}
"""Clauses whose time spans are not drawn, because another clause of their scenario draws the same attempts."""
_MANY = 200
"""The number of connections above which they are drawn as a raster image."""
_SEEN = 0.01
"""A connection that was open for less than this, in seconds, is drawn without its duration."""
_LATE = 0.5
"""SETTINGS that were sent sooner than this, in units of INITIAL_BACKOFF, are not drawn."""
_FLOOR = 1 / 16
"""The lower end of the scale of gaps, in units of INITIAL_BACKOFF. Shorter gaps are drawn at this height."""

_ALLOWED, _STANDS = "0.80", "0.45"
_RIGHT: Mapping[str, Any] = {"marker": "|", "color": "black", "ms": 16, "mew": 1.5}
_WRONG: Mapping[str, Any] = {"marker": "x", "color": "tab:red", "ms": 7, "mew": 1.5}
_SETTINGS: Mapping[str, Any] = {"marker": "D", "color": "black", "mfc": "white", "ms": 6}
_NOBODY: Mapping[str, Any] = {"fill": False, "hatch": "////", "ec": "0.55", "lw": 0}
_LONG = 40.0
"""Pictures longer than this, in units of INITIAL_BACKOFF, have a partly logarithmic scale, which enlarges the start."""
_EVEN = 2.0
"""The scale is linear up to this point, and logarithmic beyond it."""
_SPREAD = 0.7
"""The horizontal width over which gaps with the same number are spread."""
_SHADES = ("black", "tab:blue", "tab:orange", "tab:green", "tab:purple", "tab:brown", "tab:cyan", "tab:olive")
_MARKERS = "o^svDP*"  # not as many as shades, so that pairs repeat late


@dataclass(frozen=True, slots=True)
class _Row:
    """The row of one client in a picture.

    Attributes:
        name: the name of the client.
        evidence: what was observed of the client.
        visits: the client's connections.
        began: when its first connection was accepted.
        spans: the measured time spans that have an allowed range.
    """

    name: str
    evidence: Evidence
    visits: Sequence[Visit]
    began: float
    spans: Sequence[Measure]

    @property
    def unit(self) -> float:
        """The client's INITIAL_BACKOFF, in seconds."""
        return self.evidence.terms.initial

    @property
    def end(self) -> float:
        """When the client stopped making calls, on the picture's time axis."""
        return self.at(self.evidence.over)

    def at(self, moment: float) -> float:
        """Convert a time of the timeline to one on the picture's time axis."""
        return (moment - self.began) / self.unit

    def life(self, visit: Visit) -> tuple[float, float]:
        """Return the start and end of a connection, on the picture's time axis."""
        until = visit.ended if visit.ended is not None else self.evidence.timeline.taken
        return self.at(visit.accepted), min(self.at(until), self.end)

    def stands(self, visit: Visit) -> bool:
        """Return whether a connection was open long enough for its duration to be visible."""
        begin, end = self.life(visit)
        return (end - begin) * self.unit > _SEEN

    def late_settings(self, visit: Visit) -> float | None:
        """Return when SETTINGS were sent, on the picture's time axis; None if they were not visibly late."""
        if visit.settings_sent is None or visit.settings_sent - visit.accepted < _LATE * self.unit:
            return None
        return self.at(visit.settings_sent)


def draw(results: Results, scenario: Scenario, path: Path) -> bool:
    """Draw a scenario into a file. Return False if there was nothing to draw."""
    rows = [row for peer in results.judged for row in _rows(results, peer, scenario)]
    if not rows:
        return False
    lines, number_panel = 1.5 + 0.42 * len(rows), 4.2 if scenario in _BY_NUMBER else 0.0
    figure = Figure(figsize=(11, lines + number_panel), layout="constrained")
    if number_panel:
        upper, lower = figure.subplots(2, 1, height_ratios=[lines, number_panel])
        _draw_numbers(lower, rows)
    else:
        upper = figure.subplots()
    _draw_time(upper, rows, scenario)
    handles = list(_legend(rows, scenario))
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), fontsize=8, frameon=False)
    with rc_context({"svg.hashsalt": scenario.label, "svg.fonttype": "none"}):
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None})
    path.write_text(compact(written.getvalue()))
    return True


def _rows(results: Results, peer: PeerResult, scenario: Scenario) -> Iterator[_Row]:
    evidence = peer.evidence.get(scenario)
    if not isinstance(evidence, Evidence) or not evidence.visits:
        return
    names = {clause.name for clause in results.clauses_of(scenario)}
    names -= _LEFT_OUT if len(names) > len(_LEFT_OUT) else set()
    judged = [measure for verdict in peer.verdicts if verdict.clause in names for measure in verdict.measures]
    spans = [measure for measure in judged if measure.since is not None]
    accepted = evidence.visits  # read once, because there may be tens of thousands
    for client in sorted({visit.client for visit in accepted}):
        visits = [visit for visit in accepted if visit.client == client]
        name = f"{peer.name}, {client}" if client else peer.name
        yield _Row(name, evidence, visits, accepted[0].accepted, spans)


def _draw_time(axes: Axes, rows: Sequence[_Row], scenario: Scenario) -> None:
    """Draw the connections over time, one row per client."""
    end = max(row.end for row in rows)
    for place, row in enumerate(rows):
        for span in row.spans:
            _draw_allowed(axes, row, span, place, end)
        for window in row.evidence.timeline.refusing[:1]:
            begin, over = row.at(window.begin), row.at(window.end or row.evidence.over)
            axes.add_patch(Rectangle((begin, place - 0.4), over - begin, 0.8, **_NOBODY))
        _draw_connections(axes, row, place, by_number=scenario in _BY_NUMBER)
    if end > _LONG:
        axes.set_xscale("symlog", linthresh=_EVEN)
        ticks = [0, 1, *(2**power for power in range(1, math.floor(math.log2(end)) + 1))]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlim(-0.1, 1.1 * end)
    else:
        axes.set_xlim(-0.02 * end, 1.02 * end)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color="0.93")
    axes.set_yticks(range(len(rows)), [f"{row.name} ({row.unit:g} s)" for row in rows], fontsize=8)
    axes.set_xlabel("time since the first connection, in units of INITIAL_BACKOFF (given next to each name)")
    axes.set_title(f"The server {scenario.value}", loc="left", fontsize=11)


def _draw_allowed(axes: Axes, row: _Row, span: Measure, place: int, end: float) -> None:
    """Draw the allowed range for the end of a span. An infinite range is drawn up to the measured value."""
    assert span.since is not None, "only what has a beginning is a span"
    low = row.at(span.since + max(0.0, span.allowed.low))
    bounded = math.isfinite(span.allowed.high)
    high = min(row.at(span.since + (span.allowed.high if bounded else span.seen)), end)
    if high > low:
        axes.add_patch(Rectangle((low, place - 0.32), high - low, 0.64, color=_ALLOWED, lw=0, zorder=1))


def _draw_connections(axes: Axes, row: _Row, place: int, *, by_number: bool) -> None:
    missed = {_moment(span.since + span.seen) for span in row.spans if span.missed_by and span.since is not None}
    if by_number:
        missed |= {
            _moment((gap.since or 0.0) + gap.seen) for gap in gaps(row.visits, row.evidence.terms) if gap.missed_by
        }
    right: list[float] = []
    wrong: list[float] = []
    for visit in row.visits:
        ends = {_moment(visit.accepted), _moment(visit.ended or row.evidence.timeline.taken)}
        (right if missed.isdisjoint(ends) else wrong).append(row.at(visit.accepted))
        if row.stands(visit):
            axes.plot(row.life(visit), [place, place], color=_STANDS, lw=4, solid_capstyle="butt", zorder=2)
        if (settings := row.late_settings(visit)) is not None:
            axes.plot([settings], [place], linestyle="", zorder=3, **_SETTINGS)
    many = len(row.visits) > _MANY
    axes.plot(right, [place] * len(right), linestyle="", zorder=3, rasterized=many, **_RIGHT)
    axes.plot(wrong, [place] * len(wrong), linestyle="", zorder=3, rasterized=many, **_WRONG)


def _moment(time: float) -> float:
    """Round a time, so that times from the same record compare equal."""
    return round(time, 6)


def _legend(rows: Sequence[_Row], scenario: Scenario) -> Iterator[Artist]:
    yield Line2D([], [], linestyle="", label="connection accepted", **_RIGHT)
    numbered = [gap for row in rows if scenario in _BY_NUMBER for gap in gaps(row.visits, row.evidence.terms)]
    if any(each.missed_by for each in (*numbered, *(span for row in rows for span in row.spans))):
        yield Line2D([], [], linestyle="", label="outside the allowed range", **_WRONG)
    if any(row.stands(visit) for row in rows for visit in row.visits):
        yield Line2D([], [], color=_STANDS, lw=4, label="connection open")
    if any(row.late_settings(visit) is not None for row in rows for visit in row.visits):
        yield Line2D([], [], linestyle="", label="SETTINGS sent", **_SETTINGS)
    if any(row.spans for row in rows):
        what = "an attempt may end" if scenario is Scenario.SILENT else "the next connection may come"
        yield Patch(color=_ALLOWED, lw=0, label=f"when {what}")
    if any(row.evidence.timeline.refusing for row in rows):
        yield Patch(label="no server listening", **_NOBODY)


def _draw_numbers(axes: Axes, rows: Sequence[_Row]) -> None:
    """Draw the gaps by number, over the allowed ranges of all settings that occurred."""
    most = max(row.evidence.terms.fewest_starts(row.evidence.seconds) for row in rows) + 2
    for terms in {row.evidence.terms for row in rows}:
        _draw_bands(axes, terms, most)
    for place, (row, shade, marker) in enumerate(zip(rows, cycle(_SHADES), cycle(_MARKERS), strict=False)):
        found = gaps(row.visits[: most + 1], row.evidence.terms)
        aside = _SPREAD * ((place + 0.5) / len(rows) - 0.5)  # keeps the points of clients apart
        numbers = [number + aside for number in range(1, len(found) + 1)]
        lengths = [max(gap.seen / row.unit, _FLOOR) for gap in found]
        axes.plot(numbers, lengths, marker, color=shade, ms=5, mfc="none", label=row.name)
    axes.set_yscale("log", base=2)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if value > _FLOOR else f"≤ {_FLOOR:g}"))
    axes.set_xlim(0.4, most + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("number of the gap, counted from the first attempt")
    axes.set_ylabel("gap, in units of INITIAL_BACKOFF")
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _draw_bands(axes: Axes, terms: Terms, most: int) -> None:
    """Draw the range that jitter allows, surrounded by the tolerance."""
    numbers = range(1, most + 1)
    for tolerance, shade in ((terms.tolerance, "0.90"), (0.0, _ALLOWED)):
        bands = [replace(terms, tolerance=tolerance).band(n) for n in numbers]
        low, high = [band.low / terms.initial for band in bands], [band.high / terms.initial for band in bands]
        axes.fill_between(numbers, low, high, color=shade, lw=0)
