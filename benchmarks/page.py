"""Writes the tables of a run, in Markdown, between two comments of a page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from benchmarks.cells import HEADINGS, cells
from benchmarks.record import machine, versions
from benchmarks.suite import Run

__all__ = ["BEGIN", "END", "has_place", "markdown", "put_into"]

BEGIN = "<!-- begin: python -m benchmarks -->"
END = "<!-- end: python -m benchmarks -->"
_BETWEEN = re.compile(f"(?<={re.escape(BEGIN)}\n).*?(?={re.escape(END)})", re.DOTALL)
_RULE = ["---:" if heading in ("figure", "spread", "ratio", "95 %") else "---" for heading in HEADINGS]


def markdown(run: Run) -> str:
    """Return the tables, with the machine, the date and the versions."""
    return "\n".join(_lines(run)) + "\n"


def has_place(page: Path) -> bool:
    """Return whether the page contains both comments."""
    return _BETWEEN.search(page.read_text("utf-8")) is not None


def put_into(page: Path, run: Run) -> None:
    """Write the tables of the run between the page's two comments, replacing what was there."""
    page.write_text(_BETWEEN.sub(lambda _: f"\n{markdown(run)}\n", page.read_text("utf-8")), "utf-8")


def _lines(run: Run) -> Iterator[str]:
    names = " ".join(result.benchmark.name for result in run.results)
    effort = "" if run.effort.value == "full" else f" --{run.effort.value}"
    minutes = sum(result.seconds for result in run.results) / 60
    yield f"{run.began:%Y-%m-%d}, `python -m benchmarks {names}{effort}`, {minutes:.1f} minutes on {machine()}."
    yield ", ".join(f"{name} {version}" for name, version in versions().items()) + "."
    for result in run.results:
        for measure, rows in groupby(result.rows, lambda row: row.measure):
            yield ""
            yield f"### {result.benchmark.name}: {measure}"
            yield ""
            yield _line(HEADINGS)
            yield _line(_RULE)
            yield from (_line(cells(row, result.benchmark).texts) for row in rows)


def _line(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"
