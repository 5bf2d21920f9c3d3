"""Plots a simulation: attempts at the server over time, one row per policy, and how quickly clients come back.

The plot is legible in print, because lines that share axes differ in their dashes as well as in colour.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.dispersal.simulation import Recovery

_WIDTH, _ROW, _LAST = 9.0, 1.5, 2.6
_SHADES = ("#08306b", "#d95f02", "#2ca25f", "#b07aa1", "#6b6b6b", "#17becf")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 4)))
_OUTAGE = "#e6e6e6"


def draw(done: Mapping[str, Recovery], file: Path) -> None:
    """Draw the attempts that the server saw under each policy and write a .png or .svg file."""
    with mpl.rc_context({"svg.hashsalt": "grpc-backoff"}):  # the same plot produces the same file
        figure = Figure(figsize=(_WIDTH, _ROW * len(done) + _LAST), layout="constrained")
        rows: Any = figure.subplots(len(done) + 1, 1, squeeze=False, height_ratios=[_ROW] * len(done) + [_LAST])
        for index, (name, recovery) in enumerate(done.items()):
            _draw_attempts(rows[index][0], _label(name), recovery, _SHADES[index % len(_SHADES)])
        _share_axes([row[0] for row in rows[:-1]], done)
        _draw_back(rows[-1][0], done)
        figure.savefig(file, dpi=110, metadata={"Date": None} if file.suffix == ".svg" else None)


def _draw_attempts(axes: Axes, name: str, recovery: Recovery, shade: str) -> None:
    edges = np.arange(len(recovery.attempts) + 1) * recovery.resolution
    axes.axvspan(0, recovery.outage.seconds, color=_OUTAGE, label="server away")
    axes.stairs(recovery.attempts / recovery.resolution, edges, color=shade, linewidth=1.2, label="attempts")
    axes.set_title(name, loc="left", fontsize="medium")
    axes.set_yscale("log")
    axes.set_ylabel("attempts/s")


def _label(name: str) -> str:
    """Return a name as a literal label: `$` would start a formula, and a leading `_` would hide it from the legend."""
    return " " + name.replace("$", r"\$")


def _share_axes(rows: list[Axes], done: Mapping[str, Recovery]) -> None:
    """Give all rows the same scales, so that they can be compared."""
    longest = max(len(recovery.attempts) * recovery.resolution for recovery in done.values())
    most = max(recovery.attempts.max() / recovery.resolution for recovery in done.values())
    least = min(recovery.attempts[recovery.attempts > 0].min() / recovery.resolution for recovery in done.values())
    for axes in rows:
        axes.set_xlim(-longest / 100, longest * 1.01)
        axes.set_ylim(least / 2, 2 * most)
        axes.tick_params(labelbottom=axes is rows[-1])
    rows[-1].set_xlabel("seconds since the server went down")
    # The legend is above the frame, where there are no lines.
    rows[0].legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, fontsize="small", frameon=False)


def _draw_back(axes: Axes, done: Mapping[str, Recovery]) -> None:
    for index, (name, recovery) in enumerate(done.items()):
        clients = recovery.outage.clients
        marks = np.unique(np.linspace(0, clients - 1, 1000).astype(int))  # as many points as a plot can show
        axes.step(
            [0.0, *recovery.back_after[marks]],
            [0.0, *(marks + 1) / clients * 100],
            where="post",
            color=_SHADES[index % len(_SHADES)],
            linestyle=_DASHES[index % len(_DASHES)],
            label=_label(name),
        )
    axes.set_xlim(left=0)
    axes.set_ylim(0, 101)
    axes.set_xlabel("seconds since the server came back")
    axes.set_ylabel("%")
    axes.set_title("clients that are back", loc="left", fontsize="medium")
    axes.legend(loc="lower right", fontsize="small", framealpha=1.0)
